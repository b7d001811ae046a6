"""Wire-disjoint Hamiltonian cycles, and the shapes groups of cores make."""

from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from neuron_dist.topology import Group, Topology, TopologyError, edge_disjoint_cycles, load, parse_cores
from neuron_dist.topology.faults import chip_down, link_down

DIMS = st.lists(st.integers(1, 6), min_size=1, max_size=4).map(tuple).filter(lambda dims: prod(dims) <= 300)


def links_of(cycle: np.ndarray) -> set[frozenset[int]]:
    return {frozenset((int(a), int(b))) for a, b in zip(cycle, np.roll(cycle, -1), strict=True)}


def is_wire(a: int, b: int, dims: tuple[int, ...]) -> bool:
    here, there = np.unravel_index(a, dims), np.unravel_index(b, dims)
    ways = [(int(x) - int(y)) % size for x, y, size in zip(here, there, dims, strict=True)]
    return sum(min(way, size - way) for way, size in zip(ways, dims, strict=True)) == 1


@given(DIMS)
@settings(max_examples=60, deadline=None)
def test_cycles_visit_all_chips_over_wires_of_their_own(dims: tuple[int, ...]) -> None:
    cycles = edge_disjoint_cycles(dims)
    links_per_chip = sum(min(size - 1, 2) for size in dims)
    assert len(cycles) == (links_per_chip // 2 if prod(dims) > 2 else 0)
    used: set[frozenset[int]] = set()
    for cycle in cycles:
        assert sorted(cycle.tolist()) == list(range(prod(dims)))
        assert all(is_wire(*link, dims) for link in map(tuple, links_of(cycle)))
        assert not links_of(cycle) & used
        used |= links_of(cycle)


def test_two_cycles_on_trn2() -> None:
    group = Group(load("trn2.48xlarge"))
    assert len(group.chip_cycles) == 2
    assert not links_of(group.chip_cycles[0]) & links_of(group.chip_cycles[1])


def test_a_dead_link_costs_the_cycle_it_is_on() -> None:
    fabric = load("torus:4x4")
    a, b = Group(fabric).chip_cycles[0][:2]
    left = Group(link_down(fabric, int(a), int(b))).chip_cycles
    assert len(left) == 1
    assert frozenset((int(a), int(b))) not in links_of(left[0])


def assert_tour_over_wires(topology: Topology, chips: list[int]) -> None:
    tour = Group(topology, chips).chip_tour
    assert sorted(tour.tolist()) == sorted(chips)
    assert all(is_wire(*link, topology.dims) for link in map(tuple, links_of(tour)))


def test_a_box_of_chips_without_wraps_has_a_ring() -> None:
    assert_tour_over_wires(load("torus:6x6"), [0, 1, 2, 6, 7, 8, 12, 13, 14, 18, 19, 20])


def test_the_chips_left_around_a_dead_one_have_a_ring() -> None:
    broken = chip_down(load("torus:5x5"), 12)
    assert_tour_over_wires(broken, [chip for chip in range(25) if chip != 12])


def test_scattered_chips_have_a_short_tour() -> None:
    tour = Group(load("torus:8x8"), [0, 36, 1, 37, 8, 44]).chip_tour
    near = {0, 1, 8}
    sides = [int(chip) in near for chip in tour]
    assert sum(a != b for a, b in zip(sides, sides[1:] + sides[:1], strict=True)) == 2


@pytest.mark.parametrize(
    ("cores", "shape"),
    [
        (range(64), (1, 4, 4, 4)),
        (range(4), (1, 1, 1, 4)),
        (range(0, 16, 4), (1, 1, 4, 1)),
        ([*range(16), *range(48, 64)], (1, 2, 4, 4)),
        ([3, 2, 1, 0], (1, 1, 1, 4)),
    ],
)
def test_boxes_of_chips_are_grids(cores: list[int], shape: tuple[int, ...]) -> None:
    group = Group(load("trn2.48xlarge"), cores)
    assert group.grid is not None
    assert group.grid.shape == shape
    assert sorted(group.grid.ravel().tolist()) == list(range(group.size))


def test_rows_around_the_wrap_come_in_wire_order() -> None:
    group = Group(load("trn2.48xlarge"), parse_cores("0-15,48-63"))
    assert group.grid is not None
    assert group.chips[group.grid[0, :, 0, 0]].tolist() == [12, 0]


@pytest.mark.parametrize("cores", [[0, 5, 9, 63], [0, 1, 4], [0, 4, 20]])
def test_other_groups_are_a_line(cores: list[int]) -> None:
    group = Group(load("trn2.48xlarge"), cores)
    assert group.grid is None
    assert group.shape in ((1, len(cores), 1), (1, len(group.chip_set), len(cores) // len(group.chip_set)))


def test_a_grid_of_nodes() -> None:
    assert Group(load("trn2.48xlarge*2")).shape == (2, 4, 4, 4)


@pytest.mark.parametrize(
    ("cores", "message"),
    [
        ([0, 0], "core 0 is listed 2 times"),
        ([64], "core 64 does not exist"),
        ([-1], "core -1"),
        ([], "no cores"),
    ],
)
def test_groups_that_make_no_sense(cores: list[int], message: str) -> None:
    with pytest.raises(TopologyError, match=message):
        Group(load("trn2.48xlarge"), cores)


def test_group_on_a_dead_chip() -> None:
    with pytest.raises(TopologyError, match="core 5 is on chip 1, which is down"):
        Group(chip_down(load("trn2.48xlarge"), 1), [0, 5])


def test_core_lists() -> None:
    assert parse_cores("0-3,8,16-24:4") == [0, 1, 2, 3, 8, 16, 20, 24]
    for text in ("", "a", "3-1", "0-4:0", "1-", "0--3", "0-99999999"):
        with pytest.raises(TopologyError, match="group"):
            parse_cores(text)
