"""The order in which a schedule sums each chunk: a small postfix program per chunk over the ranks.

It is a property of the schedule alone, and all an executor needs to get the bits the walk along the hops
would get: push the named rank's elements of the chunk, or add the top two of the stack and round to the
wire's type.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .errors import VerificationError
from .ops import ALL, holders
from .schedule import Schedule

ADD = -1


@dataclass(frozen=True)
class ReductionOrder:
    """``programs[which[c]]`` is the program of chunk c: ranks (0 or more) to push, ADD to add the top two.

    Chunks with the same order share a program. A chunk that is only copied has the one-instruction program of
    its source. ``depth`` is the longest chain of additions, which bounds the rounding error.
    """

    programs: tuple[np.ndarray, ...]
    which: np.ndarray
    depth: int

    def program(self, chunk: int) -> np.ndarray:
        return self.programs[self.which[chunk]]

    def formula(self, chunk: int) -> str:
        """For people: ``((0 + 1) + 2) + 3``."""
        stack: list[str] = []
        for word in self.program(chunk).tolist():
            if word != ADD:
                stack.append(str(word))
            else:
                right, left = stack.pop(), stack.pop()
                stack.append(f"({left} + {right})")
        return stack[-1].removeprefix("(").removesuffix(")") if stack[-1].startswith("(") else stack[-1]


class _Sums:
    """Sums as numbered nodes, equal sums the same number: node r < ranks is rank r's own contribution."""

    def __init__(self, ranks: int):
        self.parts: list[tuple[int, int] | None] = [None] * ranks
        self.depth = [0] * ranks
        self.lowest = list(range(ranks))  # the lowest rank in the sum
        self._known: dict[tuple[int, int], int] = {}

    def add(self, left: int, right: int) -> int:
        node = self._known.get((left, right))
        if node is None:
            node = self._known[left, right] = len(self.parts)
            self.parts.append((left, right))
            self.depth.append(1 + max(self.depth[left], self.depth[right]))
            self.lowest.append(min(self.lowest[left], self.lowest[right]))
        return node

    def program(self, node: int) -> np.ndarray:
        words, todo = [], [node]
        while todo:  # operator first and right to left, so that the reverse is postfix
            at = todo.pop()
            parts = self.parts[at]
            words.append(at if parts is None else ADD)
            todo.extend(parts or ())
        return np.array(words[::-1], np.int32)


def reduction_order(schedule: Schedule) -> ReductionOrder:
    """How each chunk of the result is summed.

    Raises VerificationError if two ranks would end with a chunk summed in different orders, so with unlike
    bits.
    """
    before, after = holders(schedule.op, schedule.ranks, schedule.root, schedule.pairs)
    before, after = before[schedule.block], after[schedule.block]
    ranks = np.arange(schedule.ranks)[:, None]
    held = np.where((before == ALL) | (before == ranks), ranks, -1)
    sums = _Sums(schedule.ranks)
    for step in range(schedule.steps):
        _run_step(schedule, step, held, sums)
    must = (after == ALL) | (after == ranks)
    which = np.empty(schedule.chunks, np.int64)
    for chunk in range(schedule.chunks):
        results = np.unique(held[must[:, chunk], chunk])
        if len(results) > 1 or (len(results) and results[0] < 0):
            raise VerificationError(
                f"{schedule.title}: ranks would sum chunk {chunk} in {len(results)} different orders"
            )
        which[chunk] = results[0] if len(results) else before[chunk]
    nodes, which = np.unique(which, return_inverse=True)
    depth = max((sums.depth[node] for node in nodes), default=0)
    return ReductionOrder(tuple(sums.program(int(node)) for node in nodes), which, depth)


def _run_step(schedule: Schedule, step: int, held: np.ndarray, sums: _Sums) -> None:
    rows = schedule.rows(step)
    counts = schedule.hi[rows] - schedule.lo[rows]
    row = np.repeat(np.arange(rows.start, rows.stop), counts)
    chunk = np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts) + schedule.lo[row]
    src, dst, reduces = schedule.src[row], schedule.dst[row], schedule.reduce[row]
    arriving, own = held[src, chunk], held[dst, chunk]
    held[dst[~reduces], chunk[~reduces]] = arriving[~reduces]
    operands: dict[tuple[int, int], list[int]] = {}
    columns = (column[reduces].tolist() for column in (dst, chunk, arriving, own))
    for to, c, node, mine in zip(*columns, strict=True):
        operands.setdefault((to, c), [mine] if mine >= 0 else []).append(node)
    for (to, c), terms in operands.items():
        terms.sort(key=sums.lowest.__getitem__)
        total = terms[0]
        for node in terms[1:]:
            total = sums.add(total, node)
        held[to, c] = total
