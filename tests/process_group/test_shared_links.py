"""Collectives of different groups share the links: siblings of a mesh, and what one rank has under way."""

import random
import time

import pytest
import torch
import torch.distributed as dist
from neuron_dist.collectives import build, profile
from neuron_dist.topology import Group, load

import neuron_dist
from neuron_dist import _C
from neuron_dist.planner import busy_links
from neuron_dist.siblings import siblings
from tests.harness import run

RING = {
    "NEURON_SIM_TOPOLOGY": "ring:4",
    "NEURON_SIM_ALGORITHM": "all_reduce=ring:0-",
    "NEURON_SIM_LINT": "off",
}
COUNT = 1 << 18
SIZE = 4 * COUNT


def expected(groups):
    """Simulated seconds of an all_reduce of SIZE by the first of the groups while the others do the same."""
    first, *beside = (Group(load("ring:4"), cores) for cores in groups)
    return profile(build("all_reduce", "ring", first), first, beside).price(SIZE).time_us * 1e-6


def traffic(cores, link):
    """Seconds that an all_reduce of SIZE on these cores keeps a link busy."""
    group = Group(load("ring:4"), cores)
    return profile(build("all_reduce", "ring", group), group).link_total[link] * SIZE * 1e-6


def test_siblings_are_the_other_groups_of_a_mesh():
    assert siblings([0, 4], 8) == [(0, 4), (1, 5), (2, 6), (3, 7)]
    assert siblings([4, 5, 6, 7], 8) == [(0, 1, 2, 3), (4, 5, 6, 7)]
    assert siblings([5, 7], 8) == [(0, 2), (1, 3), (4, 6), (5, 7)]  # the middle of 2 x 2 x 2
    assert siblings([7, 5], 8)[-1] == (7, 5), "rank i of each is the same place"
    assert siblings(range(8), 8) == [tuple(range(8))]
    for alone in ([0, 3], [1, 2], [0, 1, 2]):
        assert siblings(alone, 4) == [tuple(alone)]


def mesh_of(rank, world_size, groups):
    group, _ = dist.new_subgroups_by_enumeration(groups)
    dist.all_reduce(torch.zeros(COUNT, device="neuron"), group=group)
    return neuron_dist.simulated_time()


def test_groups_of_a_mesh_cost_their_common_traffic():
    """On the ring 0-1-2-3, the pairs 0-2 and 1-3 cross the same links."""
    groups = [[0, 2], [1, 3]]
    times = run(4, mesh_of, groups, env=RING)
    assert len(set(times)) == 1, times
    assert times[0] == pytest.approx(expected(groups))
    assert times[0] > 1.5 * expected(groups[:1])


def test_groups_of_a_mesh_on_links_of_their_own_cost_as_much_as_alone():
    groups = [[0, 1], [2, 3]]
    assert run(4, mesh_of, groups, env=RING) == pytest.approx([expected(groups[:1])] * 4)


def in_flight(rank, world_size, cores, runs):
    """An all_reduce of the world and, before it ends, one of a group on ``cores``: begin and end of each, every run."""
    whole = dist.new_group([0, 1, 2, 3])
    part = dist.new_group(cores)
    tensors = [torch.zeros(COUNT, device="neuron") for _ in range(2)]
    dice = random.Random(rank * 1000 + time.time_ns())
    times = []
    for _ in range(runs):
        dist.barrier()
        torch.neuron.synchronize()
        begin = neuron_dist.simulated_time()
        works = [dist.all_reduce(tensors[0], group=whole, async_op=True)]
        time.sleep(dice.random() * 0.02)
        if rank in cores:
            works.append(dist.all_reduce(tensors[1], group=part, async_op=True))
        time.sleep(dice.random() * 0.02)
        ends = []
        for work in works:
            work.wait()
            ends.append(neuron_dist.simulated_time() - begin)
        times.append(ends)
    return times


def test_two_in_flight_take_turns_on_their_links():
    """The links serve the world's traffic first. The same in every run, whenever the host's threads run."""
    results = run(4, in_flight, [0, 1], 5, env=RING)
    rounds = list(zip(*results, strict=True))
    for one in rounds:
        for rank, ends in enumerate(one):
            assert ends == pytest.approx(rounds[0][rank]), "the same in every run"
        assert len({f"{ends[0]:.12f}" for ends in one}) == 1
        assert one[0] == pytest.approx(one[1])
    world = expected([(0, 1, 2, 3)])
    busy = max(traffic(range(4), link) for link in range(len(load("ring:4").links)))
    first, second = rounds[0][0]
    assert first == pytest.approx(world)
    assert second == pytest.approx(busy + expected([(0, 1)]))
    assert second > world


