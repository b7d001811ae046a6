"""reduce and reduce_scatter, with what all_reduce shares with them tested there."""

import pytest
import torch
import torch.distributed as dist

from tests.harness import run
from tests.process_group.values import SIZES, bits, values

EVERY = [2, 3, 4]


def sum_of(count, dtype, ranks):
    return sum(values(r, count, dtype).double() for r in ranks).to(dtype)


def reduces(rank, world_size, device):
    for count in SIZES:
        for root in {0, world_size - 1}:
            mine = values(rank, count, torch.float32)
            tensor = mine.to(device)
            dist.reduce(tensor, root)
            if rank == root:
                torch.testing.assert_close(tensor.cpu(), sum_of(count, torch.float32, range(world_size)))
            else:
                assert bits(tensor) == bits(mine), "only the root's tensor may change"


@pytest.mark.parametrize("device", ["neuron", "cpu"])
@pytest.mark.parametrize("nproc", EVERY)
def test_reduce(nproc, device):
    run(nproc, reduces, device)


def reduce_scatters(rank, world_size, device):
    everyone = range(world_size)
    for count in SIZES:
        for op, scale in ((dist.ReduceOp.SUM, 1), (dist.ReduceOp.AVG, world_size)):
            inputs = [values(10 * rank + r, count, torch.float32).to(device) for r in everyone]
            expected = sum(values(10 * r + rank, count, torch.float32) for r in everyone) / scale
            listed = torch.empty(count, device=device)
            dist.reduce_scatter(listed, inputs, op)
            torch.testing.assert_close(listed.cpu(), expected)
            flat = torch.empty(count, device=device)
            dist.reduce_scatter_tensor(flat, torch.cat(inputs), op)
            assert bits(flat) == bits(listed)


@pytest.mark.parametrize("device", ["neuron", "cpu"])
@pytest.mark.parametrize("nproc", EVERY)
def test_reduce_scatter(nproc, device):
    run(nproc, reduce_scatters, device)


def uneven_reduce_scatter(rank, world_size):
    for scale in (1, 20_000):
        inputs = [values(10 * rank + r, scale * r, torch.float32).neuron() for r in range(world_size)]
        output = torch.empty(scale * rank, device="neuron")
        dist.reduce_scatter(output, inputs)
        expected = sum(values(10 * r + rank, scale * rank, torch.float32) for r in range(world_size))
        torch.testing.assert_close(output.cpu(), expected)


def test_reduce_scatter_of_uneven_sizes():
    run(3, uneven_reduce_scatter)


def in_place_reduce_scatter(rank, world_size):
    flat = torch.cat([values(10 * rank + r, 9000, torch.float32) for r in range(world_size)]).neuron()
    output = flat.view(world_size, -1)[rank]
    dist.reduce_scatter_tensor(output, flat)
    expected = sum(values(10 * r + rank, 9000, torch.float32) for r in range(world_size))
    torch.testing.assert_close(output.cpu(), expected)


def test_reduce_scatter_in_place():
    run(3, in_place_reduce_scatter)
