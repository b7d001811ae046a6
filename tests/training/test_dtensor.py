"""DTensor: every change of placement, factories, random operators and operators on shards."""

import itertools

import pytest
import torch
import torch.distributed as dist
import torch.distributed.tensor as dt
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor

from tests.harness import run

PLACEMENTS = (Replicate(), Shard(0), Shard(1), Partial("sum"), Partial("max"), Partial("avg"))
SHAPES = ((8, 12), (5, 7), (1, 3))  # even, uneven, fewer rows than ranks


def value(shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


def placed(mesh, shape, placement):
    """A DTensor of ``value(shape)`` whose ranks hold what ``placement`` says."""
    whole = value(shape).to("neuron")
    if not isinstance(placement, Partial):
        return distribute_tensor(whole, mesh, [placement])
    if placement.reduce_op == "sum":
        whole = whole if dist.get_rank() == 0 else torch.zeros_like(whole)
    return DTensor.from_local(whole, mesh, [placement], run_check=False)


def redistribute(rank, world_size):
    mesh = init_device_mesh("neuron", (world_size,))
    for shape, before, after in itertools.product(SHAPES, PLACEMENTS, PLACEMENTS[:3]):
        moved = placed(mesh, shape, before).redistribute(mesh, [after])
        assert moved.placements == (after,)
        case = f"{shape} {before} -> {after}: {{}}".format
        torch.testing.assert_close(moved.full_tensor().cpu(), value(shape), msg=case)
        expected = distribute_tensor(value(shape).to("neuron"), mesh, [after]).to_local()
        torch.testing.assert_close(moved.to_local(), expected, msg=case)


@pytest.mark.parametrize("nproc", [2, 4])
def test_every_change_of_placement(nproc):
    run(nproc, redistribute)


def redistribute_2d(rank, world_size):
    mesh = init_device_mesh("neuron", (2, 2), mesh_dim_names=("a", "b"))
    pairs = list(itertools.product(PLACEMENTS[:3], repeat=2))
    for shape, before, after in itertools.product(SHAPES[:2], pairs, pairs):
        moved = distribute_tensor(value(shape).to("neuron"), mesh, before).redistribute(mesh, after)
        torch.testing.assert_close(
            moved.full_tensor().cpu(), value(shape), msg=f"{before} -> {after}: {{}}".format
        )


def test_every_change_on_a_2d_mesh():
    run(4, redistribute_2d)


def through_autograd(rank, world_size):
    mesh = init_device_mesh("neuron", (world_size,))
    for before, after in itertools.product(PLACEMENTS[:3], repeat=2):
        leaf = placed(mesh, (8, 12), before).requires_grad_()
        (leaf.redistribute(mesh, [after]).full_tensor() ** 2).sum().backward()
        torch.testing.assert_close(leaf.grad.full_tensor().cpu(), 2 * value((8, 12)))


def test_gradients_through_redistribute():
    run(2, through_autograd)


def factories(rank, world_size):
    mesh = init_device_mesh("neuron", (world_size,))
    for placement in PLACEMENTS[:3]:
        assert torch.equal(
            dt.ones(5, 6, device_mesh=mesh, placements=[placement]).full_tensor().cpu(), torch.ones(5, 6)
        )
        assert not dt.zeros(5, 6, device_mesh=mesh, placements=[placement]).full_tensor().any()
        full = dt.full((5, 6), 2.5, device_mesh=mesh, placements=[placement])
        assert torch.equal(full.full_tensor().cpu(), torch.full((5, 6), 2.5))


def test_factories():
    run(4, factories)


def operators(rank, world_size):
    mesh = init_device_mesh("neuron", (world_size,))
    a, b, tokens = value((8, 12)), value((12, 8)), torch.arange(8) % 8
    for left, right in itertools.product(PLACEMENTS[:3], repeat=2):
        one, two = (distribute_tensor(t.to("neuron"), mesh, [p]) for t, p in ((a, left), (b, right)))
        for name, sharded, plain in (
            ("matmul", one @ two, a @ b),
            ("add", one + two.t(), a + b.t()),
            ("softmax", one.softmax(-1), a.softmax(-1)),
            ("mean", one.mean(0), a.mean(0)),
            ("max", one.max(), a.max()),
            ("norm", torch.linalg.vector_norm(one), torch.linalg.vector_norm(a)),
            (
                "layer_norm",
                torch.nn.functional.layer_norm(one, (12,)),
                torch.nn.functional.layer_norm(a, (12,)),
            ),
            ("slice", one[1:5, 2:9], a[1:5, 2:9]),
            ("cat", torch.cat([one, two.t()]), torch.cat([a, b.t()])),
            ("sort", one.sort(-1).values, a.sort(-1).values),
            ("clone", one.clone().zero_(), a.clone().zero_()),
            ("embedding", torch.nn.functional.embedding(tokens_of(mesh, tokens), two[:8]), b[:8][tokens]),
        ):
            torch.testing.assert_close(
                sharded.full_tensor().cpu(), plain, msg=f"{name} {left} {right}: {{}}".format
            )


def tokens_of(mesh, tokens):
    return distribute_tensor(tokens.to("neuron"), mesh, [Replicate()])


def test_operators_on_shards():
    run(2, operators)


def random_operators(rank, world_size):
    """A shard's numbers are those that one device would draw, at their places, whatever the placement."""
    mesh = init_device_mesh("neuron", (world_size,))
    draws = {
        "rand": lambda placement: dt.rand(8, 12, device_mesh=mesh, placements=[placement]),
        "randn": lambda placement: dt.randn(8, 12, device_mesh=mesh, placements=[placement]),
        "uniform_": lambda placement: dt.empty(8, 12, device_mesh=mesh, placements=[placement]).uniform_(
            -1, 1
        ),
        "normal_": lambda placement: dt.empty(8, 12, device_mesh=mesh, placements=[placement]).normal_(3, 2),
        "dropout": lambda placement: torch.nn.functional.dropout(
            dt.ones(8, 12, device_mesh=mesh, placements=[placement]), 0.5
        ),
    }
    results = {}
    for name, draw in draws.items():
        for placement in PLACEMENTS[:3]:
            torch.manual_seed(7)
            first, second = draw(placement).full_tensor(), draw(placement).full_tensor()
            assert not torch.equal(first, second), f"{name} {placement} repeats itself"
            everyone = [torch.empty_like(first) for _ in range(world_size)]
            dist.all_gather(everyone, first)
            assert all(torch.equal(other, first) for other in everyone)
            parts = first.chunk(world_size, dim=placement.dim if isinstance(placement, Shard) else 0)
            assert not torch.equal(parts[0], parts[1]), (
                f"{name} {placement}: two shards drew the same numbers"
            )
            results[name, str(placement)] = first.cpu()
    return results


def test_random_operators_draw_other_numbers_on_each_shard():
    results = run(2, random_operators)
    assert all(torch.equal(results[0][key], results[1][key]) for key in results[0])


def sub_meshes(rank, world_size):
    dist.init_process_group("neuron", device_id=torch.device("neuron", rank))
    mesh = init_device_mesh("neuron", (2, 2, 2), mesh_dim_names=("dp", "cp", "tp"))
    assert mesh["dp"].get_local_rank() == rank // 4
    flat = mesh["dp", "cp"]._flatten("dp_cp")
    assert flat.size() == 4
    total = torch.full((2,), float(rank), device="neuron")
    dist.all_reduce(total, group=flat.get_group())
    assert total[0] == sum(r for r in range(8) if r % 2 == rank % 2)
    both = mesh["cp", "tp"]
    assert both.mesh.flatten().tolist() == [r + 4 * (rank // 4) for r in range(4)]
    whole = init_device_mesh("neuron", (8,), mesh_dim_names=("all",))
    unflat = whole._unflatten(0, (2, 4), ("outer", "inner"))
    total = torch.full((2,), float(rank), device="neuron")
    dist.all_reduce(total, group=unflat["inner"].get_group())
    assert total[0] == sum(r for r in range(8) if r // 4 == rank // 4)
    from_group = dt.DeviceMesh.from_group(mesh["tp"].get_group(), "neuron")
    assert distribute_tensor(value((4, 4)).to("neuron"), from_group, [Shard(0)]).to_local().shape == (2, 4)


def test_sub_meshes_with_a_bound_device():
    run(8, sub_meshes, backend=None)
