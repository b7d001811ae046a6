"""A log-log line chart as SVG, enough for time by size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil, floor, log10
from xml.sax.saxutils import escape

COLOURS = (
    "#1c7ed6",
    "#d9480f",
    "#2f9e44",
    "#862e9c",
    "#e8590c",
    "#0b7285",
    "#a61e4d",
    "#5c940d",
    "#364fc7",
    "#495057",
)
WIDTH, HEIGHT, MARGIN, LEGEND = 860, 480, 60, 170


def log_log_svg(lines: Mapping[str, Sequence[tuple[float, float]]], title: str) -> str:
    """Each name's points (x, y), both above 0, as a line over ruled decades; the legend by last y."""
    drawn = {
        name: [(log10(x), log10(y)) for x, y in points if x > 0 and y > 0] for name, points in lines.items()
    }
    drawn = {name: points for name, points in drawn.items() if points}
    xs = [x for points in drawn.values() for x, _ in points] or [0.0]
    ys = [y for points in drawn.values() for _, y in points] or [0.0]
    left, right, bottom, top = (
        floor(min(xs)),
        max(ceil(max(xs)), floor(min(xs)) + 1),
        floor(min(ys)),
        ceil(max(ys) + 1e-9),
    )

    def at(x: float, y: float) -> tuple[float, float]:
        across = MARGIN + (x - left) / (right - left) * (WIDTH - MARGIN - LEGEND)
        up = HEIGHT - MARGIN - (y - bottom) / max(top - bottom, 1) * (HEIGHT - 2 * MARGIN)
        return across, up

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        'font-family="sans-serif" font-size="12">',
        f'<text x="{MARGIN}" y="30" font-size="15">{escape(title)}</text>',
    ]
    for decade in range(left, right + 1):
        x, _ = at(decade, bottom)
        parts.append(f'<path d="M{x:.1f} {MARGIN}V{HEIGHT - MARGIN}" stroke="#dee2e6"/>')
        parts.append(f'<text x="{x:.1f}" y="{HEIGHT - MARGIN + 18}" text-anchor="middle">1e{decade}</text>')
    for decade in range(bottom, top + 1):
        _, y = at(left, decade)
        parts.append(f'<path d="M{MARGIN} {y:.1f}H{WIDTH - LEGEND}" stroke="#dee2e6"/>')
        parts.append(f'<text x="{MARGIN - 8}" y="{y + 4:.1f}" text-anchor="end">{10.0**decade:g}</text>')
    ordered = sorted(drawn.items(), key=lambda item: -item[1][-1][1])
    for i, (name, points) in enumerate(ordered):
        colour, dash = COLOURS[i % len(COLOURS)], ' stroke-dasharray="6 3"' if i >= len(COLOURS) else ""
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in (at(*point) for point in points))
        y = MARGIN + 16 * i
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"{dash}/>')
        parts.append(f'<path d="M{WIDTH - LEGEND + 12} {y}h22" stroke="{colour}" stroke-width="2"{dash}/>')
        parts.append(f'<text x="{WIDTH - LEGEND + 40}" y="{y + 4}">{escape(name)}</text>')
    return "\n".join([*parts, "</svg>\n"])
