"""One schedule told step by step: in words, and as a picture of the links lit in each step."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from ..topology import Group, routes
from ..topology.draw import svg
from .price import Profile
from .schedule import Schedule


def step_lines(profile: Profile, *, size: int, show: int = 6) -> Iterator[str]:
    """For each step: how much moves, its cost, its busiest link, and its first ``show`` transfers."""
    schedule, group = profile.schedule, profile.group
    for step in range(schedule.steps):
        rows = schedule.rows(step)
        count = rows.stop - rows.start
        moved = float(schedule.fraction[rows].sum()) * size
        load = link_load(schedule, group, step)
        link = group.topology.link_name(int(np.argmax(load))) if load.any() else "-"
        verb = _verb(schedule, rows)
        yield (
            f"step {step}: {count} transfers {verb} {_bytes(moved)} in all; "
            f"alpha {profile.alpha_us[step]:.2f} us, links {profile.link_us[step] * size:.2f} us "
            f"(busiest {link}), HBM {profile.hbm_us[step] * size:.2f} us"
        )
        for row in range(rows.start, min(rows.stop, rows.start + show)):
            yield f"    {transfer_words(schedule, row)}"
        if count > show:
            yield f"    ... and {count - show} more"


def transfer_words(schedule: Schedule, row: int) -> str:
    """``rank 0 -> rank 1: adds chunks 3 to 5 (channel 2)``."""
    lo, hi = int(schedule.lo[row]), int(schedule.hi[row])
    what = f"chunk {lo}" if hi == lo + 1 else f"chunks {lo} to {hi - 1}"
    verb = "adds" if schedule.reduce[row] else "copies"
    ends = f"rank {schedule.src[row]} -> rank {schedule.dst[row]}"
    return f"{ends}: {verb} {what} (channel {schedule.channel[row]})"


def link_load(schedule: Schedule, group: Group, step: int) -> np.ndarray:
    """Sizes S each link carries in a step, chip-to-chip links first, then core-to-core ones."""
    rows = schedule.rows(step)
    paths = routes(group.topology, group.cores[schedule.src[rows]], group.cores[schedule.dst[rows]])
    row, link, share = paths.expand(np.arange(rows.stop - rows.start))
    return np.bincount(link, schedule.fraction[rows][row] * share, len(group.topology.link_gbps))


def steps_svg(schedule: Schedule, group: Group) -> str:
    """One SVG with the fabric drawn once a step, the links the step uses lit; three pictures a row."""
    pictures = []
    for step in range(schedule.steps):
        lit = np.flatnonzero(link_load(schedule, group, step)[: len(group.topology.links)])
        title = f"{schedule.op} by {schedule.name}: step {step} of {schedule.steps}"
        pictures.append(svg(group.topology, lit=lit.tolist(), title=title))
    if not pictures:
        return svg(group.topology, title=f"{schedule.op} by {schedule.name}: nothing to do")
    found = re.search(r'viewBox="0 0 (\d+) (\d+)"', pictures[0])
    assert found is not None
    width, height = int(found[1]), int(found[2])
    columns, rows = min(3, len(pictures)), -(-len(pictures) // 3)
    placed = [
        picture.replace(
            "<svg ", f'<svg x="{i % 3 * width}" y="{i // 3 * height}" width="{width}" height="{height}" ', 1
        )
        for i, picture in enumerate(pictures)
    ]
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {columns * width} {rows * height}">'
    return "\n".join([head, *placed, "</svg>\n"])


def _verb(schedule: Schedule, rows: slice) -> str:
    sums = schedule.reduce[rows]
    return "add" if sums.all() else "copy" if not sums.any() else "copy or add"


def _bytes(count: float) -> str:
    for unit, scale in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= scale:
            return f"{count / scale:.4g} {unit}"
    return f"{count:.4g} B"
