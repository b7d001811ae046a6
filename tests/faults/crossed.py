"""Ranks that call the collectives of two groups in different orders, and so wait for each other."""

import threading
from datetime import timedelta

import torch.distributed as dist

from tests.faults.judge import neuron, wrong

HERE = r"crossed\.py:\d+ in "


@wrong(
    rf"cannot start: ranks wait for each other in a circle\..*"
    rf"rank \d waits for rank \d in all_reduce\(SUM, Float\[3\]\) #1 of group '[12]' \(ranks 0, 1\)"
    rf" at \S*{HERE}two_groups\n"
    rf".*rank \d waits for rank \d in all_reduce\(SUM, Float\[3\]\) #1 of group '[12]'",
    quick=True,
)
def two_groups(rank, size):
    groups = [dist.new_group(), dist.new_group()]
    for group in groups if rank == 0 else reversed(groups):
        dist.all_reduce(neuron(3), group=group)


@wrong(
    r"in a circle(?=.*rank 0 waits for rank 1)(?=.*rank 1 waits for rank 2)(?=.*rank 2 waits for rank 0)",
    ranks=3,
)
def three_groups(rank, size):
    groups = [dist.new_group([i, (i + 1) % 3]) for i in range(3)]
    for group in (groups[rank], groups[rank - 1]):
        dist.broadcast(neuron(3), group=group, group_src=0)


@wrong(r"in a circle.*rank \d waits for rank \d in all_reduce")
def async_but_waited_for(rank, size):
    groups = [dist.new_group(), dist.new_group()]
    for group in groups if rank == 0 else reversed(groups):
        dist.all_reduce(neuron(3), group=group, async_op=True).wait()


@wrong(r"in a circle.*waits for rank \d in (barrier|all_reduce)|rank [02] \(pid \d+\) (has|exited)", ranks=4)
def world_against_subgroups(rank, size):
    halves = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    if rank in (0, 2):
        dist.barrier()
    dist.all_reduce(neuron(3), group=halves[rank // 2])


@wrong(
    r"reached its timeout of 2000 ms: still waiting for rank \d .*; rank \d waits for rank \d in all_reduce"
    r"|rank \d \(pid \d+\) (has|exited)",  # told by the one that waited longest
    group_timeout=2,
    within=8,
)
def with_threads_the_timeout_tells(rank, size):
    groups = [dist.new_group(timeout=timedelta(seconds=2)) for _ in range(2)]
    # It might yet bring its rank to a collective, for all that this thread knows.
    other = threading.Thread(target=dist.all_reduce, args=(neuron(1),))
    other.start()
    other.join()
    for group in groups if rank == 0 else reversed(groups):
        dist.all_reduce(neuron(3), group=group)


@wrong({0: None, 1: None})
def async_calls_may_cross(rank, size):
    groups = [dist.new_group(), dist.new_group()]
    works = [
        dist.all_reduce(neuron(3), group=group, async_op=True)
        for group in (groups if rank == 0 else reversed(groups))
    ]
    for work in works:
        work.wait()
