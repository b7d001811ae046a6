"""The least time any schedule could need on the links of a topology: latency and memory left out.

Two arguments, each over many ways to part the ranks (single ranks, chips, nodes, half tori):

- A cut. What must leave or enter a part has only the links across its edge (ForestColl, arXiv 2402.06787: for
  all-gather the best cut is tight).
- Traffic. To combine m parts takes m - 1 sends that leave a part, to share the result m - 1 more, and all
  parts together have so many links (Patarasuk and Yuan 2009).

On a torus of p chips with 2d links of B this is n (1 - 1/p) / 2dB a phase.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import numpy as np

from ..topology import Group, Topology


@lru_cache(maxsize=256)
def bound_us_per_byte(op: str, group: Group, root: int = 0, pairs: tuple[tuple[int, int], ...] = ()) -> float:
    """Microseconds per byte of the op's size S (nccl-tests): a lower bound from the links alone."""
    bound = 0.0
    for part, egress, ingress in _partitions(group):
        ranks_in = np.bincount(part, minlength=len(egress))
        used = ranks_in > 0
        if used.sum() < 2:
            continue
        out, into = _must_cross(op, ranks_in, part, root, pairs)
        bound = max(bound, _worst(out[used], egress[used]), _worst(into[used], ingress[used]))
        sends = {"all_reduce": 2, "broadcast": 1, "reduce": 1}.get(op, 0) * (int(used.sum()) - 1)
        bound = max(bound, _worst(np.array([sends]), egress[used].sum(keepdims=True)))
    return bound / 1e3


def _must_cross(
    op: str, ranks_in: np.ndarray, part: np.ndarray, root: int, pairs: tuple[tuple[int, int], ...]
) -> tuple[np.ndarray, np.ndarray]:
    """By part of a partition: how many times S must leave and enter it."""
    p = len(part)
    share = ranks_in / p
    rest = 1 - share
    if op in ("permute", "send_recv"):
        src, dst = part[np.array(pairs, np.int64).reshape(-1, 2)].T
        crossing = src != dst
        out, into = (np.bincount(end[crossing], minlength=len(ranks_in)) for end in (src, dst))
        return out, into
    one = np.ones(len(ranks_in))
    at_root = np.zeros(len(ranks_in))
    at_root[part[root]] = 1
    return {
        "all_reduce": (one, one),
        "reduce_scatter": (rest, share),
        "all_gather": (share, rest),
        "all_to_all": (share * rest * p, share * rest * p),
        "broadcast": (at_root, 1 - at_root),
        "reduce": (1 - at_root, at_root),
        "gather": (share * (1 - at_root), rest * at_root),
        "scatter": (rest * at_root, share * (1 - at_root)),
    }[op]


def _worst(buffers: np.ndarray, gbps: np.ndarray) -> float:
    """The longest of buffers / bandwidth, in ns per byte; nothing to send takes no time."""
    needed = buffers > 0
    return float(np.max(buffers[needed] / gbps[needed], initial=0.0))


def _partitions(group: Group) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Ways to part the ranks: (the part of each rank, GB/s out of each part, GB/s into it)."""
    topology = group.topology
    many_chips = len(group.chip_set) > 1
    to_cores = (topology.cores_per_chip - 1) * topology.core_gbps
    beside = to_cores * (np.bincount(group.chips)[group.chips] > 1)
    yield (
        np.arange(group.size),
        beside + many_chips * topology.egress_gbps[group.chips],
        beside + many_chips * topology.ingress_gbps[group.chips],
    )
    for label in _chip_partitions(topology) if many_chips else ():
        yield label[group.chips], *_crossing(topology, label)


def _chip_partitions(topology: Topology) -> Iterator[np.ndarray]:
    """The part of each chip: one per chip, per node, and every half of every dimension against the rest."""
    chips = np.arange(topology.chips)
    yield chips
    if topology.nodes > 1:
        yield topology.node_of(chips)
    position = topology.coordinates(chips)
    for axis, size in enumerate((topology.islands, *topology.dims)):
        for first in range(size if size > 1 else 0):
            yield ((position[:, axis] - first) % size < size // 2).astype(np.int64)


def _crossing(topology: Topology, label: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """GB/s out of and into each part. A switch is on the side that makes the cut narrower."""
    links, chips, parts = topology.links, topology.chips, int(label.max()) + 1
    wire = np.flatnonzero((links.src < chips) & (links.dst < chips))
    wire = wire[label[links.src[wire]] != label[links.dst[wire]]]
    out = np.bincount(label[links.src[wire]], links.gbps[wire], parts)
    into = np.bincount(label[links.dst[wire]], links.gbps[wire], parts)
    for switch in range(chips, chips + topology.switches):
        up, down = links.dst == switch, links.src == switch
        rising = np.bincount(label[links.src[up]], links.gbps[up], parts)
        falling = np.bincount(label[links.dst[down]], links.gbps[down], parts)
        out = out + np.minimum(rising, falling.sum() - falling)
        into = into + np.minimum(falling, rising.sum() - rising)
    return out, into
