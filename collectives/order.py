"""The order in which a schedule sums each chunk: a small postfix program per chunk over the ranks.

It is a property of the schedule alone, and all an executor needs to get the bits the walk along the hops
would get: push the named rank's elements of the chunk, or add the top two of the stack and round to the
wire's type.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from .errors import VerificationError
from .ops import ALL, holders
from .schedule import Schedule

ADD = -1


@dataclass(frozen=True, eq=False)
class ReductionOrder:
    """``programs[which[c]]`` is the program of chunk c: ranks (0 or more) to push, ADD to add the top two.

    Chunks with the same order share a program. A chunk that is only copied has the one-instruction program of
    its source. All programs lie behind each other in ``words``, program i ``lengths[i]`` of them. ``depth`` is the
    longest chain of additions, which bounds the rounding error.
    """

    words: np.ndarray
    lengths: np.ndarray
    which: np.ndarray
    depth: int

    @cached_property
    def programs(self) -> tuple[np.ndarray, ...]:
        return tuple(np.split(self.words, np.cumsum(self.lengths)[:-1]))

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
    """Sums as numbered nodes in columns: node r < ranks is rank r's own contribution.

    Equal sums may be several nodes; they have the same ``digest``, a hash of 64 bits of how the sum is made.
    """

    def __init__(self, ranks: int):
        self.ranks = ranks
        own = np.arange(ranks)
        self.left, self.right = own, own
        self.lowest = own  # the lowest rank in the sum
        self.depth = np.zeros(ranks, np.int64)  # of its chain of additions
        self.words = np.ones(ranks, np.int64)  # in its program
        self.digest = _mixed(own.astype(np.uint64) + np.uint64(1))

    def add(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """New nodes: the sums of the pairs of nodes."""
        made = np.arange(len(self.left), len(self.left) + len(left))
        columns = {
            "left": left,
            "right": right,
            "lowest": np.minimum(self.lowest[left], self.lowest[right]),
            "depth": 1 + np.maximum(self.depth[left], self.depth[right]),
            "words": 1 + self.words[left] + self.words[right],
            "digest": _mixed(_mixed(self.digest[left]) + self.digest[right]),  # (a + b) is not (b + a)
        }
        for name, column in columns.items():
            setattr(self, name, np.concatenate([getattr(self, name), column]))
        return made

    def programs(self, nodes: np.ndarray) -> np.ndarray:
        """The programs of the nodes behind each other: left operand, right operand, ADD."""
        end = np.cumsum(self.words[nodes])
        out = np.empty(end[-1] if len(end) else 0, np.int32)
        while len(nodes):
            sums = nodes >= self.ranks
            out[end - 1] = np.where(sums, ADD, nodes)
            nodes, end = nodes[sums], end[sums] - 1
            right = self.right[nodes]
            nodes, end = (
                np.concatenate([right, self.left[nodes]]),
                np.concatenate([end, end - self.words[right]]),
            )
        return out


def _mixed(x: np.ndarray) -> np.ndarray:
    """A permutation of the 64-bit integers that spreads every bit over all (the finalizer of splitmix64)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


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
    edges = np.searchsorted(schedule.step, np.arange(schedule.steps + 1)).tolist()
    for first, last in pairwise(edges):
        _run_step(schedule, slice(first, last), held, sums)
    result = _common_result(schedule, held, (after == ALL) | (after == ranks), sums)
    result = np.where(result < 0, before, result)  # nobody must hold it
    _, first, which = np.unique(sums.digest[result], return_index=True, return_inverse=True)
    nodes = result[first]
    depth = int(sums.depth[nodes].max(initial=0))
    return ReductionOrder(sums.programs(nodes), sums.words[nodes], which, depth)


def _common_result(schedule: Schedule, held: np.ndarray, must: np.ndarray, sums: _Sums) -> np.ndarray:
    """The node that all ranks which must hold a chunk end with; -1 for a chunk that none must hold."""
    some = np.where(must, held, -1).max(axis=0)
    other = must & ((held < 0) | (sums.digest[held] != sums.digest[some]))
    if other.any():
        chunk = int(np.argmax(other.any(axis=0)))
        orders = len(np.unique(sums.digest[held[must[:, chunk], chunk]]))
        raise VerificationError(
            f"{schedule.title}: ranks would sum chunk {chunk} in {orders} different orders"
        )
    return some


def _run_step(schedule: Schedule, rows: slice, held: np.ndarray, sums: _Sums) -> None:
    lo = schedule.lo[rows]
    counts = schedule.hi[rows] - lo
    row = np.repeat(np.arange(len(lo)), counts)
    chunk = np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts - lo, counts)
    dst, reduces = schedule.dst[rows][row], schedule.reduce[rows][row]
    arriving = held[schedule.src[rows][row], chunk]
    place = dst.astype(np.int64) * schedule.chunks + chunk
    flat = held.reshape(-1)
    if not reduces.all():
        copied = ~reduces
        flat[place[copied]] = arriving[copied]
        place, arriving = place[reduces], arriving[reduces]
    if not len(place):
        return
    own_place = np.sort(place)
    own_place = own_place[np.diff(own_place, prepend=-1) != 0]
    own = flat[own_place]
    holds = own >= 0
    _add_up(np.concatenate([own_place[holds], place]), np.concatenate([own[holds], arriving]), flat, sums)


def _add_up(place: np.ndarray, term: np.ndarray, held: np.ndarray, sums: _Sums) -> None:
    """Sum the terms of each place left to right by their lowest rank, all places at once."""
    order = np.lexsort((sums.lowest[term], place))
    place, term = place[order], term[order]
    first = np.flatnonzero(np.diff(place, prepend=-1))
    counts = np.diff(first, append=len(place))
    total = term[first]
    for i in range(1, int(counts.max())):
        more = np.flatnonzero(counts > i)
        total[more] = sums.add(total[more], term[first[more] + i])
    held[place[first]] = total
