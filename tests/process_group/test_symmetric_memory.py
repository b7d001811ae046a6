"""torch.distributed._symmetric_memory over HBM that all ranks map."""

import os
import signal

import pytest
import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symmetric_memory

from tests.harness import RanksFailed, run

ops = torch.ops.symm_mem


def values(rank, dtype=torch.float32):
    generator = torch.Generator().manual_seed(rank)
    return torch.randint(-50, 50, (3, 7), generator=generator).to(dtype)


def symmetric(rank, dtype=torch.float32):
    tensor = symmetric_memory.empty(3, 7, dtype=dtype, device="neuron")
    return tensor.copy_(values(rank, dtype))


def buffers_and_signals(rank, world_size):
    tensor = symmetric(rank)
    assert symmetric_memory.is_symm_mem_tensor(tensor)
    assert symmetric_memory.get_backend("neuron") == "NEURON"
    assert not symmetric_memory.is_symm_mem_tensor(torch.ones(3, device="neuron"))
    assert symmetric_memory.rendezvous(torch.ones(3, device="neuron"), dist.group.WORLD) is None
    memory = symmetric_memory.rendezvous(tensor, dist.group.WORLD)
    assert (memory.rank, memory.world_size, memory.buffer_size) == (rank, world_size, 84)

    memory.barrier()
    for peer in range(world_size):
        buffer = memory.get_buffer(peer, (3, 7), torch.float32)
        assert buffer.device == tensor.device
        assert torch.equal(buffer.cpu(), values(peer))
        assert memory.get_buffer(peer, (7,), torch.float32, 7).tolist() == values(peer)[1].tolist()
        assert torch.equal(ops.get_remote_tensors(tensor, dist.group.WORLD.group_name)[peer], buffer)
    memory.barrier(channel=1)

    after, before = (rank + 1) % world_size, (rank - 1) % world_size
    for turn in range(20):  # each tells the next, who may read only then
        memory.get_buffer(after, (3, 7), torch.float32).fill_(turn * 10 + rank)
        memory.put_signal(after, channel=2)
        memory.wait_signal(before, channel=2)
        assert (tensor == turn * 10 + before).all()
        memory.put_signal(before, channel=3)  # it may write again
        memory.wait_signal(after, channel=3)
    memory.barrier()
    assert not memory.get_signal_pad(rank, (world_size * 4,)).view(torch.int32).any()  # all were taken

    with pytest.raises(IndexError, match="channel 100000 lies outside a signal pad"):
        memory.barrier(channel=100_000)
    with pytest.raises(IndexError, match="ranks 0 to"):
        memory.put_signal(world_size, 0)
    dist.barrier()


@pytest.mark.parametrize("nproc", [2, 4])
def test_buffers_and_signals(nproc):
    run(nproc, buffers_and_signals)


def all_reduces(rank, world_size):
    group = dist.group.WORLD.group_name
    for dtype in (torch.float32, torch.bfloat16, torch.int64):
        total = sum(values(r, torch.float64) for r in range(world_size)).to(dtype)
        tensor = symmetric(rank, dtype)
        assert torch.equal(ops.one_shot_all_reduce(tensor, "sum", group).cpu(), total)
        assert torch.equal(tensor.cpu(), values(rank, dtype))  # the input stays
        out = torch.empty_like(tensor)
        ops.one_shot_all_reduce_out(tensor[1:], "sum", group, out[1:])  # part of what was allocated
        assert torch.equal(out[1:].cpu(), total[1:])
        copied = values(rank, dtype).to("neuron")
        assert torch.equal(ops.one_shot_all_reduce_copy(tensor, copied, "sum", group).cpu(), total)
        ops.two_shot_all_reduce_(tensor, "sum", group)
        assert torch.equal(tensor.cpu(), total)

    square = symmetric_memory.empty(world_size, 6, device="neuron").fill_(rank + 1)
    mine = torch.empty(1, 6, device="neuron")
    ops.reduce_scatter_out(square, group, False, mine)
    assert mine.tolist() == [[world_size * (world_size + 1) / 2] * 6]

    ordinary = torch.ones(3, device="neuron")
    with pytest.raises(ValueError, match="must be allocated by torch"):
        ops.one_shot_all_reduce(ordinary, "sum", group)
    with pytest.raises(ValueError, match='reduce_op must be "sum", not "max"'):
        ops.two_shot_all_reduce_(square, "max", group)


@pytest.mark.parametrize("nproc", [2, 4])
def test_one_shot_and_two_shot_all_reduce(nproc):
    run(nproc, all_reduces)


def with_matrix_products(rank, world_size):
    group = dist.group.WORLD.group_name
    rows = [torch.randn(4, 6, generator=torch.Generator().manual_seed(r)) for r in range(world_size)]
    weight = torch.randn(6, 5, generator=torch.Generator().manual_seed(99))
    mine = rows[rank].to("neuron")
    gathered, (product,) = ops.fused_all_gather_matmul(mine, [weight.to("neuron")], 0, group)
    torch.testing.assert_close(gathered.cpu(), torch.cat(rows))
    torch.testing.assert_close(product.cpu(), torch.cat(rows) @ weight)
    scattered = ops.fused_matmul_reduce_scatter(mine, weight.to("neuron"), "sum", 0, group)
    total = sum(row @ weight for row in rows)
    torch.testing.assert_close(scattered.cpu(), total.chunk(world_size)[rank], rtol=1e-4, atol=1e-5)
    assert torch.equal(ops._low_contention_all_gather(mine, group).cpu(), torch.cat(rows))
    mean = ops._low_contention_reduce_scatter(mine, "avg", group).cpu()
    torch.testing.assert_close(mean, (sum(rows) / world_size).chunk(world_size)[rank])


def test_fused_with_matrix_products():
    run(2, with_matrix_products)


def in_sub_groups(rank, world_size):
    halves = [dist.new_group(ranks) for ranks in ([0, 1], [2, 3])]
    mine = halves[rank // 2]
    for _ in range(3):  # memory is used again; each allocation is its own meeting
        tensor = symmetric(rank)
        for group, size in ((mine, 2), (dist.group.WORLD, 4)):
            memory = symmetric_memory.rendezvous(tensor, group)
            assert memory is not None
            assert memory.world_size == size
            total = ops.one_shot_all_reduce(tensor, "sum", group.group_name)
            members = dist.get_process_group_ranks(group)
            assert torch.equal(total.cpu(), sum(values(r) for r in members))
        del tensor, memory


def test_sub_groups():
    run(4, in_sub_groups)


def other_sizes(rank, world_size):
    tensor = symmetric_memory.empty(4 + rank, device="neuron")
    with pytest.raises(dist.DistBackendError, match=r"must be the same on all ranks: rank [01] has"):
        symmetric_memory.rendezvous(tensor, dist.group.WORLD)


def test_sizes_that_differ():
    run(2, other_sizes)


def late(rank, world_size):
    memory = symmetric_memory.rendezvous(symmetric(rank), dist.group.WORLD)
    with pytest.raises(
        dist.DistBackendError, match=f"timed out after 200 ms waiting for a signal of rank {1 - rank}"
    ):
        memory.wait_signal(1 - rank, 0, timeout_ms=200)
    dist.barrier()


def test_a_signal_that_does_not_come():
    run(2, late)


def dying(rank, world_size):
    memory = symmetric_memory.rendezvous(symmetric(rank), dist.group.WORLD)
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    memory.wait_signal(1, 0)


def test_a_peer_that_dies():
    with pytest.raises(RanksFailed) as failed:
        run(2, dying)
    assert "waited for a signal of rank 1, whose process" in failed.value.errors[0]
