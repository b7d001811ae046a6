"""The shapes fabrics come in: ring, torus, switch levels, and several nodes joined by EFA."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from .errors import TopologyError
from .topology import EFA, NEURON_LINK, SWITCH, Links, Topology

LINK_GBPS = 128.0
LINK_US = 0.5
EFA_US = 15.0  # Neuron's inter-node latency for the least packet


@dataclass(frozen=True)
class SwitchLevel:
    """Every ``chips`` consecutive chips hang on one switch, each by ``gbps`` each way and ``latency_us``."""

    chips: int
    gbps: float
    latency_us: float


def torus(
    dims: Sequence[int],
    gbps: float | Sequence[float] = LINK_GBPS,
    latency_us: float | Sequence[float] = LINK_US,
    *,
    cores_per_chip: int = 1,
    nodes: int = 1,
    name: str = "",
    **numbers: object,
) -> Topology:
    """A torus, chips row-major; ``gbps`` and ``latency_us`` per link, one value or one a dimension.

    A dimension of 2 has one link per pair, not two. ``numbers`` are further fields of Topology.
    """
    dims = tuple(dims)
    if not dims or min(dims) < 1:
        raise TopologyError(f"torus dims={dims}: every dimension must be 1 or more")
    speeds, delays = _per_dim("gbps", gbps, dims), _per_dim("latency_us", latency_us, dims)
    chips = np.arange(int(np.prod(dims))).reshape(dims)
    rows: list[tuple[int, int, float, float, int]] = []
    for axis, size in enumerate(dims):
        for way in (1, -1) if size > 2 else (1,) if size == 2 else ():
            there = np.roll(chips, -way, axis)
            rows += [
                (int(a), int(b), speeds[axis], delays[axis], NEURON_LINK)
                for a, b in zip(chips.ravel(), there.ravel(), strict=True)
            ]
    name = name or "torus:" + "x".join(map(str, dims))
    return Topology(name, dims, True, 1, nodes, cores_per_chip, Links.of(rows), **numbers).check()  # type: ignore[arg-type]


def ring(chips: int, gbps: float = LINK_GBPS, latency_us: float = LINK_US, **numbers: object) -> Topology:
    """A torus of one dimension."""
    numbers.setdefault("name", f"ring:{chips}")
    return torus((chips,), gbps, latency_us, **numbers)  # type: ignore[arg-type]


def switched(
    dims: Sequence[int],
    levels: Sequence[SwitchLevel],
    direct: SwitchLevel | None = None,
    *,
    cores_per_chip: int = 1,
    nodes: int = 1,
    name: str = "",
    **numbers: object,
) -> Topology:
    """Chips under levels of switches. ``direct.chips`` is a stride: chip i is also wired to chip i + stride.

    ``dims`` only shape the numbering (servers by chips); a switch joins any of its chips in two links.
    """
    dims = tuple(dims)
    chips = int(np.prod(dims))
    rows: list[tuple[int, int, float, float, int]] = []
    switches = 0
    for level in levels:
        if level.chips < 1 or chips % level.chips:
            raise TopologyError(
                f"{name or 'switch'}: levels.chips={level.chips} does not divide {chips} chips"
            )
        for chip in range(chips):
            switch = chips + switches + chip // level.chips
            rows += [
                (chip, switch, level.gbps, level.latency_us, SWITCH),
                (switch, chip, level.gbps, level.latency_us, SWITCH),
            ]
        switches += chips // level.chips
    if direct:
        for a in range(chips - direct.chips):
            b = a + direct.chips
            rows += [(x, y, direct.gbps, direct.latency_us, NEURON_LINK) for x, y in ((a, b), (b, a))]
    name = name or "switch:" + "x".join(map(str, dims))
    links = Links.of(rows)
    return Topology(name, dims, False, 1, nodes, cores_per_chip, links, switches, **numbers).check()  # type: ignore[arg-type]


def from_links(chips: int, rows: list[tuple[int, int, float, float]], **numbers: object) -> Topology:
    """Any fabric: both directions of every ``(chip, chip, gbps, latency_us)``, routed by shortest path."""
    both = [(x, y, gbps, us, NEURON_LINK) for a, b, gbps, us in rows for x, y in ((a, b), (b, a))]
    fields: dict[str, object] = {"name": f"links:{chips}", "nodes": 1, "cores_per_chip": 1} | numbers
    return Topology(dims=(chips,), torus=False, islands=1, links=Links.of(both), **fields).check()  # type: ignore[arg-type]


def several(node: Topology, count: int, efa_gbps: float, latency_us: float = EFA_US) -> Topology:
    """``count`` copies of ``node`` joined by EFA: every chip has its share of NICs, ``efa_gbps`` each way.

    The network between the nodes is one non-blocking switch; the latency is charged on the way up.
    """
    if count < 1:
        raise TopologyError(f"{node.name}*{count}: the number of nodes must be 1 or more")
    if count == 1:
        return node
    if not efa_gbps > 0:
        raise TopologyError(
            f"{node.name}*{count}: {node.name} has no EFA: it cannot be joined to other nodes"
        )
    chips = node.chips * count
    switch = chips + node.switches * count
    links = node.links

    def moved(vertex: np.ndarray, copy: int) -> np.ndarray:
        return np.where(
            vertex < node.chips,
            vertex + copy * node.chips,
            vertex - node.chips + chips + copy * node.switches,
        )

    copies = [replace(links, src=moved(links.src, i), dst=moved(links.dst, i)) for i in range(count)]
    up = Links.of([(chip, switch, efa_gbps, latency_us, EFA) for chip in range(chips)])
    down = Links.of([(switch, chip, efa_gbps, 0.0, EFA) for chip in range(chips)])
    parts = [*copies, up, down]
    columns = (np.concatenate([getattr(part, name) for part in parts]) for name in Links.__dataclass_fields__)
    return replace(
        node,
        name=f"{node.name}*{count}",
        islands=node.islands * count,
        nodes=node.nodes * count,
        links=Links(*columns),
        switches=node.switches * count + 1,
    ).check()


def _per_dim(name: str, value: float | Sequence[float], dims: tuple[int, ...]) -> list[float]:
    values = [float(value)] * len(dims) if isinstance(value, (int, float)) else [float(v) for v in value]
    if len(values) != len(dims):
        raise TopologyError(f"torus {name}={values}: {len(values)} values for {len(dims)} dimensions")
    return values
