"""Around torch.distributed's plain calls: objects, functional and differentiable collectives, debugging."""

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
import torch.distributed.nn.functional as dnn
from torch.distributed.device_mesh import init_device_mesh

from tests.harness import run


class Anything:
    def __init__(self, value):
        self.value = value

    def __eq__(self, other):
        return self.value == other.value


def objects(rank, world_size):
    def make(r):
        return {
            "rank": r,
            "object": Anything("x" * 10_000 * r),
            "tensor": torch.full((3,), r, device="neuron"),
        }

    def same(one, other):
        assert one["rank"] == other["rank"]
        assert one["object"] == other["object"]
        assert torch.equal(one["tensor"].cpu(), other["tensor"].cpu())

    everyone = [None] * world_size
    dist.all_gather_object(everyone, make(rank))
    for r in range(world_size):
        same(everyone[r], make(r))

    gathered = [None] * world_size if rank == 1 else None
    dist.gather_object(make(rank), gathered, dst=1)
    for r in range(world_size if rank == 1 else 0):
        same(gathered[r], make(r))

    listed = [make(5), "two"] if rank == 0 else [None, None]
    dist.broadcast_object_list(listed, src=0)
    same(listed[0], make(5))
    assert listed[1] == "two"

    received = [None]
    dist.scatter_object_list(received, [make(r) for r in range(world_size)] if rank == 0 else None, src=0)
    same(received[0], make(rank))

    if rank == 0:
        dist.send_object_list([make(9)], dst=1)
    elif rank == 1:
        received = [None]
        dist.recv_object_list(received, src=0)
        same(received[0], make(9))


def test_objects():
    run(3, objects)


def functional_calls(x, group, world_size):
    """Every functional collective in one expression, so that eager and compiled runs can be compared."""
    summed = funcol.all_reduce(x, "sum", group)
    mean = funcol.all_reduce(x, "avg", group)
    gathered = funcol.all_gather_tensor(x, 0, group)
    columns = funcol.all_gather_tensor(x, 1, group)
    scattered = funcol.reduce_scatter_tensor(gathered, "sum", 0, group)
    exchanged = funcol.all_to_all_single(gathered, None, None, group)
    broadcast = funcol.broadcast(x, 1, group)
    together = funcol.all_reduce_coalesced([x, x + 1], "max", group)
    all_gathered = funcol.all_gather_into_tensor_coalesced([x, x * 2], group)
    all_scattered = funcol.reduce_scatter_tensor_coalesced([gathered, gathered * 2], "sum", [0, 0], group)
    permuted = funcol.permute_tensor(x[:, 0], [(r + 1) % world_size for r in range(world_size)], group)
    results = [summed, mean, gathered, columns, scattered, exchanged, broadcast, permuted]
    return [t + 0 for t in (*results, *together, *all_gathered, *all_scattered)]


def expected_calls(rank, world_size):
    xs = [tensor_of(r) for r in range(world_size)]
    x, total = xs[rank], sum(xs)
    gathered = torch.cat(xs)
    return [
        total, total / world_size, gathered, torch.cat(xs, 1), world_size * x, torch.cat([x] * world_size),
        xs[1], xs[rank - 1][:, 0], torch.stack(xs).amax(0), torch.stack(xs).amax(0) + 1, gathered, 2 * gathered,
        world_size * x, 2 * world_size * x,
    ]  # fmt: skip


def tensor_of(rank):
    return torch.randn(4, 6, generator=torch.Generator().manual_seed(rank))


def functional(rank, world_size, backend):
    group = dist.group.WORLD
    calls = functional_calls
    if backend:
        calls = torch.compile(calls, backend=backend, fullgraph=True)
    results = calls(tensor_of(rank).to("neuron"), group, world_size)
    for index, (actual, expected) in enumerate(zip(results, expected_calls(rank, world_size), strict=True)):
        torch.testing.assert_close(actual.cpu(), expected, msg=f"result {index}: {{}}".format)


@pytest.mark.parametrize("backend", [None, pytest.param("aot_eager", marks=pytest.mark.full)])
def test_functional_collectives(backend):
    run(2, functional, backend, timeout=110)


