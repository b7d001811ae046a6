"""Every algorithm x op x topology x group: verified, priced within its bound, and walked on real numbers."""

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from neuron_dist.collectives import (
    OPS,
    Schedule,
    Unsupported,
    algorithm_names,
    build,
    profile,
    reduction_order,
    verify,
)
from neuron_dist.topology import Group, Topology, TopologyError, load, routes
from neuron_dist.topology.faults import link_down, link_late
from walk import evaluate, inputs, must_hold, walk

# What every group can ask for, whatever its shape and size.
ANY_GROUP = {
    "all_reduce": set(algorithm_names()) - {"kangaring", "hierarchical"},
    "broadcast": set(algorithm_names()) - {"kangaring", "hierarchical", "mesh1"},
    "reduce_scatter": set(algorithm_names()) - {"kangaring", "hierarchical", "mesh1", "tree", "chains"},
    "all_to_all": {"direct", "mesh", "bucket", "bucket1", "bucket-halfway", "bruck"},
    "gather": {"direct", "tree"},
}
ANY_GROUP |= {
    "all_gather": ANY_GROUP["reduce_scatter"],
    "reduce": ANY_GROUP["broadcast"],
    "scatter": ANY_GROUP["gather"],
}
COLLECTIVES = list(ANY_GROUP)
NAMES = [*algorithm_names(), "kangaring+rdh", "mesh+mesh", "ring+tree", "rdh+bruck"]

SPECS = st.one_of(
    st.integers(1, 13).map("ring:{}".format),
    st.lists(st.integers(1, 5), min_size=2, max_size=3)
    .filter(lambda dims: np.prod(dims) <= 27)
    .map(lambda dims: "torus:" + "x".join(map(str, dims))),
    st.sampled_from(
        [
            "trn1.32xlarge",
            "trn2.3xlarge",
            "trn2.48xlarge",
            "inf2.24xlarge",
            "switch:6",
            "trn1.32xlarge*2",
            "torus:2x3*2",
        ]
    ),
)


def connected(topology: Topology) -> bool:
    try:
        routes(topology, np.zeros(topology.cores, np.int64), np.arange(topology.cores))
    except TopologyError:
        return False
    return True


