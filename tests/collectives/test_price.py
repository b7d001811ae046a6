"""The price: its parts, how it follows the topology and its faults, and its accounting of memory."""

from dataclasses import replace

import numpy as np
import pytest
from neuron_dist.collectives import CollectiveError, Draft, build, price, profile
from neuron_dist.topology import Group, load, torus
from neuron_dist.topology.faults import link_late, link_slow

MIB = 1 << 20


def test_the_parts_of_one_transfer() -> None:
    """A step of 1.0 us, a wire of 0.5 us, the bytes over 128 GB/s, one read and one write of HBM."""
    group = Group(torus((2,), hbm_gbps=2900.0))
    draft = Draft("broadcast", ranks=2)
    draft.copy(step=0, src=0, dst=1, chunk=0)
    found = price(draft.schedule(name="mine"), group, MIB)
    assert found.alpha_us == 1.5
    assert found.beta_us == pytest.approx(MIB / 128e3)
    assert found.hbm_us == pytest.approx(MIB / 2900e3)
    assert found.time_us == pytest.approx(found.alpha_us + found.beta_us + found.hbm_us)
    assert found.bound_us == pytest.approx(MIB / 128e3)
    assert found.algbw == found.busbw == pytest.approx(MIB / found.time_us / 1e3)
    assert found.busiest_link == "chip 0 -> chip 1 (NeuronLink)"


def test_links_are_shared_by_the_transfers_of_a_step() -> None:
    group = Group(load("torus:5"))
    together, apart = Draft("scatter", ranks=5), Draft("scatter", ranks=5)
    for draft, second in ((together, 0), (apart, 1)):
        draft.copy(step=0, src=0, dst=1, chunk=1)
        draft.copy(step=second, src=0, dst=2, chunk=2)  # also over 0 -> 1
    costs = [price(draft.schedule(), group, 5 * MIB) for draft in (together, apart)]
    assert costs[0].beta_us == pytest.approx(costs[1].beta_us) == pytest.approx(2 * MIB / 128e3)
    assert (costs[0].alpha_us, costs[1].alpha_us) == (2.0, 3.5)


def test_a_reduce_reads_two_and_writes_one() -> None:
    group = Group(load("ring:2"))
    draft = Draft("reduce", ranks=2)
    draft.reduce(step=0, src=1, dst=0, chunk=0)
    assert profile(draft.schedule(), group).hbm_total.tolist() == [2.0, 1.0]


def test_one_read_feeds_many_writes() -> None:
    group = Group(load("ring:3"))
    draft = Draft("broadcast", ranks=3)
    draft.copy(step=0, src=0, dst=1, chunk=0)
    draft.copy(step=0, src=0, dst=2, chunk=0)
    assert profile(draft.schedule(), group).hbm_total.tolist() == [1.0, 1.0, 1.0]


def test_the_topology_matters() -> None:
    """One schedule, several fabrics: the price follows bandwidth, shape, latency and faults."""
    plain = load("torus:4x4")
    schedule = build("all_reduce", "rdh", Group(plain))
    base = price(schedule, Group(plain), MIB)
    twice = price(schedule, Group(load("torus:4x4@256")), MIB)
    ring = price(schedule, Group(load("ring:16")), MIB)
    slow = price(schedule, Group(link_slow(plain, 0, 1, 0.1)), MIB)
    late = price(schedule, Group(link_late(plain, 0, 1, 7.0)), MIB)
    assert twice.beta_us == pytest.approx(base.beta_us / 2)
    assert ring.beta_us > 2 * base.beta_us
    assert ring.alpha_us > base.alpha_us
    assert ring.bound_us == pytest.approx(2 * base.bound_us)
    assert slow.beta_us > 2 * base.beta_us
    assert slow.busiest_link in ("chip 0 -> chip 1 (NeuronLink)", "chip 1 -> chip 0 (NeuronLink)")
    assert late.alpha_us == pytest.approx(
        base.alpha_us + 8 * 7.0
    )  # rotated copies use every link in every step


def test_placement_matters() -> None:
    trn2 = load("trn2.48xlarge")
    packed, spread = Group(trn2, range(16)), Group(trn2, range(0, 64, 4))
    prices = [price(build("all_reduce", "direct", group), group, MIB) for group in (packed, spread)]
    assert prices[0].busiest_link != prices[1].busiest_link
    assert prices[0].bound_us != prices[1].bound_us