def functional_gradients(rank, world_size):
    x = tensor_of(rank).to("neuron").requires_grad_()
    weight = torch.arange(1, 5.0, device="neuron")[:, None] * (rank + 1)
    ranks = sum(range(1, world_size + 1))
    (funcol.all_gather_tensor_autograd(x, 0, dist.group.WORLD) * (rank + 1)).sum().backward()
    torch.testing.assert_close(x.grad.cpu(), torch.full((4, 6), float(ranks)))
    x.grad = None
    (funcol.reduce_scatter_tensor_autograd(x, "sum", 0, dist.group.WORLD) * (rank + 1)).sum().backward()
    expected = torch.arange(1, world_size + 1.0).repeat_interleave(4 // world_size)[:, None].expand(4, 6)
    torch.testing.assert_close(x.grad.cpu(), expected)
    x.grad = None
    (funcol.all_to_all_single_autograd(x, None, None, dist.group.WORLD) * weight).sum().backward()
    assert x.grad.shape == x.shape


def test_functional_gradients():
    run(2, functional_gradients)


def differentiable(rank, world_size):
    """Gradients of torch.distributed.nn against those of the same expression in one process."""
    leaves = [tensor_of(r).requires_grad_() for r in range(world_size)]
    weights = [torch.randn(4, 6, generator=torch.Generator().manual_seed(50 + r)) for r in range(world_size)]
    x, w = tensor_of(rank).to("neuron").requires_grad_(), weights[rank].to("neuron")

    def check(name, mine, losses):
        x.grad = None
        mine.backward()
        expected = torch.autograd.grad(sum(losses), leaves[rank], allow_unused=True)[0]
        expected = torch.zeros_like(x, device="cpu") if expected is None else expected
        torch.testing.assert_close(x.grad.cpu(), expected, msg=f"{name}: {{}}".format)

    everyone = range(world_size)
    total = sum(leaves)
    check("all_reduce", (dnn.all_reduce(x * 1) * w).sum(), [(total * weights[r]).sum() for r in everyone])
    check(
        "broadcast", (dnn.broadcast(x * 1, 1) * w).sum(), [(leaves[1] * weights[r]).sum() for r in everyone]
    )
    check(
        "all_gather",
        sum((part * w * (i + 1)).sum() for i, part in enumerate(dnn.all_gather(x * 1))),
        [(leaves[i] * weights[r] * (i + 1)).sum() for r in everyone for i in everyone],
    )
    reduced = dnn.reduce(x * 1, 0)
    check("reduce", (reduced * w).sum() * (rank == 0), [(total * weights[0]).sum()])
    parts = dnn.all_to_all([torch.empty_like(x) for _ in everyone], [x * (i + 1) for i in everyone])
    check(
        "all_to_all",
        sum((part * w).sum() for part in parts),
        [(leaves[i] * (r + 1) * weights[r]).sum() for r in everyone for i in everyone],
    )
    single = dnn.all_to_all_single(torch.empty_like(x), x * 1)
    rows = 4 // world_size
    check(
        "all_to_all_single",
        (single * w).sum(),
        [
            (leaves[i][r * rows : (r + 1) * rows] * weights[r][i * rows : (i + 1) * rows]).sum()
            for r in everyone
            for i in everyone
        ],
    )
    scattered = dnn.reduce_scatter(torch.empty_like(x), [x * (i + 1) for i in everyone])
    check("reduce_scatter", (scattered * w).sum(), [(total * (r + 1) * weights[r]).sum() for r in everyone])
    gathered = dnn.gather(x * 1, 0)
    loss = sum((part * w * (i + 1)).sum() for i, part in enumerate(gathered)) * (rank == 0)
    check("gather", loss, [(leaves[i] * weights[0] * (i + 1)).sum() for i in everyone])
    scatter = dnn.scatter([x * (i + 1) for i in everyone], 0)
    check("scatter", (scatter * w).sum(), [(leaves[0] * (r + 1) * weights[r]).sum() for r in everyone])
    with pytest.raises(RuntimeError, match="Backend not supported!"):  # torch's own list of names
        dnn._all_gather_base(torch.empty(4 * world_size, 6, device="neuron"), x * 1).sum().backward()


def test_differentiable_collectives():
    run(2, differentiable)


def fake_group(rank, world_size):
    """torch's backend without peers serves tensors and meshes on the device."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=64)
    dist.all_reduce(torch.ones(3, device="neuron"))
    mesh = init_device_mesh("neuron", (8, 8), mesh_dim_names=("dp", "tp"))
    sharded = torch.distributed.tensor.zeros(
        64, 8, device_mesh=mesh, placements=[torch.distributed.tensor.Shard(0)] * 2
    )
    assert sharded.to_local().shape == (1, 8)
    assert sharded.to_local().device.type == "neuron"
    assert (sharded + 1).full_tensor().shape == (64, 8)


def test_fake_process_group():
    run(1, fake_group, backend=None)


def profiled(rank, world_size):
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]) as profiler:
        work = dist.all_reduce(torch.ones(1000, device="neuron"), async_op=True)
        work.wait()
        dist.all_gather_into_tensor(torch.empty(8, device="neuron"), torch.ones(4, device="neuron"))
        torch.ones(3, device="neuron").add_(1)
    return [event.key for event in profiler.key_averages()]


def test_profiler_names_the_collectives():
    for events in run(2, profiled):
        assert {"neuron:all_reduce", "neuron:_all_gather_base", "aten::add_"} <= set(events)


def debug_detail(rank, world_size):
    dist.set_debug_level(dist.DebugLevel.DETAIL)
    dist.init_process_group("neuron")
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4).to("neuron"))
    model(torch.ones(2, 4, device="neuron")).sum().backward()
    dist.new_group([0])
    if rank == 0:
        with pytest.raises(RuntimeError, match=r"(?s)Detected mismatch between collectives on ranks"):
            dist.all_reduce(torch.ones(3, device="neuron"))
    else:
        with pytest.raises(RuntimeError, match=r"(?s)Detected mismatch between collectives on ranks"):
            dist.all_reduce(torch.ones(4, device="neuron"))


def test_debug_detail():
    run(2, debug_detail, backend=None, env={"TORCH_DISTRIBUTED_DEBUG": "DETAIL"})
