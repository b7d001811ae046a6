"""How schedules make larger ones: reversed, one after the other, side by side, one inside the other.

With these a ring is three lines, a torus bucket is rings nested in each other, a hierarchy is any algorithm
nested in any other, and nobody writes an all-gather twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import lcm
from typing import Any

import numpy as np

from .errors import Unsupported
from .ops import OPS
from .schedule import COLUMNS, Schedule, transfers

_REVERSED = {
    "reduce_scatter": "all_gather",
    "all_gather": "reduce_scatter",
    "broadcast": "reduce",
    "reduce": "broadcast",
    "gather": "scatter",
    "scatter": "gather",
}


def reverse(schedule: Schedule) -> Schedule:
    """The dual: run backwards, copies and reduces exchanged. An all-gather gives a reduce-scatter."""
    op = _REVERSED[schedule.op]
    order = slice(None, None, -1)
    columns = {name: column[order] for name, column in schedule.columns.items()}
    columns["step"] = schedule.steps - 1 - columns["step"]
    columns["src"], columns["dst"] = columns["dst"], columns["src"]
    columns["reduce"] = np.full(schedule.transfers, OPS[op].reduces)
    return replace(schedule, op=op, **columns)


def then(op: str, *parts: Schedule) -> Schedule:
    """One after the other, over the same chunks."""
    first = parts[0]
    offsets = np.cumsum([0, *(part.steps for part in parts)])
    columns: dict[str, Any] = {
        name: np.concatenate([getattr(part, name) for part in parts]) for name in COLUMNS
    }
    columns["step"] = np.concatenate(
        [part.step + np.int32(o) for part, o in zip(parts, offsets, strict=False)]
    )
    return replace(first, op=op, pipelined=any(part.pipelined for part in parts), **columns)


def side_by_side(parts: Sequence[Schedule], weights: Sequence[int] | None = None) -> Schedule:
    """At once, each on its own slice of every block; slices are as wide as ``weights`` (equal by default)."""
    weights = [1] * len(parts) if weights is None else weights
    first = parts[0]
    grain = lcm(*(part.block_units for part in parts))
    slices = np.concatenate([[0], np.cumsum([weight * grain for weight in weights])])
    block_units = int(slices[-1])
    columns: dict[str, list[np.ndarray]] = {name: [] for name in (*COLUMNS, "start", "width")}
    chunks = channels = 0
    for part, offset, weight in zip(parts, slices, weights, strict=False):
        scale = weight * grain // part.block_units
        shifted: dict[str, Any] = {"lo": part.lo + np.int32(chunks), "hi": part.hi + np.int32(chunks)}
        shifted["channel"] = part.channel + np.int16(channels)
        shifted["start"] = part.block * block_units + offset + part.start % part.block_units * scale
        shifted["width"] = part.width * scale
        for name, column in columns.items():
            column.append(shifted[name] if name in shifted else getattr(part, name))
        chunks += part.chunks
        channels += int(part.channel.max(initial=0)) + 1
    joined: dict[str, Any] = {name: np.concatenate(column) for name, column in columns.items()}
    order = np.argsort(joined["step"], kind="stable")
    joined |= {name: joined[name][order] for name in COLUMNS}
    return replace(first, units=block_units * first.spec.blocks(first.ranks), **joined)


def nest(inner: Schedule, outer: Schedule) -> Schedule:
    """Reduce-scatter inside groups, then among them: rank ``g * inner.ranks + j`` is rank j of group g.

    Each chunk that rank j of every group then holds is cut as ``outer`` cuts a buffer and reduced by the j's.
    """
    inside = _inside(inner, outer)
    among = _among(inner, outer)
    block = outer.block[None, :] * inner.ranks + inner.block[:, None]
    within_inner = (inner.start % inner.block_units)[:, None]
    within_outer = (outer.start % outer.block_units)[None, :]
    units = inner.block_units * outer.block_units
    start = block * units + within_inner * outer.block_units + within_outer * inner.width[:, None]
    width = inner.width[:, None] * outer.width[None, :]
    joined = then("reduce_scatter", inside, among)
    ranks = inner.ranks * outer.ranks
    return replace(joined, start=start.ravel(), width=width.ravel(), units=ranks * units)


def sandwich(inner: Schedule, outer: Schedule) -> Schedule:
    """All-reduce in three: reduce-scatter inside every group, all-reduce among them, all-gather inside."""
    inside = _inside(inner, outer)
    start = inner.start[:, None] * outer.units + outer.start[None, :] * inner.width[:, None]
    width = inner.width[:, None] * outer.width[None, :]
    joined = then("all_reduce", inside, _among(inner, outer), reverse(inside))
    return replace(joined, start=start.ravel(), width=width.ravel(), units=inner.units * outer.units)


def _inside(inner: Schedule, outer: Schedule) -> Schedule:
    """``inner`` in each of ``outer.ranks`` groups at once, its chunks cut as ``outer`` cuts."""
    base = np.repeat(np.arange(outer.ranks, dtype=np.int32) * inner.ranks, inner.transfers)
    columns = {name: np.tile(getattr(inner, name), outer.ranks) for name in COLUMNS}
    columns["src"], columns["dst"] = columns["src"] + base, columns["dst"] + base
    columns["lo"], columns["hi"] = columns["lo"] * outer.chunks, columns["hi"] * outer.chunks
    return replace(inner, ranks=inner.ranks * outer.ranks).with_columns(**columns)


def _among(inner: Schedule, outer: Schedule) -> Schedule:
    """``outer`` for every chunk of ``inner``, among the ranks of all groups that own the chunk."""
    chunk = np.repeat(np.arange(inner.chunks, dtype=np.int32), outer.transfers)
    owner = inner.block[chunk].astype(np.int32)
    columns = {name: np.tile(getattr(outer, name), inner.chunks) for name in COLUMNS}
    columns["src"], columns["dst"] = (columns[end] * inner.ranks + owner for end in ("src", "dst"))
    columns["lo"], columns["hi"] = columns["lo"] + chunk * outer.chunks, columns["hi"] + chunk * outer.chunks
    return replace(outer, ranks=inner.ranks * outer.ranks).with_columns(**columns)


def relabel(schedule: Schedule, ranks: np.ndarray) -> Schedule:
    """Rank r becomes ``ranks[r]``, and so do the blocks that belong to it."""
    ranks = np.asarray(ranks, np.int32)
    start = schedule.start
    if schedule.spec.blocks(len(ranks)) == len(ranks):
        start = ranks[schedule.block] * schedule.block_units + start % schedule.block_units
    src, dst, root = ranks[schedule.src], ranks[schedule.dst], int(ranks[schedule.root])
    return replace(schedule, src=src, dst=dst, start=start, root=root)


def fold(core: Schedule, ranks: int) -> Schedule:
    """A reduce-scatter for more ranks than ``core`` takes: rank ``core.ranks + i`` first gives all to rank i.

    Rank i takes part for both, and hands the other's finished block back last. One step more at either end.
    """
    extra = ranks - core.ranks
    if not extra:
        return core
    # A chunk of rank i < extra becomes two: its own and the guest's.
    copies = np.where(core.block < extra, 2, 1)
    first = np.concatenate([[0], np.cumsum(copies)])
    guest = np.arange(first[-1]) - np.repeat(first[:-1], copies)
    origin = np.repeat(np.arange(core.chunks), copies)
    owner = core.block[origin] + guest * core.ranks
    start = owner * core.block_units + core.start[origin] % core.block_units
    hosted = replace(core, ranks=ranks).with_columns(
        lo=first[core.lo].astype(np.int32), hi=first[core.hi].astype(np.int32)
    )
    guests, chunk = np.meshgrid(np.arange(core.ranks, ranks), np.arange(first[-1]), indexing="ij")
    keep = owner[chunk] != guests
    come = transfers(
        "reduce_scatter", ranks, step=0, src=guests[keep], dst=guests[keep] - core.ranks, lo=chunk[keep]
    )
    last = np.flatnonzero(guest)
    leave = transfers("reduce_scatter", ranks, step=0, src=owner[last] - core.ranks, dst=owner[last], lo=last)
    joined = then("reduce_scatter", merge_intervals(come), hosted, leave)
    return replace(joined, start=start, width=core.width[origin], units=core.block_units * ranks)


def merge_intervals(schedule: Schedule) -> Schedule:
    """The same transfers with adjacent chunk intervals of one message joined."""
    keys = [getattr(schedule, name) for name in ("lo", "channel", "reduce", "dst", "src", "step")]
    order = np.lexsort(keys)
    columns = {name: column[order] for name, column in schedule.columns.items()}
    if not len(order):
        return schedule
    same = columns["lo"][1:] == columns["hi"][:-1]
    for name in ("step", "src", "dst", "reduce", "channel"):
        same &= columns[name][1:] == columns[name][:-1]
    first = np.concatenate([[True], ~same])
    last = np.concatenate([~same, [True]])
    hi = columns["hi"][last]
    columns = {name: column[first] for name, column in columns.items()}
    return replace(schedule, **columns | {"hi": hi})


def derive(schedule: Schedule, op: str, root: int = 0) -> Schedule:
    """The schedule of ``op`` that follows from one of another op. Raises Unsupported where none does.

    all_gather and reduce_scatter are each other reversed; all_reduce is both; broadcast is a scatter and
    all_gather, reduce a reduce_scatter and gather. A broadcast tree reversed reduces, and both make an
    all_reduce.
    """
    if schedule.op == op:
        return schedule
    if schedule.op == "all_gather" and op in ("reduce_scatter", "all_reduce", "broadcast", "reduce"):
        return derive(reverse(schedule), op, root)
    if schedule.op == "reduce_scatter":
        if op == "all_gather":
            return reverse(schedule)
        if op == "all_reduce":
            return then(op, schedule, reverse(schedule))
        if op in ("broadcast", "reduce"):
            broadcast = _by_scatter(reverse(schedule), root)
            return broadcast if op == "broadcast" else reverse(broadcast)
    if _REVERSED.get(schedule.op) == op and schedule.root == root:
        return reverse(schedule)
    if (schedule.op, op) == ("broadcast", "all_reduce"):
        return then(op, reverse(schedule), schedule)
    if (schedule.op, op) == ("reduce", "all_reduce"):
        return then(op, schedule, reverse(schedule))
    raise Unsupported(f"{op} does not follow from the {schedule.op} of {schedule.name or 'this algorithm'}")


def _by_scatter(all_gather: Schedule, root: int) -> Schedule:
    """A broadcast: the root hands every rank its block, then they gather; the root needs nothing back."""
    chunk = np.arange(all_gather.chunks)
    hand_out = transfers("scatter", all_gather.ranks, step=0, src=root, dst=all_gather.block, lo=chunk)
    gather = all_gather.where(all_gather.dst != root)
    return replace(
        then("broadcast", gather.with_columns(**merge_intervals(hand_out).columns), gather), root=root
    )
