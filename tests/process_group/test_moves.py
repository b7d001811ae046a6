"""Collectives that move data without reducing it: broadcast, gathers, scatter, all-to-all."""

import pytest
import torch
import torch.distributed as dist

from tests.harness import run
from tests.process_group.values import ALL_DTYPES, SIZES, bits, values

EVERY = [2, 3, 4]


def same(tensor, expected):
    assert bits(tensor) == bits(expected)


def empty(count, dtype, device):
    return torch.zeros(count, device=device).to(dtype)


def broadcasts(rank, world_size, device):
    for dtype in ALL_DTYPES:
        for count in SIZES:
            for root in {0, world_size - 1}:
                tensor = values(rank, count, dtype).to(device)
                dist.broadcast(tensor, root)
                same(tensor, values(root, count, dtype))


@pytest.mark.parametrize("device", ["neuron", "cpu"])
@pytest.mark.parametrize("nproc", EVERY)
def test_broadcast(nproc, device):
    run(nproc, broadcasts, device)


def all_gathers(rank, world_size, device):
    for dtype in (torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64, torch.float8_e5m2):
        for count in SIZES:
            mine = values(rank, count, dtype).to(device)
            listed = [empty(count, dtype, device) for _ in range(world_size)]
            dist.all_gather(listed, mine)
            flat = empty(count * world_size, dtype, device)
            dist.all_gather_into_tensor(flat, mine)
            for r, (from_list, from_flat) in enumerate(zip(listed, flat.view(world_size, -1), strict=True)):
                same(from_list, values(r, count, dtype))
                same(from_flat, values(r, count, dtype))


@pytest.mark.parametrize("device", ["neuron", "cpu"])
@pytest.mark.parametrize("nproc", EVERY)
def test_all_gather(nproc, device):
    run(nproc, all_gathers, device)


def uneven_all_gather(rank, world_size, device):
    for scale in (1, 30_000):
        outputs = [torch.empty(scale * r, device=device) for r in range(world_size)]
        dist.all_gather(outputs, values(rank, scale * rank, torch.float32).to(device))
        for r, output in enumerate(outputs):
            same(output, values(r, scale * r, torch.float32))


@pytest.mark.parametrize("device", ["neuron", "cpu"])
def test_all_gather_of_uneven_sizes(device):
    run(3, uneven_all_gather, device)


def in_place_all_gather(rank, world_size):
    flat = torch.zeros(world_size * 20_000, device="neuron")
    mine = flat.view(world_size, -1)[rank]
    mine.copy_(values(rank, 20_000, torch.float32))
    dist.all_gather_into_tensor(flat, mine)
    same(flat, torch.cat([values(r, 20_000, torch.float32) for r in range(world_size)]))


def test_all_gather_in_place():
    run(3, in_place_all_gather)


def gathers_and_scatters(rank, world_size, device):
    for dtype in (torch.float32, torch.int16, torch.bool):
        for count in SIZES:
            root = count % world_size
            received = [empty(count, dtype, device) for _ in range(world_size)] if rank == root else None
            dist.gather(values(rank, count, dtype).to(device), received, dst=root)
            for r, tensor in enumerate(received or []):
                same(tensor, values(r, count, dtype))
            given = [values(r, count, dtype).to(device) for r in range(world_size)] if rank == root else None
            output = empty(count, dtype, device)
            dist.scatter(output, given, src=root)
            same(output, values(rank, count, dtype))


@pytest.mark.parametrize("device", ["neuron", "cpu"])
@pytest.mark.parametrize("nproc", EVERY)
def test_gather_and_scatter(nproc, device):
    run(nproc, gathers_and_scatters, device)


def all_to_alls(rank, world_size, device):
    for count in SIZES:
        inputs = [values(10 * rank + r, count, torch.float32).to(device) for r in range(world_size)]
        outputs = [torch.empty(count, device=device) for _ in range(world_size)]
        dist.all_to_all(outputs, inputs)
        flat = torch.empty(world_size * count, device=device)
        dist.all_to_all_single(flat, torch.cat(inputs))
        for r in range(world_size):
            same(outputs[r], values(10 * r + rank, count, torch.float32))
        same(flat, torch.cat([values(10 * r + rank, count, torch.float32) for r in range(world_size)]))


@pytest.mark.parametrize("device", ["neuron", "cpu"])
@pytest.mark.parametrize("nproc", EVERY)
def test_all_to_all(nproc, device):
    run(nproc, all_to_alls, device)


def uneven_all_to_all(rank, world_size, device):
    def rows(source, target):  # some are none; rank 0 gives everyone one row, so that it alone looks even
        return 1 if 0 in (source, target) else 700 * source * target - 700

    for width in (1, 5):
        give = [rows(rank, r) for r in range(world_size)]
        take = [rows(r, rank) for r in range(world_size)]
        data = [
            values(10 * rank + r, give[r] * width, torch.float32).view(-1, width) for r in range(world_size)
        ]
        output = torch.empty(sum(take), width, device=device)
        dist.all_to_all_single(output, torch.cat(data).to(device), take, give)
        expected = [
            values(10 * r + rank, take[r] * width, torch.float32).view(-1, width) for r in range(world_size)
        ]
        same(output, torch.cat(expected))


@pytest.mark.parametrize("device", ["neuron", "cpu"])
@pytest.mark.parametrize("nproc", EVERY)
def test_all_to_all_of_uneven_splits(nproc, device):
    run(nproc, uneven_all_to_all, device)


def objects(rank, world_size):
    everyone = [None] * world_size
    dist.all_gather_object(everyone, {"rank": rank, "text": "x" * 10 ** (rank + 1)})
    assert [each["rank"] for each in everyone] == list(range(world_size))
    shared = [["from", rank]]
    dist.broadcast_object_list(shared, src=1)
    assert shared == [["from", 1]]
    mine = [None]
    dist.scatter_object_list(mine, [f"for {r}" for r in range(world_size)] if rank == 0 else None, src=0)
    assert mine == [f"for {rank}"]


def test_objects():
    run(3, objects)
