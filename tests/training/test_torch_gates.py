"""What torch 2.13 itself refuses to backends that it does not contain: docs/compatibility.md quotes it."""

import warnings
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symmetric_memory
import torch.distributed.nn.functional as dnn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel as DDP

from tests.harness import run
from tests.training.models import make, train


def bf16_hook(rank, world_size):
    with pytest.raises(TypeError, match="BF16 all reduce communication hook required CUDA"):
        DDP(make().to("neuron")).register_comm_hook(None, default_hooks.bf16_compress_hook)


def batched_powersgd(rank, world_size):
    model = DDP(make().to("neuron"))
    state = powerSGD_hook.PowerSGDState(None, start_powerSGD_iter=2)
    model.register_comm_hook(state, powerSGD_hook.batched_powerSGD_hook)
    with pytest.raises(AssertionError):
        train(model, rank, world_size)


def monitored_barrier(rank, world_size):
    with pytest.raises(ValueError, match="monitored_barrier is only implemented for GLOO backend"):
        dist.monitored_barrier()


def all_gather_base_gradient(rank, world_size):
    x = torch.ones(4, device="neuron", requires_grad=True)
    with pytest.raises(RuntimeError, match="Backend not supported!"):
        dnn._all_gather_base(torch.empty(8, device="neuron"), x * 1).sum().backward()


def default_size_of_subgroups(rank, world_size):
    with pytest.raises(ValueError, match="Default group size only takes effect when CUDA is available"):
        dist.new_subgroups()
    mine, _ = dist.new_subgroups(group_size=1)
    assert dist.get_world_size(mine) == 1


def timeout_of_a_group(rank, world_size):
    with pytest.warns(UserWarning, match="Set timeout is now only supported for either nccl or gloo"):
        dist.distributed_c10d._set_pg_timeout(timedelta(seconds=5))


def sequence_number_of_the_group(rank, world_size):
    group = dist.distributed_c10d._get_default_group()
    with pytest.raises(RuntimeError, match="does not yet support sequence numbers"):
        group._get_sequence_number_for_group()


def barrier_method_without_cpu(rank, world_size):
    dist.init_process_group("neuron:neuron")
    dist.barrier()
    with pytest.raises(RuntimeError, match="No backend type associated with device type cpu"):
        dist.distributed_c10d._get_default_group().barrier()


def split_without_a_device(rank, world_size):
    with pytest.raises(RuntimeError, match="No device associated with the default pg"):
        dist.split_group(split_ranks=[[0], [1]])


def one_sided_signals(rank, world_size):
    tensor = symmetric_memory.empty(4, device="neuron")
    memory = symmetric_memory.rendezvous(tensor, dist.group.WORLD)
    with pytest.raises(ValueError, match="put_signal: unsupported backend: NEURON"):
        symmetric_memory.put_signal(tensor, memory, 1 - rank)
    with pytest.raises(ValueError, match="wait_signal: unsupported backend: NEURON"):
        symmetric_memory.wait_signal(memory, 1 - rank)


def symmetric_workspace(rank, world_size):
    with pytest.raises(RuntimeError, match="dummy base class _cuda_isCurrentStreamCapturing"):
        symmetric_memory.get_symm_mem_workspace(dist.group.WORLD.group_name, 4)
    with pytest.raises(RuntimeError, match="MemPool did not find backend for device type neuron"):
        symmetric_memory.get_mem_pool("neuron")


GATES = [
    bf16_hook,
    batched_powersgd,
    monitored_barrier,
    all_gather_base_gradient,
    default_size_of_subgroups,
    timeout_of_a_group,
    sequence_number_of_the_group,
    split_without_a_device,
    one_sided_signals,
    symmetric_workspace,
]


def test_barrier_method_without_cpu():
    run(2, barrier_method_without_cpu, backend=None)


@pytest.mark.parametrize("gate", GATES, ids=lambda gate: gate.__name__)
def test_gate(gate):
    run(2, gate)


def composite(rank, world_size):
    """Gloo for CPU tensors beside us."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dist.init_process_group("cpu:gloo,neuron:neuron", device_id=torch.device("neuron", rank))
        half = dist.init_device_mesh("neuron", (2, 2)).get_group(1)
        for device in ("cpu", "neuron"):
            for group, size in ((None, 4), (half, 2)):
                dist.all_reduce(tensor := torch.ones(3, device=device), group=group)
                assert tensor.tolist() == [size] * 3
        dist.barrier()
        dist.all_gather_object([None] * 4, {"rank": rank})
        train(DDP(make().to("neuron")), rank, world_size)


def test_gloo_for_cpu_tensors():
    run(4, composite, backend=None)