def test_between_nodes_latency_and_efa_rule() -> None:
    two = load("trn2.48xlarge*2")
    group = Group(two)
    found = price(build("all_reduce", "hierarchical", group), group, 1 << 30)
    assert "EFA" in price(build("all_reduce", "direct", group), group, 1 << 30).busiest_link
    assert found.alpha_us > 2 * 15
    # Out of a node go n bytes in reduce-scatter and all-gather together, over 16 chips of 25 GB/s.
    assert found.bound_us >= (1 << 30) / 400e3 * 0.999


def test_beta_is_linear_in_size_and_alpha_is_not() -> None:
    group = Group(load("torus:4x4"))
    costs = profile(build("all_reduce", "ring", group), group)
    small, large = costs.price(MIB), costs.price(8 * MIB)
    assert large.beta_us == pytest.approx(8 * small.beta_us)
    assert large.alpha_us == small.alpha_us


def test_nothing_costs_nothing() -> None:
    group = Group(load("torus:4x4"))
    found = price(build("all_reduce", "ring", group), group, 0)
    assert (found.time_us, found.bound_us, found.bound_ratio, found.algbw) == (0, 0, None, 0)
    alone = Group(load("torus:4x4"), [3])
    assert price(build("all_reduce", "ring", alone), alone, MIB).time_us == 0


def test_pipelining_pays_in_steps_for_bandwidth() -> None:
    group = Group(load("torus:4x8"))
    costs = profile(build("all_reduce", "bucket-weighted", group), group)
    prices = [costs.price(1 << 30, pieces=m) for m in (1, 8, 64)]
    assert [p.steps for p in prices] == [12, 19, 75]
    assert prices[0].beta_us > prices[1].beta_us > prices[2].beta_us
    best = costs.price(1 << 30)
    assert best.time_us <= min(p.time_us for p in prices)
    assert costs.price(1024).pieces == 1


def test_the_number_of_pieces_is_the_best_of_all() -> None:
    """Doubling the pieces may cost more before it costs less."""
    group = Group(load("torus:4x4"))
    costs = profile(build("all_reduce", "chains", group), group)
    times = {1 << i: costs.price(1 << 40, pieces=1 << i).time_us for i in range(13)}
    assert times[32] > times[16] > times[64]
    assert costs.price(1 << 40).time_us == min(times.values())


def test_bad_requests() -> None:
    group = Group(load("torus:4x4"))
    schedule = build("all_reduce", "ring", group)
    with pytest.raises(CollectiveError, match="must not be negative"):
        price(schedule, group, -1)
    with pytest.raises(CollectiveError, match="16 ranks on a group of 8"):
        price(schedule, Group(load("ring:8")), MIB)


def test_groups_side_by_side_cost_what_their_union_does() -> None:
    """Data-parallel groups of a mesh cross the same NeuronLinks; one schedule of all their transfers says the same."""
    trn2 = load("trn2.48xlarge")
    tiles = [range(first, 32, 8) for first in range(8)]
    for name in ("ring", "chains"):  # the latter is pipelined
        groups = [Group(trn2, tile) for tile in tiles]
        op = "all_reduce" if name == "ring" else "broadcast"
        schedule = build(op, name, groups[0])
        shift = np.repeat(np.arange(len(tiles)) * schedule.ranks, schedule.transfers)
        columns = {column: np.tile(values, len(tiles)) for column, values in schedule.columns.items()}
        columns |= {"src": columns["src"] + shift, "dst": columns["dst"] + shift}
        union = replace(schedule, ranks=schedule.ranks * len(tiles)).with_columns(**columns)
        everyone = Group(trn2, [core for tile in tiles for core in tile])
        together, alone = profile(schedule, groups[0], groups[1:]), profile(schedule, groups[0])
        for size in (1024, 64 * MIB):
            found, expected = together.price(size), price(union, everyone, size)
            assert found.time_us == pytest.approx(expected.time_us)
            assert found.beta_us == pytest.approx(expected.beta_us)
            assert found.beta_us > 3 * alone.price(size).beta_us
            assert found.hbm_us == pytest.approx(alone.price(size, found.pieces).hbm_us)
            assert found.time_us >= found.bound_us
        assert together.link_total == pytest.approx(profile(union, everyone).link_total)


def test_groups_that_share_nothing_cost_the_same_as_alone() -> None:
    group, *others = (Group(load("ring:8"), pair) for pair in ((0, 1), (2, 3), (4, 5), (6, 7)))
    schedule = build("all_reduce", "ring", group)
    assert profile(schedule, group, others).price(MIB) == price(schedule, group, MIB)


def test_groups_side_by_side_must_be_alike() -> None:
    groups = [Group(load("ring:8"), cores) for cores in ((0, 1), (2, 3, 4))]
    with pytest.raises(CollectiveError, match="2 ranks on a group of 3"):
        profile(build("all_reduce", "ring", groups[0]), groups[0], groups[1:])