def apart(rank, world_size):
    """Rank 0 has two groups in flight whose pairs have no link in common."""
    beside, across = dist.new_group([0, 1]), dist.new_group([0, 3])
    mine = [group for group, cores in ((beside, (0, 1)), (across, (0, 3))) if rank in cores]
    tensor = torch.zeros(COUNT, device="neuron")
    for work in [dist.all_reduce(tensor.clone(), group=group, async_op=True) for group in mine]:
        work.wait()
    return neuron_dist.simulated_time()


def test_groups_without_common_links_do_not_wait_for_each_other():
    alone = expected([(0, 1)])
    assert run(4, apart, env=RING) == pytest.approx([alone, alone, 0, alone])


def turns(rank, world_size):
    """What each kind of call does to a later one of another group on the same links."""
    pair = dist.new_group([0, 1])
    tensor = torch.zeros(COUNT, device="neuron")
    if rank > 1:
        return None
    alone = expected([(0, 1)])
    result = {}
    for kind in ("nothing", "coalesced", "transfer", "invalid"):
        other = dist.new_group([0, 1], use_local_synchronization=True)
        dist.barrier(group=other)
        begin = neuron_dist.simulated_time()
        pending = []
        if kind == "coalesced":
            with dist._coalescing_manager(other, device=torch.device("neuron"), async_ops=True) as manager:
                for _ in range(3):
                    dist.all_reduce(tensor.clone(), group=other)
            pending.append(manager)
        elif kind == "transfer":
            call = dist.isend if rank == 0 else dist.irecv
            pending.append(call(tensor.clone(), 1 - rank, group=other))
        elif kind == "invalid":
            with pytest.raises(TypeError):
                dist.all_reduce(torch.zeros(4, dtype=torch.bool), dist.ReduceOp.AVG, group=other)
        dist.all_reduce(tensor, group=pair)
        result[kind] = (neuron_dist.simulated_time() - begin) / alone
        for work in pending:
            work.wait()
    return result


def test_what_takes_a_turn():
    """Coalesced collectives take one each, a transfer takes one, an invalid call none."""
    results = run(4, turns, env=RING)
    assert results[0] == pytest.approx(results[1])
    found = results[0]
    alone, busy = expected([(0, 1)]), traffic((0, 1), 0)
    assert found["nothing"] == pytest.approx(1)
    assert found["invalid"] == pytest.approx(1)
    assert found["coalesced"] == pytest.approx((2 * alone + busy + alone) / alone)
    assert found["transfer"] == pytest.approx(1 + SIZE / 128e9 / alone)


def unpriced(rank, world_size):
    """Estimates take no turn on the links, and see no others'."""
    other = dist.new_group([0, 1])
    tensor = torch.zeros(COUNT, device="neuron")
    with dist._time_estimator() as estimator:
        dist.all_reduce(tensor)
    work = dist.all_reduce(tensor.clone(), group=other, async_op=True)
    work.wait()
    assert neuron_dist.simulated_time() == pytest.approx(expected([(0, 1)]))
    return estimator.estimated_time


def test_estimates_take_no_turn():
    assert run(2, unpriced, env=RING) == pytest.approx([expected([(0, 1)]) * 1e6] * 2)


def traced(rank, world_size):
    group, _ = dist.new_subgroups_by_enumeration([[0, 2], [1, 3]])
    dist.all_reduce(torch.zeros(COUNT, device="neuron"), group=group)
    record = _C.records()[-1]
    return [
        (name, seconds)
        for _, name, seconds in busy_links(record.group, record.op, record.algorithm, record.bytes)
    ]


def test_a_trace_shows_each_group_its_own_traffic():
    first, second, *others = run(4, traced, env=RING)
    assert others == [[], []], "its first rank tells for the group"
    assert sum(seconds for _, seconds in first) == pytest.approx(
        sum(traffic([0, 2], link) for link in range(8))
    )
    assert dict(first) == pytest.approx(dict(second))
