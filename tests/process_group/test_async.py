import pytest
import torch
import torch.distributed as dist

from tests.harness import run


def many_in_flight(rank, world_size):
    groups = [dist.new_group() for _ in range(3)]
    tensors = [torch.full((1 + 3000 * (i % 5),), float(rank + i), device="neuron") for i in range(60)]
    works = [dist.all_reduce(t, group=groups[i % 3], async_op=True) for i, t in enumerate(tensors)]
    for i in reversed(range(60)):
        works[i].wait()
        assert works[i].is_completed()
        assert works[i].is_success()
        expected = sum(r + i for r in range(world_size))
        assert tensors[i].unique().tolist() == [expected]


def test_many_works_on_several_groups_waited_in_any_order():
    run(4, many_in_flight)


def sync_after_async(rank, world_size):
    tensor = torch.ones(50_000, device="neuron")
    dist.all_reduce(tensor, async_op=True)
    dist.all_reduce(tensor)
    assert tensor.unique().tolist() == [world_size**2]


def test_sync_call_runs_after_what_was_issued_before():
    run(3, sync_after_async)


def futures(rank, world_size):
    tensor = torch.ones(30, device="neuron")
    work = dist.all_reduce(tensor, async_op=True)
    future = work.get_future()
    doubled = future.then(lambda done: done.value()[0] * 2)
    assert doubled.wait().tolist() == [2.0 * world_size] * 30
    assert future.value()[0] is not None
    assert torch.equal(work.result()[0].cpu(), tensor.cpu())
    finished = dist.all_reduce(tensor, async_op=True)
    finished.wait()
    assert finished.get_future().wait()[0].tolist() == [world_size**2] * 30


def test_futures_yield_the_list_of_tensors():
    run(2, futures)


def collectives_in_callbacks(rank, world_size):
    def sum_again(done):
        again = dist.all_reduce(done.value()[0] + rank, async_op=True).get_future().wait()[0]
        dist.all_reduce(again)
        return again

    ranks = sum(range(world_size))
    futures = []
    for size in (
        10,
        40_000,
        7,
        90_000,
    ):  # that differ, so that another order raises
        work = dist.all_reduce(torch.ones(size, device="neuron"), async_op=True)
        futures.append(work.get_future().then(sum_again).then(lambda done: done.value() * 2))
    for future in futures:
        assert future.wait().unique().tolist() == [2.0 * world_size * (world_size**2 + ranks)]


def test_callbacks_may_call_collectives_and_wait_for_them():
    run(4, collectives_in_callbacks, timeout=20)


def coalesced(rank, world_size):
    tensors = [torch.full((size,), 1.0, device="neuron") for size in (3, 50_000, 0)]
    with dist._coalescing_manager(device=torch.device("neuron", rank), async_ops=True) as manager:
        for tensor in tensors:
            dist.all_reduce(tensor)
    assert len(manager.works) == 1
    manager.wait()
    for tensor in tensors:
        assert torch.equal(tensor.cpu(), torch.full(tensor.shape, float(world_size)))

    inputs = [torch.full((size,), float(rank), device="neuron") for size in (2, 30_000)]
    outputs = [torch.empty(world_size * each.numel(), device="neuron") for each in inputs]
    with dist._coalescing_manager():
        for output, each in zip(outputs, inputs, strict=True):
            dist.all_gather_into_tensor(output, each)
    for output, each in zip(outputs, inputs, strict=True):
        assert torch.equal(output.cpu(), torch.arange(world_size).repeat_interleave(each.numel()).float())

    scattered = [torch.empty(each.numel(), device="neuron") for each in inputs]
    with dist._coalescing_manager():
        for output, each in zip(scattered, outputs, strict=True):
            dist.reduce_scatter_tensor(output, each)
    for output in scattered:
        assert output.unique().tolist() == [rank * world_size]

    with dist._coalescing_manager(device=torch.device("neuron", rank)):
        for tensor in tensors:
            dist.broadcast(tensor, 0)
    dist.all_reduce(tensors[0])
    assert tensors[0].unique().tolist() == [world_size**2]


def test_coalescing():
    run(2, coalesced)


def coalescing_survives_an_error(rank, world_size):
    manager = dist._coalescing_manager(device=torch.device("neuron", rank))
    with pytest.raises(TypeError, match="BAND"), manager:
        dist.all_reduce(torch.ones(3, device="neuron"), dist.ReduceOp.BAND)


def test_an_error_inside_coalescing_reaches_the_caller():
    run(2, coalescing_survives_an_error)
