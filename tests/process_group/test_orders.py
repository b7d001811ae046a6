"""The native executor sums in the order of the schedule: bit for bit what a walk along the hops gives."""

import contextlib
import functools

import pytest
import torch
import torch.distributed as dist
from neuron_dist.collectives import Unsupported, algorithm_names, build
from neuron_dist.topology import Group, load

from neuron_dist import _C
from neuron_dist.planner import native_orders
from neuron_dist.stepwise import walk_locally, walk_processes
from tests.harness import run
from tests.process_group.values import bits

SUMS = {dist.ReduceOp.SUM: torch.add, dist.ReduceOp.PRODUCT: torch.mul, dist.ReduceOp.MAX: torch.maximum}
DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.int32, torch.float64)


def inputs_of(ranks, count, dtype):
    """Values whose sums round, so that another order gives other bits."""
    generator = torch.Generator().manual_seed(ranks * 1000 + count)
    wide = [torch.randn(count, generator=generator) * 10 ** (r % 5) for r in range(ranks)]
    return [values.to(dtype) for values in wide]


@functools.cache
def schedule_of(op, algorithm, topology, cores):
    schedule = build(op, algorithm, Group(load(topology), cores))
    return schedule, native_orders(schedule)


def native(op, reduce_op, schedule, orders, inputs):
    """What every rank has to show in the end, by the native executor."""
    ranks = len(inputs)
    if op == "all_reduce":
        outputs = [torch.empty_like(each) for each in inputs]
        _C.execute_locally(
            _C.Op.all_reduce, reduce_op, -1, [[i] for i in inputs], [[o] for o in outputs], orders
        )
    else:
        parts = [list(each.view(ranks, -1)) for each in inputs]
        outputs = [torch.empty_like(parts[0][0]) for _ in inputs]
        _C.execute_locally(_C.Op.reduce_scatter, reduce_op, -1, parts, [[o] for o in outputs], orders)
    return outputs


def walked(op, reduce_op, schedule, inputs):
    spaces = [each.clone() for each in inputs]
    walk_locally(schedule, spaces, SUMS[reduce_op])
    if op == "all_reduce":
        return spaces
    return [space.view(len(inputs), -1)[rank] for rank, space in enumerate(spaces)]


def check(op, algorithm, topology, cores, counts, dtypes, reduce_ops):
    schedule, orders = schedule_of(op, algorithm, topology, cores)
    ranks = len(cores)
    for count in counts:
        for dtype in dtypes:
            for reduce_op in reduce_ops:
                inputs = inputs_of(ranks, count * (ranks if op == "reduce_scatter" else 1), dtype)
                results = native(op, reduce_op, schedule, orders, inputs)
                expected = walked(op, reduce_op, schedule, inputs)
                for rank in range(ranks):
                    assert bits(results[rank]) == bits(expected[rank]), (count, dtype, reduce_op, rank)


GROUPS = [
    ("trn2.48xlarge", tuple(range(4))),  # a chip
    ("trn2.48xlarge", (0, 4, 8, 12)),  # a row
    ("trn1.32xlarge", tuple(range(8))),
    ("trn2.48xlarge", tuple(range(16))),
    ("trn2.48xlarge", (3, 1, 2)),
    ("ring:5", tuple(range(5))),
    ("trn2.48xlarge*2", (0, 1, 2, 3, 64, 65, 66, 67)),
]


ALL_REDUCE_ONLY = {"mesh1", "tree", "chains"}
SERVED = [("all_reduce", name) for name in algorithm_names()]
SERVED += [("reduce_scatter", name) for name in algorithm_names() if name not in ALL_REDUCE_ONLY]


@pytest.mark.parametrize(("op", "algorithm"), SERVED)
def test_native_executor_equals_the_walk(op, algorithm):
    served = 0
    for topology, cores in GROUPS:
        with contextlib.suppress(Unsupported):
            check(op, algorithm, topology, cores, (0, 1, 5, 333), DTYPES, SUMS)
            served += 1
    assert served, "the groups above must give every algorithm one that it can serve"


@pytest.mark.full
@pytest.mark.parametrize("algorithm", algorithm_names())
def test_all_64_cores(algorithm):
    cores = tuple(range(64))
    check("all_reduce", algorithm, "trn2.48xlarge", cores, (1, 777), (torch.bfloat16,), (dist.ReduceOp.SUM,))


def in_processes(rank, world_size, topology, algorithms, counts):
    for algorithm in algorithms:
        options = _C.ProcessGroupNeuron.Options(topology=topology, algorithm=algorithm, reduction="schedule")
        group = dist.new_group(pg_options=options)
        try:
            schedule, _ = schedule_of("all_reduce", algorithm, topology, tuple(range(world_size)))
        except Unsupported:
            continue
        for count in counts:
            for dtype in (torch.bfloat16, torch.float32):
                mine = inputs_of(world_size, count, dtype)[rank]
                expected = mine.clone()
                walk_processes(schedule, rank, expected, torch.add)
                result = mine.neuron()
                dist.all_reduce(result, group=group)
                assert bits(result) == bits(expected), (algorithm, count, dtype)


@pytest.mark.parametrize("nproc", [2, 3, 4])
def test_a_job_sums_as_its_schedule_says(nproc):
    run(
        nproc, in_processes, "trn2.48xlarge", ["ring", "mesh", "rdh", "kangaring", "swing"], (1, 1001, 30_001)
    )


@pytest.mark.full
@pytest.mark.parametrize("nproc", [8, 16])
def test_a_large_job_sums_as_its_schedule_says(nproc):
    run(nproc, in_processes, "trn2.48xlarge", algorithm_names(), (1, 10_007, 100_003), timeout=300)
