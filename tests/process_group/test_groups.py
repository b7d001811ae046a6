import copy
import datetime

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

from tests.harness import run


def total(group, rank):
    tensor = torch.full((20_000,), float(rank), device="neuron")
    dist.all_reduce(tensor, group=group)
    return tensor[0].item()


def sub_groups(rank, world_size):
    even, odd = dist.new_group([0, 2]), dist.new_group([1, 3])
    mine = odd if rank % 2 else even
    assert total(mine, rank) == (4 if rank % 2 else 2)
    single = [dist.new_group([r]) for r in range(world_size)][rank]
    assert total(single, rank) == rank
    tensor = torch.full((3,), float(rank), device="neuron")
    dist.broadcast(tensor, src=2 + rank % 2, group=mine)
    assert tensor.tolist() == [2 + rank % 2] * 3
    assert total(None, rank) == 6
    dist.destroy_process_group(mine)
    assert total(None, rank) == 6


def test_new_group():
    run(4, sub_groups)


def bound_device(rank, world_size):
    dist.init_process_group("neuron", device_id=torch.device("neuron", rank))
    half = dist.split_group(split_ranks=[[0, 1], [2, 3]])
    assert total(half, rank) == (1 if rank < 2 else 5)
    outsider = dist.new_group([0])
    if rank == 0:
        assert total(outsider, rank) == 0
    on_cpu = dist.new_group(backend="gloo")
    tensor = torch.ones(3)
    dist.all_reduce(tensor, group=on_cpu)
    assert tensor.tolist() == [4.0] * 3


def test_split_group_with_a_bound_device():
    run(4, bound_device, backend=None)


def meshes(rank, world_size):
    mesh = init_device_mesh("neuron", (2, 2), mesh_dim_names=("outer", "inner"))
    assert total(mesh["inner"].get_group(), rank) == (1 if rank < 2 else 5)
    assert total(mesh["outer"].get_group(), rank) == (2 if rank % 2 == 0 else 4)
    assert total(mesh[("outer", "inner")]._flatten().get_group(), rank) == 6


def test_device_mesh():
    run(4, meshes)


def properties(rank, world_size):
    group = dist.distributed_c10d._get_default_group()
    backend = group._get_backend(torch.device("neuron"))
    assert backend is group._get_backend(torch.device("cpu")), "one object serves both devices"
    assert dist.get_backend() == "neuron"
    assert backend.name() == "neuron"
    assert backend.supports_splitting
    assert backend.supports_coalescing
    options = copy.deepcopy(backend.options)
    assert options._timeout == datetime.timedelta(seconds=60)
    assert list(options.global_ranks_in_group) == list(range(world_size))
    before = backend._get_sequence_number_for_group()
    total(None, rank)
    assert backend._get_sequence_number_for_group() == before + 1
    group.set_timeout(datetime.timedelta(seconds=7))
    assert backend.options._timeout == datetime.timedelta(seconds=7)


def test_properties_of_the_backend_object():
    run(2, properties)


def twice(rank, world_size):
    for _ in range(3):
        dist.init_process_group("neuron")
        assert total(None, rank) == 1
        dist.destroy_process_group()


def test_a_group_can_be_made_again():
    run(2, twice, backend=None)


def mixed_backends(rank, world_size):
    dist.init_process_group("cpu:gloo,neuron:neuron")
    tensor = torch.ones(4)
    dist.all_reduce(tensor)
    assert tensor.tolist() == [2.0] * 4
    assert total(None, rank) == 1


def test_beside_gloo():
    run(2, mixed_backends, backend=None)


def default_of_pairs(rank, world_size, backend):
    dist.init_process_group(backend)
    group = dist.distributed_c10d._get_default_group()
    assert group._get_backend_name() == "custom"  # not "undefined", of which torch warns when the group ends
    assert (group.rank(), group.size()) == (rank, world_size)
    assert not group._has_hooks()
    assert dist.distributed_c10d._world.pg_backend_config[group] == backend
    assert total(None, rank) == 1


@pytest.mark.parametrize("backend", ["cpu:gloo,neuron:neuron", "neuron:neuron"])
def test_pairs_of_device_and_backend_have_a_default(backend):
    run(2, default_of_pairs, backend, backend=None)


def default_backend(rank, world_size):
    assert dist.get_default_backend_for_device("neuron") == "neuron"
    dist.init_process_group()
    assert total(None, rank) == 1  # torch then maps the accelerator only, no CPU tensors


def device_of_a_rank(rank, world_size):
    assert torch.neuron.current_device() == rank
    assert torch.empty(0, device="neuron").device.index == rank


def test_group_made_before_the_device_is_used():
    run(2, device_of_a_rank)


def test_without_naming_a_backend():
    run(2, default_backend, backend=None)


def debug_detail(rank, world_size):
    dist.set_debug_level(dist.DebugLevel.DETAIL)
    dist.init_process_group("neuron")
    assert total(None, rank) == 1
    dist.barrier()


def test_debug_detail():
    run(2, debug_detail, backend=None)


def barriers(rank, world_size):
    for _ in range(20):
        dist.barrier()
    group = dist.distributed_c10d._get_default_group()
    group.barrier()
    group._get_backend(torch.device("cpu")).monitored_barrier(datetime.timedelta(seconds=20))


def test_barrier():
    run(3, barriers)
