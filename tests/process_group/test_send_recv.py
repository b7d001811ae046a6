import pytest
import torch
import torch.distributed as dist

from tests.harness import run
from tests.process_group.values import ALL_DTYPES, SIZES, bits, values


def ring(rank, world_size, device):
    right, left = (rank + 1) % world_size, (rank - 1) % world_size
    for dtype in ALL_DTYPES:
        for count in SIZES:
            received = torch.zeros(count, device=device).to(dtype)
            sending = dist.isend(values(rank, count, dtype).to(device), right)
            dist.recv(received, left)
            sending.wait()
            assert bits(received) == bits(values(left, count, dtype))


@pytest.mark.parametrize("device", ["neuron", "cpu"])
@pytest.mark.parametrize("nproc", [2, 3])
def test_ring(nproc, device):
    run(nproc, ring, device)


def receives_first(rank, world_size):
    count = 5000
    if rank == 0:
        dist.barrier()
        for i in range(10):
            dist.send(torch.full((count,), float(i), device="neuron"), 1)
    else:
        tensors = [torch.empty(count, device="neuron") for _ in range(10)]
        works = [dist.irecv(tensor, 0) for tensor in tensors]
        dist.barrier()
        for i, (work, tensor) in enumerate(zip(works, tensors, strict=True)):
            work.wait()
            assert tensor.unique().tolist() == [i]


def test_messages_keep_their_order_when_receives_wait():
    run(2, receives_first)


def tags_overtake(rank, world_size):
    if rank == 0:
        works = [dist.isend(torch.full((5000,), float(tag), device="neuron"), 1, tag=tag) for tag in range(4)]
        for work in works:
            work.wait()
    else:
        for tag in (3, 1, 0, 2):
            tensor = torch.empty(5000, device="neuron")
            dist.recv(tensor, 0, tag=tag)
            assert tensor[0].item() == tag


def test_tags_choose_among_messages():
    run(2, tags_overtake)


def from_anyone(rank, world_size):
    if rank > 0:
        dist.send(torch.full((2 + 5000 * (rank % 2),), float(rank)), 0, tag=rank % 2)
        return None
    seen = set()
    for tag in (0, 1, 1):
        tensor = torch.empty(2 + 5000 * tag)
        source = dist.recv(tensor, tag=tag)
        assert tensor[0].item() == source
        seen.add(source)
    return seen


def test_receive_from_any_source():
    assert run(4, from_anyone)[0] == {1, 2, 3}


def batch(rank, world_size):
    peer = 1 - rank
    sent = [values(rank, count, torch.float32).neuron() for count in SIZES]
    received = [torch.empty(count, device="neuron") for count in SIZES]
    ops = [dist.P2POp(dist.isend, tensor, peer) for tensor in sent]
    ops += [dist.P2POp(dist.irecv, tensor, peer) for tensor in received]
    works = dist.batch_isend_irecv(ops)
    assert len(works) == 1
    for work in works:
        work.wait()
    for count, tensor in zip(SIZES, received, strict=True):
        assert bits(tensor) == bits(values(peer, count, torch.float32))


def test_batch_isend_irecv():
    run(2, batch)


def strided(rank, world_size):
    if rank == 0:
        dist.send(torch.arange(20_000.0, device="neuron").view(100, 200).t(), 1)
    else:
        target = torch.zeros(100, 400, device="neuron").t()[::2]
        dist.recv(target, 0)
        assert bits(target) == bits(torch.arange(20_000.0).view(100, 200).t())


def test_strided_tensors():
    run(2, strided)
