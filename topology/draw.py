"""A topology for the eye: the grid neuron-ls prints, and SVG."""

from __future__ import annotations

from collections.abc import Iterable
from xml.sax.saxutils import escape

import numpy as np

from .topology import Topology

CELL, EDGE, BESIDE = 90, 17, 4  # SVG: from chip to chip, to a chip's edge, between the ways of a wire
WIRE, WRAP_IN, WRAP_OUT = "◄\u2013\u2013►", "*\u2013\u2013►", "◄\u2013\u2013*"  # as neuron-ls draws them


def grid(topology: Topology) -> str:
    """The chips as ``neuron-ls --topology`` draws them, one plane under the other. Empty unless a torus."""
    if not topology.torus or topology.chips == 1:
        return ""
    *outer, columns = topology.dims
    rows = outer.pop() if outer else 1
    planes = np.arange(topology.chips).reshape(-1, rows, columns)
    wraps_down, wraps_across = rows > 2, columns > 2
    lines = ["  Neuron Device Topology"]
    for plane in planes:
        vertical = "        " + "        ".join("{}" for _ in range(columns))
        ends = [vertical.format(*"*" * columns), vertical.format(*"│" * columns)]
        gap = [vertical.format(*symbol * columns) for symbol in ("▲", "│", "▼")]
        if wraps_down:
            lines += [*ends, gap[2]]
        for i, row in enumerate(plane):
            cells = WIRE.join(f"[{chip!s:^3}]" for chip in row)
            lines.append(f"  {WRAP_IN}{cells}{WRAP_OUT}" if wraps_across else f"      {cells}")
            if i < rows - 1:
                lines += gap
        if wraps_down:
            lines += [gap[0], ends[1], ends[0]]
        lines.append("")
    if wraps_across or wraps_down:
        lines += ["  Legend:", "", f"          {WRAP_IN} = Wrap-around link"]
    if len(planes) > 1 and len(topology.dims) > 2:
        lines.append("          Chips in the same place of the planes are linked in a ring")
    return "\n".join(line.rstrip() for line in lines)


def positions(topology: Topology) -> np.ndarray:
    """Where each chip, then each switch, is drawn: (x, y). Switches lie below, larger ones lower."""
    *outer, columns = topology.dims
    rows = outer[-1] if outer else 1
    plane, place = np.divmod(np.arange(topology.chips), rows * columns)
    y, x = np.divmod(place, columns)
    if not topology.torus and rows > columns:  # servers side by side, each over its switch
        x, y, rows, columns = y, x, columns, rows
    across = max(1, int(np.ceil(np.sqrt(len(np.unique(plane))))))
    xy = np.stack([x + plane % across * (columns + 1), y + plane // across * (rows + 1)], axis=1).astype(
        float
    )
    below = []
    ports = np.bincount(topology.links.dst, minlength=topology.chips + topology.switches)[topology.chips :]
    for switch, count in enumerate(ports):
        under = topology.links.src[topology.links.dst == topology.chips + switch]
        level = np.searchsorted(np.unique(ports), count)
        below.append((xy[under, 0].mean(), xy[:, 1].max() + 1.5 + 1.5 * level))
    return (np.concatenate([xy, np.reshape(below, (-1, 2))]) + 1) * CELL


def svg(topology: Topology, *, lit: Iterable[int] = (), title: str = "", numbered: bool = True) -> str:
    """The fabric as an SVG document; the links ``lit`` (of ``topology.links``) in colour with arrowheads."""
    xy = positions(topology)
    bright = set(lit)
    width, height = xy.max(axis=0) + CELL
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
        'font-family="sans-serif">',
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="5" markerHeight="5" '
        'orient="auto">'
        '<path d="M0 0 8 4 0 8z" fill="#d9480f"/></marker></defs>',
        f'<text x="{CELL / 3:.0f}" y="{CELL / 3:.0f}" font-size="16">{escape(title or topology.name)}</text>',
    ]
    for link in sorted(range(len(topology.links)), key=lambda link: link in bright):
        parts.append(_line(topology, xy, link, link in bright))
    for vertex, (x, y) in enumerate(xy):
        parts.append(_vertex(topology, vertex, x, y, numbered))
    return "\n".join([*parts, "</svg>\n"])


def _line(topology: Topology, xy: np.ndarray, link: int, lit: bool) -> str:
    src, dst = int(topology.links.src[link]), int(topology.links.dst[link])
    down = topology.links.gbps[link] == 0
    colour = "#d9480f" if lit else "#f03e3e" if down else "#ced4da"
    style = f'stroke="{colour}" stroke-width="{3 if lit else 1.5}" fill="none"'
    style += ' marker-end="url(#tip)"' if lit else ""
    style += ' stroke-dasharray="4 4"' if down else ""
    out = _way_out(topology, src, dst)
    if out is None:
        along = (xy[dst] - xy[src]) / (float(np.hypot(*(xy[dst] - xy[src]))) or 1.0)
        beside = np.array([-along[1], along[0]]) * BESIDE
        strokes = [(xy[src] + along * EDGE + beside, xy[dst] - along * EDGE + beside)]
    else:
        beside = np.array([-out[1], out[0]]) * BESIDE
        far = out * CELL * 0.42
        strokes = [(xy[src] + out * EDGE + beside, xy[src] + far + beside)]
        strokes.append((xy[dst] - far + beside, xy[dst] - out * EDGE + beside))
    path = "".join(f"M{a[0]:.0f} {a[1]:.0f}L{b[0]:.0f} {b[1]:.0f}" for a, b in strokes)
    return f'<path d="{path}" {style}/>'


def _way_out(topology: Topology, src: int, dst: int) -> np.ndarray | None:
    """For a link drawn as two ends, leaving one chip and entering the other: the way it leaves.

    So are the links of a torus that wrap around, and those between planes. None for one drawn as a line.
    """
    if not topology.torus or max(src, dst) >= topology.chips:
        return None
    (island, *here), (other, *there) = topology.coordinates(np.array([src, dst])).tolist()
    if island != other:
        return None
    axis = next(axis for axis, pair in enumerate(zip(here, there, strict=True)) if pair[0] != pair[1])
    from_last = len(here) - 1 - axis
    if from_last < 2 and abs(here[axis] - there[axis]) == 1:
        return None
    way = 1 if (there[axis] - here[axis]) % topology.dims[axis] == 1 else -1
    return way * np.array([(1.0, 0.0), (0.0, 1.0), (0.7, -0.7)][min(from_last, 2)])


def _vertex(topology: Topology, vertex: int, x: float, y: float, numbered: bool) -> str:
    is_chip = vertex < topology.chips
    fill = "#ffa8a8" if vertex in topology.dead_chips else "#e7f5ff" if is_chip else "#fff3bf"
    corner = f'x="{x - 16:.0f}" y="{y - 16:.0f}" rx="{5 if is_chip else 16}"'
    shape = f'<rect {corner} width="32" height="32" fill="{fill}" stroke="#495057"/>'
    if not numbered:
        return shape
    label = str(vertex) if is_chip else f"s{vertex - topology.chips}"
    return shape + f'<text x="{x:.0f}" y="{y + 4:.0f}" font-size="12" text-anchor="middle">{label}</text>'
