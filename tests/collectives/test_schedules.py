"""The schedule itself: where chunks lie, how schedules compose, and in which order they sum."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from neuron_dist.collectives import Draft, VerificationError, build, reduction_order, verify
from neuron_dist.collectives.algorithms.ring import arc
from neuron_dist.collectives.compose import fold, nest, relabel, reverse, sandwich, side_by_side
from neuron_dist.topology import Group, load


@given(st.integers(0, 10_000), st.sampled_from(["ring", "bucket-weighted", "rdh", "mesh1", "kangaring"]))
@settings(max_examples=60, deadline=None)
def test_chunks_tile_any_number_of_elements(count: int, algorithm: str) -> None:
    spans = build("all_reduce", algorithm, Group(load("trn1.32xlarge"))).elements(count)
    spans = spans[np.argsort(spans[:, 0], kind="stable")]
    spans = spans[spans[:, 0] < spans[:, 1]]
    assert spans[:, 1].sum() - spans[:, 0].sum() == count
    if count:
        assert (spans[1:, 0] == spans[:-1, 1]).all()
        assert (spans[0, 0], spans[-1, 1]) == (0, count)


def test_blocks_of_an_all_gather_are_the_ranks_own() -> None:
    schedule = build("all_gather", "bucket-weighted", Group(load("torus:4x8")))
    spans = schedule.elements(32 * 7)
    for chunk, (first, last) in enumerate(spans):
        block = int(schedule.block[chunk])
        assert 7 * block <= first <= last <= 7 * (block + 1)


def test_huge_counts_do_not_overflow() -> None:
    schedule = build("all_reduce", "bucket-weighted", Group(load("torus:4x8")))
    assert schedule.elements(1 << 45).max() == 1 << 45


@pytest.mark.parametrize("algorithm", ["ring", "bucket", "rdh", "swing", "mesh", "kangaring", "generated"])
def test_reduce_scatter_is_all_gather_reversed(algorithm: str) -> None:
    group = Group(load("trn1.32xlarge"))
    gather, scatter = build("all_gather", algorithm, group), build("reduce_scatter", algorithm, group)
    verify(reverse(gather))
    verify(reverse(scatter))
    again = reverse(reverse(gather))
    for name, column in gather.columns.items():
        assert sorted(getattr(again, name).tolist()) == sorted(column.tolist())


def test_nesting_rings_is_a_torus_bucket() -> None:
    torus = nest(arc(3, 2, 0), arc(4, 3, 0))
    assert (torus.ranks, torus.steps, torus.chunks) == (12, 5, 12)
    verify(torus)


def test_sandwich_reduces_outside_with_any_all_reduce() -> None:
    exchange = Draft("all_reduce", ranks=2)
    exchange.reduce(step=0, src=0, dst=1, chunk=0)
    exchange.reduce(step=0, src=1, dst=0, chunk=0)
    joined = sandwich(arc(4, 3, 0), exchange.schedule())
    assert (joined.ranks, joined.steps) == (8, 3 + 1 + 3)
    verify(joined)


def test_slices_are_as_wide_as_their_weights() -> None:
    both = side_by_side([arc(4, 3, 0), arc(4, 0, 3)], [3, 1])
    verify(both)
    widths = both.width / both.units * 4
    assert widths[:4].tolist() == [0.75] * 4
    assert widths[4:].tolist() == [0.25] * 4


@given(st.integers(1, 12), st.integers(1, 6), st.randoms(use_true_random=False))
@settings(max_examples=40, deadline=None)
def test_relabelling_and_folding_keep_schedules_right(core: int, extra: int, random: object) -> None:
    ring = arc(core, core - 1, 0)
    folded = fold(ring, core + min(extra, core))
    verify(folded)
    names = list(range(folded.ranks))
    random.shuffle(names)  # type: ignore[attr-defined]
    verify(relabel(folded, np.array(names)))


def test_ring_sums_in_the_order_of_its_hops() -> None:
    """Chunk c starts at rank c + 1; two terms are written in rank order."""
    order = reduction_order(arc(4, 3, 0))
    formulas = [order.formula(chunk) for chunk in range(4)]
    assert formulas == ["0 + ((1 + 2) + 3)", "(0 + (2 + 3)) + 1", "((0 + 3) + 1) + 2", "((0 + 1) + 2) + 3"]


def test_direct_sums_in_rank_order() -> None:
    order = reduction_order(build("all_reduce", "mesh1", Group(load("torus:2x3"))))
    assert len(order.programs) == 1
    assert order.formula(0) == "((((0 + 1) + 2) + 3) + 4) + 5"
    assert order.program(0).tolist() == [0, 1, -1, 2, -1, 3, -1, 4, -1, 5, -1]


def test_halving_sums_as_a_tree() -> None:
    assert reduction_order(build("all_reduce", "rdh", Group(load("torus:4x4")))).depth == 4
    assert reduction_order(build("all_reduce", "ring1", Group(load("torus:4x4")))).depth == 15


def test_ranks_that_would_disagree_are_refused() -> None:
    """(0 + 1) + 2 on rank 0 and 0 + (1 + 2) on rank 2."""
    unlike = Draft("all_reduce", ranks=3, chunks=1)
    unlike.reduce(step=0, src=1, dst=0, chunk=0)
    unlike.reduce(step=0, src=2, dst=0, chunk=0)
    unlike.reduce(step=0, src=1, dst=2, chunk=0)
    unlike.copy(step=0, src=0, dst=1, chunk=0)
    unlike.reduce(step=1, src=1, dst=2, chunk=0)
    unlike.copy(step=2, src=0, dst=1, chunk=0)
    with pytest.raises(VerificationError, match="ranks would sum chunk 0 in 2 different orders"):
        reduction_order(unlike.schedule())


def test_many_ranks_are_no_trouble() -> None:
    group = Group(load("torus:16x16"))
    schedule = build("all_reduce", "bucket", group)
    assert schedule.ranks == 256
    verify(schedule, group, direct_links=True)


def test_a_schedule_is_a_value() -> None:
    schedule = build("all_reduce", "ring", Group(load("ring:4")))
    assert replace(schedule, name="other").name == "other"
    with pytest.raises(AttributeError):
        schedule.name = "mine"  # type: ignore[misc]
