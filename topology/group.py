"""A group of ranks on the fabric: which core each rank has, and the shape the cores make."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from .cycles import edge_disjoint_cycles
from .errors import TopologyError
from .topology import Topology
from .tours import tour


@dataclass(frozen=True, eq=False)
class Group:
    """``cores[r]`` is the core of the group's rank r: the placement."""

    topology: Topology
    cores: np.ndarray

    def __init__(self, topology: Topology, cores: Iterable[int] | None = None):
        """All cores by default. Raises TopologyError for a core unknown, listed twice or on a dead chip."""
        array = np.arange(topology.cores) if cores is None else np.array(list(cores), np.int64).ravel()
        if not len(array):
            raise TopologyError(f"group on {topology.name}: no cores")
        if (bad := array[(array < 0) | (array >= topology.cores)]).size:
            raise TopologyError(
                f"group: core {bad[0]} does not exist on {topology.name} (0 to {topology.cores - 1})"
            )
        values, counts = np.unique(array, return_counts=True)
        if (counts > 1).any():
            raise TopologyError(f"group: core {values[counts > 1][0]} is listed {counts.max()} times")
        for core in array[np.isin(array // topology.cores_per_chip, list(topology.dead_chips))]:
            raise TopologyError(
                f"group: core {core} is on chip {core // topology.cores_per_chip}, which is down"
            )
        object.__setattr__(self, "topology", topology)
        object.__setattr__(self, "cores", array)

    @property
    def size(self) -> int:
        return len(self.cores)

    @cached_property
    def chips(self) -> np.ndarray:
        """The chip of each rank."""
        return self.topology.chip_of(self.cores)

    @cached_property
    def chip_set(self) -> np.ndarray:
        return np.unique(self.chips)

    @cached_property
    def rank_table(self) -> np.ndarray | None:
        """Ranks by chip (ascending) and core offset, shape ``(chips, ranks per chip)``.

        None unless every chip contributes the same core offsets.
        """
        q, odd = divmod(self.size, len(self.chip_set))
        order = np.argsort(self.cores)
        offsets = (self.cores[order] % self.topology.cores_per_chip).reshape(-1, q) if not odd else None
        if offsets is None or (offsets != offsets[0]).any():
            return None
        return order.reshape(-1, q)

    @cached_property
    def grid(self) -> np.ndarray | None:
        """Ranks by position: shape ``(islands, *dims, ranks per chip)``, 1 where the group has no extent.

        Along a dimension the chips come in wire order, around the wrap where that is shorter. None where the
        chips make no box, or do not all contribute the same cores.
        """
        if self.rank_table is None:
            return None
        where = self.topology.coordinates(self.chip_set)
        values = [_cyclic_order(column, size) for column, size in zip(where.T, self._sizes, strict=True)]
        if len(self.chip_set) != np.prod([len(v) for v in values]):
            return None
        box = np.stack(np.meshgrid(*values, indexing="ij"), -1).reshape(-1, len(values))
        at = np.searchsorted(self.chip_set, self.topology.chip_at(box))
        if (at == len(self.chip_set)).any() or (self.chip_set[at] != self.topology.chip_at(box)).any():
            return None
        return self.rank_table[at].reshape(*(len(v) for v in values), -1)

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents of ``grid``; of one line of chips (or of ranks) where there is none."""
        return self.lattice.shape

    @cached_property
    def lattice(self) -> np.ndarray:
        """``grid``, or ``(1, chips, ranks per chip)`` along the shortest tour, or ``(1, ranks, 1)``."""
        if self.grid is not None:
            return self.grid
        along = self.chip_tour
        if self.rank_table is not None:
            return self.rank_table[np.searchsorted(self.chip_set, along)][None]
        place = np.argsort(along)[np.searchsorted(self.chip_set, self.chips)]
        return np.lexsort((self.cores, place)).reshape(1, -1, 1)

    @cached_property
    def chip_tour(self) -> np.ndarray:
        """The group's chips along a short closed walk."""
        return tour(self.topology, self.chip_set)

    @cached_property
    def chip_cycles(self) -> tuple[np.ndarray, ...]:
        """Closed walks over the group's chips, wire-disjoint: the torus's Hamiltonian cycles that are alive.

        Where the chips are no torus of their own (or every such cycle has a dead link): one short tour.
        """
        cycles: list[np.ndarray] = []
        if self.topology.torus and self.grid is not None and self._wraps:
            chips = self.chips[self.grid[..., 0]].ravel()
            cycles = [chips[cycle] for cycle in edge_disjoint_cycles(self.grid.shape[1:-1])]
            cycles = [cycle for cycle in cycles if self._alive(cycle)]
        return tuple(cycles) or (self.chip_tour,)

    @property
    def _sizes(self) -> Sequence[int]:
        return (self.topology.islands, *self.topology.dims)

    @property
    def _wraps(self) -> bool:
        """Whether the box is a torus by itself: whole dimensions, or two neighbours; on one island."""
        assert self.grid is not None
        if self.grid.shape[0] > 1:
            return False
        for axis, (extent, size) in enumerate(zip(self.grid.shape[1:-1], self.topology.dims, strict=True)):
            pair = np.moveaxis(self.grid, 1 + axis, 0).reshape(extent, -1)[:, 0]
            position = self.topology.coordinates(self.chips[pair])[:, 1 + axis]
            adjacent = extent == 2 and (position[1] - position[0]) % size in (1, size - 1)
            if not (extent in (1, size) or adjacent):
                return False
        return True

    def _alive(self, cycle: np.ndarray) -> bool:
        links = self.topology.links
        live = links.gbps > 0
        wires = set(zip(links.src[live].tolist(), links.dst[live].tolist(), strict=True))
        onward = np.roll(cycle, -1)
        return all(
            (int(u), int(v)) in wires and (int(v), int(u)) in wires
            for u, v in zip(cycle, onward, strict=True)
        )


def _cyclic_order(column: np.ndarray, size: int) -> np.ndarray:
    """The values in ascending order, started after their widest gap around the wrap."""
    values = np.unique(column)
    if len(values) == size:
        return values
    gaps = np.diff(values, append=values[0] + size)
    return np.roll(values, -int(np.argmax(gaps)) - 1)


def parse_cores(text: str) -> list[int]:
    """Cores from a list such as ``0-3,8,16-60:4`` (ranges are inclusive, ``:step`` optional)."""
    cores: list[int] = []
    for part in text.split(","):
        span, _, step = part.strip().partition(":")
        first, dash, last = span.partition("-")
        if not (
            first.isdecimal() and (last.isdecimal() or not dash) and (step.isdecimal() or ":" not in part)
        ):
            raise TopologyError(f"group {text!r}: {part!r} is no core or range such as 0-3 or 0-60:4")
        low, high, stride = int(first), int(last or first), int(step or 1)
        if high < low or stride < 1 or high >= 1 << 20:
            raise TopologyError(f"group {text!r}: {part!r} is an empty or impossible range")
        cores += range(low, high + 1, stride)
    return cores