@st.composite
def groups(draw: st.DrawFn, most: int = 20) -> Group:
    topology = load(draw(SPECS))
    cores = topology.cores
    for link in draw(
        st.lists(st.integers(0, max(0, len(topology.links) - 1)), max_size=2 * (len(topology.links) > 0))
    ):
        ends = int(topology.links.src[link]), int(topology.links.dst[link])
        topology = draw(st.sampled_from([link_down(topology, *ends), link_late(topology, *ends, 2.0)]))
    assume(connected(topology))
    kind = draw(st.sampled_from(["first", "strided", "any", "all"]))
    if kind == "all" and cores <= 2 * most:
        return Group(topology)
    if kind == "strided":
        return Group(topology, range(0, cores, draw(st.integers(1, max(1, cores // 3))))[:most])
    if kind == "any":
        return Group(
            topology, draw(st.lists(st.integers(0, cores - 1), unique=True, min_size=1, max_size=most))
        )
    return Group(topology, range(draw(st.integers(1, min(cores, most)))))


def schedule_or_none(op: str, algorithm: str, group: Group, root: int) -> Schedule | None:
    try:
        return build(op, algorithm, group, root=root)
    except Unsupported:
        assert algorithm not in ANY_GROUP[op], f"{algorithm} must serve {op} on any group"
        return None


def check(schedule: Schedule, group: Group, count: int) -> None:
    verify(schedule, group)
    cost = profile(schedule, group).price(1 << 20)
    assert cost.time_us >= cost.bound_us * (1 - 1e-9)
    order = reduction_order(schedule)

    held = inputs(schedule, count, np.int64)
    after = walk(schedule, held)
    expected = held.sum(axis=0)
    for rank in range(schedule.ranks):
        mask = must_hold(schedule, rank, count)
        assert (after[rank, mask] == expected[mask]).all()

    # In float32, where order matters: the postfix programs give the very bits of the walk, on every rank.
    held = inputs(schedule, count, np.float32)
    after, result = walk(schedule, held), evaluate(schedule, order, held)
    for rank in range(schedule.ranks):
        mask = must_hold(schedule, rank, count)
        assert (after[rank, mask].view(np.uint32) == result[mask].view(np.uint32)).all()


@st.composite
def cases(draw: st.DrawFn) -> tuple[str, str, Group, int, int]:
    group = draw(groups())
    op = draw(st.sampled_from(COLLECTIVES))
    algorithm = draw(st.sampled_from(NAMES))
    root = draw(st.integers(0, group.size - 1))
    blocks = OPS[op].blocks(group.size)
    count = draw(st.integers(0, 40)) if blocks == 1 else blocks * draw(st.integers(0, 5))
    return op, algorithm, group, root, count


def run(case: tuple[str, str, Group, int, int]) -> None:
    op, algorithm, group, root, count = case
    schedule = schedule_or_none(op, algorithm, group, root)
    if schedule is not None:
        check(schedule, group, count)


CALM = [HealthCheck.too_slow, HealthCheck.data_too_large]


@given(cases())
@settings(max_examples=250, deadline=None, suppress_health_check=CALM, derandomize=True)
def test_sweep(case: tuple[str, str, Group, int, int]) -> None:
    run(case)


@pytest.mark.full
@pytest.mark.timeout(1200)
@given(cases())
@settings(max_examples=5000, deadline=None, suppress_health_check=CALM)
def test_long_sweep(case: tuple[str, str, Group, int, int]) -> None:
    run(case)


@pytest.mark.parametrize("op", COLLECTIVES)
def test_a_whole_trn2(op: str) -> None:
    """64 ranks: everything but ring+tree serves what it can; all verified and in one order on all ranks."""
    group = Group(load("trn2.48xlarge"))
    served = set()
    for algorithm in NAMES:
        try:
            schedule = build(op, algorithm, group, root=5)
        except Unsupported:
            continue
        served.add(algorithm)
        verify(schedule, group)
        reduction_order(schedule)
        assert profile(schedule, group).price(1 << 20).bound_ratio >= 1  # type: ignore[operator]
    assert served >= ANY_GROUP[op]
    if op in ("all_reduce", "all_gather", "reduce_scatter"):
        assert {"kangaring", "hierarchical", "kangaring+rdh", "mesh+mesh"} <= served


@pytest.mark.parametrize(
    "algorithm", ["ring", "bucket", "rdh", "kangaring", "mesh", "swing", "bucket-weighted", "rd"]
)
@pytest.mark.parametrize("count", [0, 1, 63, 65, 1000])
def test_any_number_of_elements(algorithm: str, count: int) -> None:
    group = Group(load("trn1.32xlarge"))
    check(build("all_reduce", algorithm, group), group, count)


@pytest.mark.parametrize("algorithm", ["ring", "bucket", "generated", "chains"])
def test_around_a_dead_link(algorithm: str) -> None:
    broken: Topology = link_down(load("torus:4x4"), 0, 1)
    group = Group(broken)
    schedule = build("all_reduce", algorithm, group)
    verify(schedule, group)
    if algorithm in ("ring", "generated", "chains"):
        verify(schedule, group, direct_links=True)


@pytest.mark.parametrize("spec", ["torus:4x4", "torus:3x5", "ring:7", "torus:4x4x4"])
@pytest.mark.parametrize("algorithm", ["ring", "bucket", "bucket-halfway", "bucket-weighted", "generated"])
def test_neighbour_algorithms_use_single_wires(spec: str, algorithm: str) -> None:
    group = Group(load(spec))
    verify(build("all_reduce", algorithm, group), group, direct_links=True)


@pytest.mark.parametrize("algorithm", ["rd", "swing", "rdh", "mesh", "mesh1", "ring", "tree"])
def test_ranks_agree_on_bits_however_they_are_placed(algorithm: str) -> None:
    """Partners need not meet in rank order: the sum must not depend on who is the lower of the two."""
    group = Group(load("trn2.48xlarge"), np.random.default_rng(3).permutation(64)[:32])
    check(build("all_reduce", algorithm, group), group, 64)


def test_rdh_is_all_neighbours_on_fours() -> None:
    for spec in ("torus:4x4", "torus:4x4x4"):
        group = Group(load(spec))
        verify(build("all_reduce", "rdh", group), group, direct_links=True)


@pytest.mark.parametrize(
    "algorithm", ["ring", "ring-halfway", "bucket", "rdh", "swing", "kangaring", "bruck"]
)
def test_every_block_reaches_every_rank_once(algorithm: str) -> None:
    """An all-gather of p ranks is p (p - 1) block transfers, no more: nothing is sent twice."""
    group = Group(load("trn1.32xlarge"))
    schedule = build("all_gather", algorithm, group)
    assert schedule.fraction.sum() == pytest.approx(group.size - 1)
