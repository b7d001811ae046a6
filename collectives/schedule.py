"""The schedule: a collective algorithm as a value.

A schedule is a list of transfers in columns. A transfer moves the chunks ``lo`` to ``hi - 1`` from one rank
to the same place at another in one step, and there replaces what was held (copy) or is added to it (reduce).
Transfers of one step run at once:

- every transfer reads what its source held when the step began;
- all that arrives for one chunk at one rank in a step, with what the rank holds already, is summed left to
  right, each term in the place of the lowest rank it contains. That does not depend on who adds: two ranks
  that exchange partial sums get the same bits.

Chunks are named in whatever order suits the algorithm, so that what moves together is one interval. Where
chunk c lies is said by ``start`` and ``width``, in units of which the space has ``units``: for n elements,
chunk c is elements ``n * start // units`` to ``n * (start + width) // units``. This holds for any n: chunks
may be empty, none overlap.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from .errors import CollectiveError
from .ops import OPS, Op

COLUMNS = ("step", "src", "dst", "lo", "hi", "reduce", "channel")


@dataclass(frozen=True, eq=False)
class Schedule:
    """Transfers sorted by step; ``root`` is for rooted ops, ``pairs`` (src, dst) for permute and send_recv.

    ``channel`` tells apart streams of transfers that do not wait for each other within a step. ``pipelined``:
    every chunk is cut into pieces that follow each other, piece i doing step s at tick i + s; the pricer
    picks how many.
    """

    op: str
    ranks: int
    step: np.ndarray
    src: np.ndarray
    dst: np.ndarray
    lo: np.ndarray
    hi: np.ndarray
    reduce: np.ndarray
    channel: np.ndarray
    start: np.ndarray
    width: np.ndarray
    units: int
    name: str = ""
    root: int = 0
    pairs: tuple[tuple[int, int], ...] = ()
    pipelined: bool = False

    @property
    def spec(self) -> Op:
        return OPS[self.op]

    @property
    def chunks(self) -> int:
        return len(self.start)

    @property
    def transfers(self) -> int:
        return len(self.step)

    @cached_property
    def steps(self) -> int:
        return int(self.step[-1]) + 1 if len(self.step) else 0

    @property
    def block_units(self) -> int:
        """Units in a block of the op."""
        return self.units // self.spec.blocks(self.ranks)

    @property
    def block(self) -> np.ndarray:
        """The block each chunk lies in."""
        return self.start // max(self.block_units, 1)

    @cached_property
    def fraction(self) -> np.ndarray:
        """By transfer: its bytes as a share of one rank's buffer (the S of nccl-tests)."""
        edges = np.concatenate([[0], np.cumsum(self.width)])
        return (edges[self.hi] - edges[self.lo]) * (self.spec.span(self.ranks) / self.units)

    def elements(self, count: int) -> np.ndarray:
        """First and past-the-last element of each chunk, of ``count`` in the space; shape ``(chunks, 2)``."""
        whole, rest = divmod(count, self.units)
        edges = np.stack([self.start, self.start + self.width], axis=1)
        return edges * whole + edges * rest // self.units

    @property
    def columns(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in COLUMNS}

    def rows(self, step: int) -> slice:
        """The transfers of one step."""
        first, last = np.searchsorted(self.step, [step, step + 1])
        return slice(int(first), int(last))

    def where(self, mask: np.ndarray) -> Schedule:
        """The schedule with only the transfers of the mask."""
        return self.with_columns(**{name: column[mask] for name, column in self.columns.items()})

    def with_columns(self, **columns: np.ndarray) -> Schedule:
        """The schedule with some columns replaced, sorted again."""
        table = self.columns | columns
        order = np.argsort(table["step"], kind="stable")
        if (np.diff(order) != 1).any():
            table = {name: column[order] for name, column in table.items()}
        return replace(self, **table)

    @property
    def title(self) -> str:
        return f"{self.op} by {self.name or 'this schedule'}"

    def describe(self, row: int) -> str:
        """A transfer in words: ``all_reduce by ring, step 3, reduce 0 -> 1 of chunk 5``."""
        at = {name: column[row] for name, column in self.columns.items()}
        chunks = f"chunk {at['lo']}" if at["hi"] == at["lo"] + 1 else f"chunks {at['lo']} to {at['hi'] - 1}"
        verb = "reduce" if at["reduce"] else "copy"
        return f"{self.title}, step {at['step']}, {verb} {at['src']} -> {at['dst']} of {chunks}"

    def check(self) -> None:
        """Raise CollectiveError unless well formed: real ranks, real chunks, and these tile every block."""
        wrong = (
            (
                (self.src < 0) | (self.src >= self.ranks),
                f"the source is no rank of the group of {self.ranks}",
            ),
            (
                (self.dst < 0) | (self.dst >= self.ranks),
                f"the target is no rank of the group of {self.ranks}",
            ),
            (self.src == self.dst, "a rank sends to itself"),
            (
                (self.lo < 0) | (self.hi > self.chunks) | (self.lo >= self.hi),
                f"not among the {self.chunks} chunks",
            ),
            (self.step < 0, "a negative step"),
            (np.diff(self.step, prepend=0) < 0, "transfers are not sorted by step"),
        )
        for mask, why in wrong:
            if mask.any():
                raise CollectiveError(f"{self.describe(int(np.argmax(mask)))}: {why}")
        order = np.argsort(self.start)
        starts, ends = self.start[order], (self.start + self.width)[order]
        tiled = self.chunks and starts[0] == 0 and ends[-1] == self.units and (starts[1:] == ends[:-1]).all()
        blocks = self.spec.blocks(self.ranks)
        if not tiled:
            raise CollectiveError(
                f"{self.title}: the chunks do not tile the {self.units} units of the buffer"
            )
        if self.units % blocks or ((self.start + self.width - 1) // self.block_units != self.block).any():
            raise CollectiveError(f"{self.title}: a chunk lies across the edge of two of the {blocks} blocks")


def transfers(
    op: str,
    ranks: int,
    *,
    step: object,
    src: object,
    dst: object,
    lo: object,
    hi: object = None,
    reduce: object = None,
    channel: object = 0,
    chunks: int | None = None,
    **fields: object,
) -> Schedule:
    """A schedule from columns that broadcast against each other.

    ``hi`` defaults to ``lo + 1``, ``reduce`` to whether the op reduces. ``chunks`` equal chunks, as many as
    the op has blocks by default; chunk i lies i-th. Transfers from a rank to itself are left out.
    """
    lo = np.asarray(lo)
    hi = lo + 1 if hi is None else hi
    reduce = OPS[op].reduces if reduce is None else reduce
    columns = np.broadcast_arrays(*(np.asarray(c) for c in (step, src, dst, lo, hi, reduce, channel)))
    kept = (columns[1] != columns[2]).ravel()
    flat = [column.ravel()[kept] for column in columns]
    order = np.argsort(flat[0], kind="stable")
    types = (np.int32,) * 5 + (bool, np.int16)
    table = {name: column[order].astype(t) for name, column, t in zip(COLUMNS, flat, types, strict=True)}
    chunks = OPS[op].blocks(ranks) if chunks is None else chunks
    start = np.arange(chunks, dtype=np.int64)
    return Schedule(op, ranks, **table, start=start, width=np.ones_like(start), units=chunks, **fields)  # type: ignore[arg-type]


class Draft:
    """A schedule written transfer by transfer, for algorithms that are easier said than broadcast.

    Example, a broadcast down a chain of ranks::

        draft = Draft("broadcast", ranks=4)
        for rank in range(3):
            draft.copy(step=rank, src=rank, dst=rank + 1, chunk=0)
        schedule = draft.schedule()
    """

    def __init__(self, op: str, ranks: int, chunks: int | None = None):
        """``chunks`` equal chunks; by default one per block of the op: for all_gather, one per rank."""
        if op not in OPS:
            raise CollectiveError(f"op {op!r}: expected one of {', '.join(OPS)}")
        self.op, self.ranks = op, ranks
        self.chunks = OPS[op].blocks(ranks) if chunks is None else chunks
        self._rows: list[tuple[int, int, int, int, int, bool, int]] = []

    def copy(
        self, *, step: int, src: int, dst: int, chunk: int, to: int | None = None, channel: int = 0
    ) -> None:
        """In ``step``, ``dst`` gets chunk ``chunk`` (to ``to`` - 1) of ``src`` in place of its own."""
        self._rows.append((step, src, dst, chunk, chunk + 1 if to is None else to, False, channel))

    def reduce(
        self, *, step: int, src: int, dst: int, chunk: int, to: int | None = None, channel: int = 0
    ) -> None:
        """In ``step``, ``dst`` adds chunk ``chunk`` (to ``to`` - 1) of ``src`` to its own."""
        self._rows.append((step, src, dst, chunk, chunk + 1 if to is None else to, True, channel))

    def schedule(self, **fields: object) -> Schedule:
        """The finished value. Fields such as ``name`` and ``root`` as in Schedule."""
        columns: Iterable = zip(*self._rows, strict=True) if self._rows else ([],) * len(COLUMNS)
        table = dict(zip(COLUMNS, (np.array(list(c), np.int64) for c in columns), strict=True))
        return transfers(self.op, self.ranks, **table, chunks=self.chunks, **fields)
