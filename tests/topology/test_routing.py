"""Paths: dimension-ordered with ties split, shortest around faults, through switches and EFA."""

import numpy as np
import pytest
from neuron_dist.topology import Topology, TopologyError, from_links, load, routes
from neuron_dist.topology.faults import apply, chip_down, link_down, link_late, link_slow


def path(topology: Topology, src: int, dst: int) -> dict[tuple[int, int], float]:
    """Share of the bytes by link (ends) between two cores."""
    found = routes(topology, np.array([src]), np.array([dst]))
    ends = zip(topology.links.src[found.link].tolist(), topology.links.dst[found.link].tolist(), strict=True)
    return dict(zip(ends, found.share.tolist(), strict=True))


def test_neighbours_use_their_link() -> None:
    assert path(load("torus:4x4"), 0, 1) == {(0, 1): 1.0}
    assert path(load("torus:4x4"), 0, 12) == {(0, 12): 1.0}


def test_dimensions_in_order_the_short_way_round() -> None:
    assert path(load("torus:5x5"), 0, 9) == {(0, 5): 1.0, (5, 9): 1.0}


def test_ties_go_half_and_half() -> None:
    shares = path(load("torus:4x4"), 0, 2)
    assert shares == {(0, 1): 0.5, (1, 2): 0.5, (0, 3): 0.5, (3, 2): 0.5}


def test_pair_dimension_has_no_tie() -> None:
    assert path(load("torus:2x4"), 0, 4) == {(0, 4): 1.0}


def test_latency_adds_up_over_the_hops() -> None:
    torus = load("torus:4x4")
    found = routes(torus, np.array([0, 0]), np.array([1, 10]))
    assert found.latency_us.tolist() == [0.5, 2.0]
    assert found.hops.tolist() == [1, 4]


def test_cores_of_a_chip_use_their_own_link() -> None:
    trn2 = load("trn2.48xlarge")
    found = routes(trn2, np.array([0]), np.array([3]))
    assert trn2.link_name(int(found.link[0])) == "core 0 -> core 3 (intra-chip)"


def test_nodes_are_joined_by_efa() -> None:
    two = load("trn2.48xlarge*2")
    assert path(two, 0, 64) == {(0, 32): 1.0, (32, 16): 1.0}
    assert routes(two, np.array([0]), np.array([64])).latency_us[0] == 15


def test_switches_are_crossed_by_the_nearest_level() -> None:
    gen2 = load("trn3-gen2-ultraserver")
    server = routes(gen2, np.array([0]), np.array([4]))
    rack = routes(gen2, np.array([0]), np.array([4 * 60]))
    other = routes(gen2, np.array([0]), np.array([4 * 72]))
    assert (server.hops[0], rack.hops[0], other.hops[0]) == (2, 2, 1)
    assert gen2.link_name(int(server.link[0])) == "chip 0 -> switch 0 (switch)"
    assert gen2.link_name(int(rack.link[0])) == "chip 0 -> switch 36 (switch)"


def test_around_a_dead_link_by_the_shortest_path() -> None:
    broken = link_down(load("torus:4x4"), 0, 1)
    found = path(broken, 0, 1)
    assert len(found) == 3
    assert (0, 1) not in found
    assert path(broken, 4, 5) == {(4, 5): 1.0}


def test_no_path_left_is_an_error() -> None:
    line = from_links(3, [(0, 1, 100, 0.5), (1, 2, 100, 0.5)])
    with pytest.raises(TopologyError, match="no path from chip 0 to chip 2"):
        routes(link_down(line, 1, 2), np.array([0]), np.array([2]))


def test_dead_chip_is_gone_around_and_not_reached() -> None:
    broken = chip_down(load("torus:4x4"), 1)
    assert not any(1 in ends for ends in path(broken, 0, 2))
    with pytest.raises(TopologyError, match="chip 1 is down"):
        routes(broken, np.array([0]), np.array([1]))


def test_slow_and_late_links() -> None:
    torus = load("torus:4x4")
    slow, late = link_slow(torus, 0, 1, 0.25), link_late(torus, 0, 1, 3.0)
    assert slow.links.gbps[slow.links.between(1, 0)].tolist() == [32.0]
    assert routes(late, np.array([0]), np.array([1])).latency_us.tolist() == [3.5]


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("link:0-9:down", "no link between chips 0 and 9"),
        ("chip:99:down", "no such chip"),
        ("link:0-1:slow=2", "factor must be above 0"),
        ("link:0-1:late=-1", "must not be negative"),
        ("melt:0", "expected link:A-B:down"),
        ("link:a-b:down", "expected link:A-B:down"),
    ],
)
def test_faults_that_make_no_sense(fault: str, message: str) -> None:
    with pytest.raises(TopologyError, match=message):
        apply(load("torus:4x4"), fault)
