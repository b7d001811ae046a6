"""Faults: a link down, slow or late, a chip down. Each returns the fabric as it then is."""

from __future__ import annotations

import numpy as np

from .errors import TopologyError
from .topology import Topology

_FORMS = "link:A-B:down, link:A-B:slow=FACTOR, link:A-B:late=US or chip:A:down"


def link_down(topology: Topology, a: int, b: int) -> Topology:
    """Without the wire between chips ``a`` and ``b``, both directions."""
    return _change(topology, f"link:{a}-{b}:down", _wire(topology, a, b), factor=0.0)


def link_slow(topology: Topology, a: int, b: int, factor: float) -> Topology:
    """The wire between ``a`` and ``b`` at ``factor`` (0 to 1) of its bandwidth."""
    if not 0 < factor <= 1:
        raise TopologyError(f"fault link:{a}-{b}:slow={factor:g}: the factor must be above 0 and at most 1")
    return _change(topology, f"link:{a}-{b}:slow={factor:g}", _wire(topology, a, b), factor=factor)


def link_late(topology: Topology, a: int, b: int, added_us: float) -> Topology:
    """The wire between ``a`` and ``b`` with ``added_us`` of latency more."""
    if not 0 <= added_us < float("inf"):
        raise TopologyError(f"fault link:{a}-{b}:late={added_us:g}: the added latency must not be negative")
    return _change(topology, f"link:{a}-{b}:late={added_us:g}", _wire(topology, a, b), added_us=added_us)


def chip_down(topology: Topology, chip: int) -> Topology:
    """Without chip ``chip``: its links are down and its cores can be in no group."""
    if not 0 <= chip < topology.chips:
        raise TopologyError(
            f"fault chip:{chip}:down: no such chip on {topology.name} (0 to {topology.chips - 1})"
        )
    links = np.flatnonzero((topology.links.src == chip) | (topology.links.dst == chip))
    return _change(topology, f"chip:{chip}:down", links, factor=0.0, dead_chips=topology.dead_chips | {chip})


def apply(topology: Topology, fault: str) -> Topology:
    """A fault from its text: link:0-1:down, link:0-1:slow=0.5, link:0-1:late=3 or chip:5:down."""
    try:
        what, where, how = fault.split(":")
        kind, _, amount = how.partition("=")
        if what == "chip" and how == "down":
            return chip_down(topology, int(where))
        a, b = (int(end) for end in where.split("-"))
        if what == "link" and how == "down":
            return link_down(topology, a, b)
        if what == "link" and kind in ("slow", "late"):
            return {"slow": link_slow, "late": link_late}[kind](topology, a, b, float(amount))
    except TopologyError:
        raise
    except ValueError:
        pass
    raise TopologyError(f"fault {fault!r}: expected {_FORMS}")


def _wire(topology: Topology, a: int, b: int) -> np.ndarray:
    wire = np.concatenate([topology.links.between(a, b), topology.links.between(b, a)])
    if not len(wire):
        raise TopologyError(
            f"fault link:{a}-{b}: there is no link between chips {a} and {b} on {topology.name}"
        )
    return wire


def _change(
    topology: Topology,
    fault: str,
    links: np.ndarray,
    factor: float = 1.0,
    added_us: float = 0.0,
    **changes: object,
) -> Topology:
    gbps, latency = topology.links.gbps.copy(), topology.links.latency_us.copy()
    gbps[links] *= factor
    latency[links] += added_us
    return topology.with_links(gbps, latency, name=f"{topology.name} {fault}", **changes)
