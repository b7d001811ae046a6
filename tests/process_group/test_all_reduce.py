import functools
import operator

import pytest
import torch
import torch.distributed as dist

from tests.harness import run
from tests.process_group.values import (
    ALL_DTYPES,
    COMPLEX,
    FLOAT8S,
    FLOATS,
    SIGNED,
    SIZES,
    UNSIGNED,
    bits,
    values,
    wide,
)

DEVICES = ("neuron", "cpu")
EXACT = {"NEURON_SIM_REDUCTION": "exact"}


def reduced_in_rank_order(inputs: list[torch.Tensor], combine) -> torch.Tensor:
    return functools.reduce(combine, [wide(each) for each in inputs]).to(inputs[0].dtype)


def sum_of_every_dtype(rank, world_size, device):
    results = []
    for dtype in ALL_DTYPES:
        for count in SIZES:
            tensor = values(rank, count, dtype).to(device)
            dist.all_reduce(tensor)
            combine = torch.logical_or if dtype == torch.bool else operator.add
            expected = reduced_in_rank_order([values(r, count, dtype) for r in range(world_size)], combine)
            assert bits(tensor) == bits(expected), (dtype, count, tensor, expected)
            results.append(bits(tensor))
    return results


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("nproc", [1, 2, 3, 4])
def test_sum_is_exact_in_rank_order_and_rounds_once(nproc, device):
    results = run(nproc, sum_of_every_dtype, device, env=EXACT)
    assert all(result == results[0] for result in results), "all ranks must get identical bits"


def every_reduction(rank, world_size):
    everyone = range(world_size)
    for dtype in (*FLOATS, *FLOAT8S, *SIGNED, *UNSIGNED):
        for count in (1, 1000, 70001):
            inputs = [values(r, count, dtype) for r in everyone]
            combines = {dist.ReduceOp.PRODUCT: operator.mul, dist.ReduceOp.MIN: torch.minimum}
            combines[dist.ReduceOp.MAX] = torch.maximum
            if not dtype.is_floating_point:
                combines[dist.ReduceOp.BAND] = operator.and_
                combines[dist.ReduceOp.BOR] = operator.or_
                combines[dist.ReduceOp.BXOR] = operator.xor
            for op, combine in combines.items():
                tensor = inputs[rank].neuron()
                dist.all_reduce(tensor, op)
                expected = reduced_in_rank_order(inputs, combine)
                assert bits(tensor) == bits(expected), (dtype, op, count)
            if dtype.is_floating_point:
                tensor = inputs[rank].neuron()
                dist.all_reduce(tensor, dist.ReduceOp.AVG)
                total = functools.reduce(operator.add, [wide(each) for each in inputs])
                assert bits(tensor) == bits((total / world_size).to(dtype)), (dtype, "AVG", count)
    for dtype in COMPLEX:
        inputs = [values(r, 300, dtype) for r in everyone]
        tensor = inputs[rank].neuron()
        dist.all_reduce(tensor)
        torch.testing.assert_close(tensor.cpu(), sum(inputs))


@pytest.mark.parametrize("nproc", [2, 3])
def test_every_reduction_of_every_dtype(nproc):
    run(nproc, every_reduction, env=EXACT)


def premultiplied(rank, world_size):
    inputs = [values(r, 5000, torch.float32) for r in range(world_size)]
    for factor in (0.25, torch.tensor(3.0)):
        tensor = inputs[rank].neuron()
        dist.all_reduce(tensor, dist._make_nccl_premul_sum(factor))
        torch.testing.assert_close(tensor.cpu(), sum(each * factor for each in inputs))


def test_premul_sum():
    run(2, premultiplied)


def any_layout(rank, world_size):
    def whole(r):
        return torch.arange(2 * 3 * 40 * 50, dtype=torch.float32).view(2, 3, 40, 50) * (r + 1)

    total = sum(range(1, world_size + 1))
    views = {
        "transposed": lambda t: t.transpose(1, 3),
        "channels_last": lambda t: t,
        "offset": lambda t: t[1, 1:, 3:],
        "strided": lambda t: t[..., ::2],
        "expanded to a scalar": lambda t: t[0, 0, 0, 1],
    }
    for name, view in views.items():
        tensor = whole(rank).neuron()
        if name == "channels_last":
            tensor = tensor.to(memory_format=torch.channels_last)
        before = tensor.cpu()
        dist.all_reduce(view(tensor))
        expected = before.clone()
        view(expected).copy_(view(whole(0)) * total)
        torch.testing.assert_close(tensor.cpu(), expected, rtol=0, atol=0, msg=name)


def test_layouts_and_views():
    run(2, any_layout)


def nan_wins(rank, world_size):
    tensor = torch.tensor([float("nan") if rank == 0 else 1.0, 2.0, float("nan")], device="neuron")
    for op in (dist.ReduceOp.MIN, dist.ReduceOp.MAX, dist.ReduceOp.SUM):
        result = tensor.clone()
        dist.all_reduce(result, op)
        assert result.isnan().tolist() == [True, False, True]


def test_nan_is_not_lost():
    run(2, nan_wins)


def no_gradient_is_recorded(rank, world_size):
    leaf = torch.ones(50_000, device="neuron", requires_grad=True)
    version = leaf._version
    dist.all_reduce(leaf.detach())
    (leaf * 2).sum().backward()
    dist.all_reduce(leaf.grad)
    assert leaf._version == version
    assert leaf.grad.unique().tolist() == [2.0 * world_size]


def test_leaves_autograd_alone():
    run(2, no_gradient_is_recorded)
