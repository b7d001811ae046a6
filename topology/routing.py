"""Which links a transfer between two cores uses, and what share of its bytes each carries.

On a torus: dimension-ordered, the shorter way round, an exact tie split in halves. Everywhere else, and
around dead links: the path of least latency. Cores of one chip use their own link. Bytes cut through: a path
costs the sum of its latencies once, and every link on it the time of all the bytes it carries.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from .errors import TopologyError
from .topology import Topology


@dataclass(frozen=True)
class Routes:
    """Paths of pairs of cores: pair i puts ``share`` of its bytes on each ``link[first[i]:first[i + 1]]``."""

    first: np.ndarray
    link: np.ndarray
    share: np.ndarray
    latency_us: np.ndarray  # of the pair's longest path
    hops: np.ndarray

    def expand(self, pair: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """For rows that use the given pairs: (row index, link, share), one entry a link."""
        counts = np.diff(self.first)[pair]
        row = np.repeat(np.arange(len(pair)), counts)
        within = np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts)
        entry = self.first[pair][row] + within
        return row, self.link[entry], self.share[entry]


def routes(topology: Topology, src: np.ndarray, dst: np.ndarray) -> Routes:
    """Paths from core ``src[i]`` to core ``dst[i]``. Raises TopologyError where no live path exists."""
    src, dst = np.asarray(src, np.int64), np.asarray(dst, np.int64)
    a, b = topology.chip_of(src), topology.chip_of(dst)
    for chip in topology.dead_chips:
        if (dead := np.flatnonzero((a == chip) | (b == chip))).size:
            i = dead[0]
            raise TopologyError(f"no path from core {src[i]} to core {dst[i]}: chip {chip} is down")
    q = topology.cores_per_chip
    inside, outside = np.flatnonzero((a == b) & (src != dst)), np.flatnonzero(a != b)
    core_link = len(topology.links) + a[inside] * q * q + src[inside] % q * q + dst[inside] % q
    latency, hops = np.zeros(len(src)), np.zeros(len(src), np.int64)
    latency[inside], hops[inside] = topology.core_us, 1

    chip_pairs, which = np.unique(a[outside] * topology.chips + b[outside], return_inverse=True)
    between = _chip_routes(topology, *np.divmod(chip_pairs, topology.chips))
    row, link, share = between.expand(which)
    latency[outside], hops[outside] = between.latency_us[which], between.hops[which]
    pieces = [(inside, core_link, np.ones(len(inside))), (outside[row], link, share)]
    return _routes(pieces, latency, hops)


def _chip_routes(topology: Topology, a: np.ndarray, b: np.ndarray) -> Routes:
    """Paths between unlike chips."""
    latency, hops = np.zeros(len(a)), np.zeros(len(a), np.int64)
    pieces: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []  # pair, link, share
    todo = np.arange(len(a))
    if topology.torus:
        island = topology.chips_per_island
        local = np.flatnonzero(a // island == b // island)
        pair, link, share = _dimension_ordered(topology, a[local], b[local])
        blocked = np.zeros(len(local), bool)
        blocked[pair[topology.links.gbps[link] == 0]] = True
        keep = ~blocked[pair]
        pieces.append((local[pair[keep]], link[keep], share[keep]))
        # The two halves of a tie are equally long, so the weighted sum is the length of either.
        latency[local] = np.bincount(pair, share * topology.links.latency_us[link], len(local))
        hops[local] = np.rint(np.bincount(pair, share, len(local)))
        todo = np.setdiff1d(todo, local[~blocked])
    for i in todo.tolist():
        path, latency[i] = _shortest(topology, int(a[i]))(int(b[i]))
        hops[i] = len(path)
        pieces.append((np.full(len(path), i), np.array(path, np.int64), np.ones(len(path))))
    return _routes(pieces, latency, hops)


def _routes(
    pieces: list[tuple[np.ndarray, np.ndarray, np.ndarray]], latency: np.ndarray, hops: np.ndarray
) -> Routes:
    """Routes from unordered (pair, link, share) columns."""
    empty = np.zeros(0, np.int64)
    pair, link, share = (
        np.concatenate(column) for column in zip((empty, empty, empty), *pieces, strict=True)
    )
    order = np.argsort(pair, kind="stable")
    first = np.zeros(len(hops) + 1, np.int64)
    np.cumsum(np.bincount(pair, minlength=len(hops)), out=first[1:])
    return Routes(first, link[order], share[order], latency, hops)


def _dimension_ordered(
    topology: Topology, a: np.ndarray, b: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    here, there = topology.coordinates(a), topology.coordinates(b)
    neighbour = _torus_links(topology)
    pieces = [(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0))]
    for axis, size in enumerate(topology.dims):
        ahead = (there[:, 1 + axis] - here[:, 1 + axis]) % size
        # At 2 the ways are one link; else a tie goes half and half.
        forward = np.where(2 * ahead < size, 1.0, np.where(2 * ahead == size, 1.0 if size == 2 else 0.5, 0.0))
        for way, distance, share in ((0, ahead, forward), (1, size - ahead, 1.0 - forward)):
            for hop in range(size // 2):
                moving = np.flatnonzero((share > 0) & (ahead > 0) & (distance > hop))
                at = here[moving].copy()
                at[:, 1 + axis] = (at[:, 1 + axis] + (hop if way == 0 else -hop)) % size
                pieces.append((moving, neighbour[axis][way][topology.chip_at(at)], share[moving]))
        here[:, 1 + axis] = there[:, 1 + axis]
    pair, link, share = (np.concatenate(column) for column in zip(*pieces, strict=True))
    return pair, link, share


@lru_cache(maxsize=32)
def _torus_links(topology: Topology) -> list[list[np.ndarray]]:
    """By axis and way (forward, backward): the link that leaves each chip."""
    links, chips = topology.links, np.arange(topology.chips)
    position = topology.coordinates(chips)
    key = links.src * (topology.chips + topology.switches) + links.dst
    order = np.argsort(key)
    table = []
    for axis, size in enumerate(topology.dims):
        ways = []
        for way in (1, -1):
            there = position.copy()
            there[:, 1 + axis] = (there[:, 1 + axis] + way) % size
            wanted = chips * (topology.chips + topology.switches) + topology.chip_at(there)
            found = np.searchsorted(key, wanted, sorter=order)
            ways.append(order[np.minimum(found, len(order) - 1)] if len(order) else found)
        table.append(ways)
    return table


class _ShortestPaths:
    """Least latency, then fewest hops, from one chip: Dijkstra over the live links."""

    def __init__(self, topology: Topology, source: int):
        self.topology, self.source = topology, source
        links = topology.links
        leaving: dict[int, list[int]] = {}
        for live in np.flatnonzero(links.gbps > 0).tolist():
            leaving.setdefault(int(links.src[live]), []).append(live)
        self.arrived_by: dict[int, int] = {}
        self.latency = {source: 0.0}
        queue = [(0.0, 0, source)]
        done: set[int] = set()
        while queue:
            delay, hops, vertex = heapq.heappop(queue)
            if vertex in done:
                continue
            done.add(vertex)
            for link in leaving.get(vertex, ()):
                other, further = int(links.dst[link]), delay + float(links.latency_us[link])
                if further < self.latency.get(other, np.inf):
                    self.latency[other], self.arrived_by[other] = further, link
                    heapq.heappush(queue, (further, hops + 1, other))

    def __call__(self, target: int) -> tuple[list[int], float]:
        if target not in self.latency:
            raise TopologyError(
                f"no path from chip {self.source} to chip {target} of {self.topology.name}: all are down"
            )
        path: list[int] = []
        vertex = target
        while vertex != self.source:
            path.append(self.arrived_by[vertex])
            vertex = int(self.topology.links.src[path[-1]])
        return path[::-1], self.latency[target]


@lru_cache(maxsize=4096)
def _shortest(topology: Topology, source: int) -> _ShortestPaths:
    return _ShortestPaths(topology, source)
