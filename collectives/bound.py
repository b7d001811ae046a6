"""The least time any schedule could need on the links of a topology: latency and memory left out.

Two arguments, each over many sets of cores (single ranks, chips, nodes, half tori). A *cut*: what must enter
or leave a set has only the links that cross its edge (ForestColl, arXiv 2402.06787: for all-gather the best
cut is tight). *Traffic*: to combine m parts at least m - 1 sends must leave a part, and to share the result m
- 1 more; all parts together have so many links (Patarasuk and Yuan 2009). On a torus of p chips with 2d links
of B this is n (1 - 1/p) / 2dB a phase.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import numpy as np

from ..topology import Group, Topology


@lru_cache(maxsize=256)
def bound_us_per_byte(op: str, group: Group, root: int = 0, pairs: tuple[tuple[int, int], ...] = ()) -> float:
    """Microseconds per byte of the op's size S (nccl-tests): a lower bound from the links alone."""
    p = group.size
    if p == 1:
        return 0.0
    bound = 0.0
    for ranks_in, egress, ingress in _families(group):
        inside = ranks_in.sum(axis=1)
        share = inside / p
        n_out, n_in = _must_cross(op, share, ranks_in[:, root], p, ranks_in, pairs)
        bound = max(bound, _worst(n_out, egress), _worst(n_in, ingress))
        if inside.sum() == p:  # a partition
            sends = {"all_reduce": 2, "broadcast": 1, "reduce": 1}.get(op, 0) * (len(inside) - 1)
            bound = max(bound, _worst(np.array([sends]), np.array([egress.sum()])))
    return bound / 1e3


def _must_cross(
    op: str,
    share: np.ndarray,
    has_root: np.ndarray,
    p: int,
    ranks_in: np.ndarray,
    pairs: tuple[tuple[int, int], ...],
) -> tuple[np.ndarray, np.ndarray]:
    """By set: how many times S must leave and enter it."""
    rest = 1 - share
    if op in ("permute", "send_recv"):
        crossing = [[row[src] and not row[dst] for src, dst in pairs] for row in ranks_in]
        entering = [[row[dst] and not row[src] for src, dst in pairs] for row in ranks_in]
        return np.sum(crossing, axis=1), np.sum(entering, axis=1)
    outside = (rest > 0).astype(float)
    return {
        "all_reduce": (outside, outside),
        "reduce_scatter": (rest, share * outside),
        "all_gather": (share * outside, rest),
        "all_to_all": (share * rest * p, share * rest * p),
        "broadcast": (has_root * outside, (~has_root).astype(float)),
        "reduce": ((~has_root).astype(float), has_root * outside),
        "gather": (np.where(has_root, 0, share), np.where(has_root, rest, 0)),
        "scatter": (np.where(has_root, rest, 0), np.where(has_root, 0, share)),
    }[op]


def _worst(buffers: np.ndarray, gbps: np.ndarray) -> float:
    """The longest of buffers / bandwidth, in ns per byte; nothing to send takes no time."""
    needed = buffers > 0
    return float(np.max(buffers[needed] / gbps[needed], initial=0.0))


def _families(group: Group) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Families of sets: (which ranks are in, shape (sets, ranks); GB/s that leave each; GB/s that enter)."""
    topology = group.topology
    many_chips = len(group.chip_set) > 1
    cores_here = (group.topology.cores_per_chip - 1) * topology.core_gbps
    alone = np.eye(group.size, dtype=bool)
    beside = cores_here * (np.bincount(group.chips, minlength=topology.chips)[group.chips] > 1)
    yield (
        alone,
        beside + many_chips * topology.egress_gbps[group.chips],
        beside + many_chips * topology.ingress_gbps[group.chips],
    )
    if many_chips:
        for chip_sets in _chip_sets(topology):
            inside = chip_sets[:, group.chips]
            used = inside.any(axis=1) & ~inside.all(axis=1)
            if used.any():
                yield (
                    inside[used],
                    _crossing(topology, chip_sets[used]),
                    _crossing(topology, ~chip_sets[used]),
                )


def _chip_sets(topology: Topology) -> Iterator[np.ndarray]:
    """Sets of chips as rows of booleans: every chip, every node, every half of every dimension."""
    chips = np.arange(topology.chips)
    yield np.eye(topology.chips, dtype=bool)
    if topology.nodes > 1:
        yield topology.node_of(chips)[None] == np.arange(topology.nodes)[:, None]
    position = topology.coordinates(chips)
    for axis, size in enumerate((topology.islands, *topology.dims)):
        if size > 1:
            yield (position[None, :, axis] - np.arange(size)[:, None]) % size < size // 2


def _crossing(topology: Topology, chip_sets: np.ndarray) -> np.ndarray:
    """GB/s from each set of chips to the rest. A switch is on the side that makes the cut narrower."""
    links, chips = topology.links, topology.chips
    wire = (links.src < chips) & (links.dst < chips)
    cut = chip_sets[:, links.src[wire]] & ~chip_sets[:, links.dst[wire]]
    up, down = np.zeros((chips, topology.switches)), np.zeros((chips, topology.switches))
    for switch in range(topology.switches):
        to, of = links.dst == chips + switch, links.src == chips + switch
        up[:, switch] = np.bincount(links.src[to], links.gbps[to], chips)
        down[:, switch] = np.bincount(links.dst[of], links.gbps[of], chips)
    through = np.minimum(chip_sets.astype(float) @ up, (~chip_sets).astype(float) @ down)
    return cut.astype(float) @ links.gbps[wire] + through.sum(axis=1)
