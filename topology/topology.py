"""What a fabric is: chips with logical NeuronCores, and directed links between chips and switches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf

import numpy as np

from .errors import TopologyError

KINDS = ("intra-chip", "NeuronLink", "switch", "EFA")
INTRA_CHIP, NEURON_LINK, SWITCH, EFA = range(4)


@dataclass(frozen=True)
class Fact:
    """One number of a topology and its source; ``mark`` is documented, derived, inferred, field or given."""

    value: float | int | str
    mark: str
    source: str = ""


@dataclass(frozen=True)
class Links:
    """Directed links as columns: vertex ``src`` to vertex ``dst``, GB/s (10^9, one way), latency in us, kind.

    Vertices below the number of chips are chips, the rest switches. A link that is down has 0 GB/s.
    """

    src: np.ndarray
    dst: np.ndarray
    gbps: np.ndarray
    latency_us: np.ndarray
    kind: np.ndarray

    @staticmethod
    def of(rows: list[tuple[int, int, float, float, int]]) -> Links:
        src, dst, gbps, latency, kind = zip(*rows, strict=True) if rows else ((),) * 5
        return Links(
            np.array(src, np.int64),
            np.array(dst, np.int64),
            np.array(gbps, float),
            np.array(latency, float),
            np.array(kind, np.int8),
        )

    def __len__(self) -> int:
        return len(self.src)

    def between(self, src: int, dst: int) -> np.ndarray:
        """Indices of the links from ``src`` to ``dst``."""
        return np.flatnonzero((self.src == src) & (self.dst == dst))


@dataclass(frozen=True, eq=False)
class Topology:
    """Chips, their logical cores and the links between them.

    Core ``c`` is core ``c % cores_per_chip`` of chip ``c // cores_per_chip``. Chips are numbered row-major
    over ``dims`` within an island (a torus, or the chips under one set of switches), islands one after the
    other; a node (instance) is ``chips // nodes`` consecutive chips. Cores of one chip are joined pairwise by
    ``core_gbps`` links.
    """

    name: str
    dims: tuple[int, ...]
    torus: bool
    islands: int
    nodes: int
    cores_per_chip: int
    links: Links
    switches: int = 0
    core_gbps: float = 100.0  # one way, per pair of cores of a chip
    core_us: float = 0.5  # latency between two cores of a chip
    step_us: float = 1.0  # issuing one step: descriptors, semaphores
    launch_us: float = 0.0  # once per collective
    hbm_gib: float = 96.0  # per chip
    hbm_gbps: float = inf  # per chip; unless given, memory costs nothing
    tflops: Mapping[str, float] = field(default_factory=dict)  # per chip, by dtype
    facts: Mapping[str, Fact] = field(default_factory=dict)
    dead_chips: frozenset[int] = frozenset()

    @property
    def chips_per_island(self) -> int:
        return int(np.prod(self.dims, dtype=np.int64))

    @property
    def chips(self) -> int:
        return self.islands * self.chips_per_island

    @property
    def cores(self) -> int:
        return self.chips * self.cores_per_chip

    @property
    def chips_per_node(self) -> int:
        return self.chips // self.nodes

    @property
    def hbm_gbps_per_core(self) -> float:
        return self.hbm_gbps / self.cores_per_chip

    @property
    def core_links(self) -> int:
        """Directed core-to-core links: ``cores_per_chip`` squared per chip, numbered after ``links``."""
        return self.chips * self.cores_per_chip**2

    @cached_property
    def link_gbps(self) -> np.ndarray:
        """GB/s of every link: those of ``links``, then the core-to-core ones."""
        return np.concatenate([self.links.gbps, np.full(self.core_links, self.core_gbps)])

    @cached_property
    def egress_gbps(self) -> np.ndarray:
        """GB/s leaving each chip."""
        return np.bincount(self.links.src, self.links.gbps, self.chips + self.switches)[: self.chips]

    @cached_property
    def ingress_gbps(self) -> np.ndarray:
        """GB/s entering each chip."""
        return np.bincount(self.links.dst, self.links.gbps, self.chips + self.switches)[: self.chips]

    def chip_of(self, core: np.ndarray) -> np.ndarray:
        return np.asarray(core) // self.cores_per_chip

    def node_of(self, chip: np.ndarray) -> np.ndarray:
        return np.asarray(chip) // self.chips_per_node

    def coordinates(self, chip: np.ndarray) -> np.ndarray:
        """Island and position in ``dims`` of each chip, shape ``(len(chip), 1 + len(dims))``."""
        island, place = np.divmod(np.asarray(chip, np.int64), self.chips_per_island)
        return np.stack([island, *np.unravel_index(place, self.dims)], axis=-1)

    def chip_at(self, coordinates: np.ndarray) -> np.ndarray:
        """The inverse of ``coordinates``."""
        island, *place = np.moveaxis(np.asarray(coordinates), -1, 0)
        return island * self.chips_per_island + np.ravel_multi_index(place, self.dims)

    def neighbours(self, chip: int) -> list[int]:
        """Chips one live link away; on a torus in neuron-ls order, [row-1, col-1, row+1, col+1]."""
        live = (self.links.src == chip) & (self.links.gbps > 0) & (self.links.dst < self.chips)
        reached = {int(other) for other in self.links.dst[live]}
        if not self.torus:
            return sorted(reached)
        here = self.coordinates(np.array([chip]))[0]
        order = []
        for way in (-1, 1):
            for axis, size in enumerate(self.dims):
                there = here.copy()
                there[1 + axis] = (there[1 + axis] + way) % size
                order.append(int(self.chip_at(there)))
        return [chip for chip in dict.fromkeys(order) if chip in reached]

    def link_name(self, link: int) -> str:
        """For people: ``chip 0 -> chip 1 (NeuronLink)``, ``core 0 -> core 1 (intra-chip)``."""
        if link >= len(self.links):
            chip, pair = divmod(link - len(self.links), self.cores_per_chip**2)
            a, b = divmod(pair, self.cores_per_chip)
            base = chip * self.cores_per_chip
            return f"core {base + a} -> core {base + b} ({KINDS[INTRA_CHIP]})"
        ends = (self.vertex_name(int(self.links.src[link])), self.vertex_name(int(self.links.dst[link])))
        return f"{ends[0]} -> {ends[1]} ({KINDS[self.links.kind[link]]})"

    def vertex_name(self, vertex: int) -> str:
        return f"chip {vertex}" if vertex < self.chips else f"switch {vertex - self.chips}"

    def with_links(self, gbps: np.ndarray, latency_us: np.ndarray, **changes: object) -> Topology:
        """The same fabric with other link speeds and latencies (faults)."""
        return replace(self, links=replace(self.links, gbps=gbps, latency_us=latency_us), **changes)  # type: ignore[arg-type]

    def check(self) -> Topology:
        """Return self, or raise TopologyError: a link to nowhere, a bad number, an unconnected fabric."""
        for name in ("core_gbps", "hbm_gib", "hbm_gbps"):
            if not getattr(self, name) > 0:
                raise TopologyError(f"{self.name}: {name}={getattr(self, name)}: must be more than 0")
        for name in ("core_us", "step_us", "launch_us"):
            if not getattr(self, name) >= 0:
                raise TopologyError(f"{self.name}: {name}={getattr(self, name)}: must not be negative")
        if self.chips % self.nodes:
            raise TopologyError(f"{self.name}: nodes={self.nodes} does not divide the {self.chips} chips")
        vertices = self.chips + self.switches
        for field_name in ("src", "dst"):
            ends = getattr(self.links, field_name)
            if len(ends) and not (ends.min() >= 0 and ends.max() < vertices):
                bad = int(ends[(ends < 0) | (ends >= vertices)][0])
                raise TopologyError(
                    f"{self.name}: links.{field_name}={bad}: no such chip (0 to {self.chips - 1})"
                )
        if len(self.links) and not (self.links.gbps > 0).all():
            raise TopologyError(f"{self.name}: links.gbps={self.links.gbps.min():g}: must be more than 0")
        if len(self.links) and not (self.links.latency_us >= 0).all():
            raise TopologyError(
                f"{self.name}: links.latency_us={self.links.latency_us.min():g}: must not be negative"
            )
        reached = self._reachable(0)
        if not reached[: self.chips].all():
            raise TopologyError(
                f"{self.name}: links: chip {int(np.argmin(reached))} cannot be reached from chip 0"
            )
        return self

    def _reachable(self, start: int) -> np.ndarray:
        reached = np.zeros(self.chips + self.switches, bool)
        reached[start] = True
        live = self.links.gbps > 0
        src, dst = self.links.src[live], self.links.dst[live]
        while True:
            fresh = dst[reached[src] & ~reached[dst]]
            if not len(fresh):
                return reached
            reached[fresh] = True
