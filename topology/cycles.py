"""Edge-disjoint Hamiltonian cycles of a torus: as many wire-disjoint rings as it has.

A torus is the product of its rings. Give every dimension's links a colour of its own: each colour covers all
chips with short cycles. Exchanging the colours of the two pairs of opposite sides of a square keeps two links
of either colour at each chip and joins cycles; a walk over such exchanges ends with one Hamiltonian cycle a
colour (that products of cycles decompose so: Kotzig 1973, Foregger 1978, Aubert and Schneider 1982).
"""

from __future__ import annotations

from functools import lru_cache
from itertools import combinations
from math import prod
from random import Random

import numpy as np


@lru_cache(maxsize=64)
def edge_disjoint_cycles(dims: tuple[int, ...]) -> tuple[np.ndarray, ...]:
    """Cycles over the row-major chips of a torus, no link in two of them: ``floor(links per chip / 2)`` many.

    A dimension of 2 has one link per pair of chips. Empty where there is no cycle (fewer than 3 chips).
    """
    kept = [size for size in dims if size > 1]
    if prod(kept) < 3:
        return ()
    twos = kept.count(2)
    wide = [size for size in kept if size > 2] + [4] * (twos // 2)
    cycles = _of_wide_torus(tuple(wide))
    if twos % 2:
        cycles = _doubled(cycles, prod(wide))
    return tuple(_renumbered(cycle, wide, kept) for cycle in cycles)


def _of_wide_torus(dims: tuple[int, ...]) -> tuple[np.ndarray, ...]:
    """Every dimension 3 or more: one cycle a dimension."""
    for seed in range(64):
        colours = _Colours(dims, Random(seed))
        if colours.join():
            return tuple(colours.order(colour) for colour in range(len(dims)))
    raise AssertionError(f"no decomposition of torus {dims} found")  # not seen for any torus tried


class _Colours:
    """Two neighbours of every chip in every colour, and how the cycles of each colour run."""

    def __init__(self, dims: tuple[int, ...], rng: Random):
        chips = np.arange(prod(dims)).reshape(dims)
        self.rng = rng
        self.next = [np.roll(chips, -1, axis).ravel() for axis in range(len(dims))]
        pairs = list(combinations(range(len(dims)), 2))
        # A square is its corner, the two chips beside it and the one across.
        shifts = ((0, 0), (-1, 0), (0, -1), (-1, -1))
        squares = [[np.roll(chips, shift, axes).ravel() for shift in shifts] for axes in pairs]
        by_pair = np.array(squares, np.int64).reshape(len(pairs), 4, chips.size)
        self.squares: list[list[int]] = by_pair.swapaxes(1, 2).reshape(-1, 4).tolist()
        self.neighbours = [
            [{int(b), int(a)} for a, b in zip(np.argsort(n), n, strict=True)] for n in self.next
        ]
        self.label = [np.zeros(len(n), np.int64) for n in self.next]
        self.successor = [list(map(int, n)) for n in self.next]
        for colour in range(len(dims)):
            self._trace(colour)

    def join(self) -> bool:
        """Exchange until every colour is one cycle; False if stuck."""
        for _ in range(200):
            before = self._cycles()
            for corner, a, b, across in self.rng.sample(self.squares, len(self.squares)):
                if self._cycles() == len(self.next):
                    return True
                self._exchange(corner, a, b, across, at_most=-1)
            if self._cycles() == before:
                for corner, a, b, across in self.rng.sample(self.squares, min(8, len(self.squares))):
                    self._exchange(corner, a, b, across, at_most=0)
        return self._cycles() == len(self.next)

    def _cycles(self) -> int:
        return sum(int(label.max()) + 1 for label in self.label)

    def _exchange(self, corner: int, a: int, b: int, across: int, at_most: int) -> None:
        """Exchange the square's sides if the number of cycles changes by no more than ``at_most``."""
        one, two = self._colour(corner, a), self._colour(corner, b)
        if one == two or self._colour(b, across) != one or self._colour(a, across) != two:
            return
        change = self._change(one, corner, a, b, across) + self._change(two, corner, b, a, across)
        if change > at_most:
            return
        for colour, (x, y), (s, t) in ((one, (a, b), (b, a)), (two, (b, a), (a, b))):
            self._replace(colour, corner, x, s)
            self._replace(colour, across, y, t)
            self._replace(colour, x, corner, across)
            self._replace(colour, y, across, corner)
        self._trace(one)
        self._trace(two)

    def _colour(self, u: int, v: int) -> int:
        return next(colour for colour, near in enumerate(self.neighbours) if v in near[u])

    def _change(self, colour: int, u: int, v: int, x: int, y: int) -> int:
        """How the number of cycles changes when links u-v and x-y of a colour become u-x and v-y."""
        if self.label[colour][u] != self.label[colour][x]:
            return -1
        return 0 if (self.successor[colour][u] == v) == (self.successor[colour][x] == y) else 1

    def _replace(self, colour: int, chip: int, old: int, new: int) -> None:
        self.neighbours[colour][chip].remove(old)
        self.neighbours[colour][chip].add(new)

    def _trace(self, colour: int) -> None:
        near, label = self.neighbours[colour], self.label[colour]
        label[:] = -1
        cycle = 0
        for start in range(len(near)):
            if label[start] >= 0:
                continue
            chip, came_from = start, min(near[start])
            while label[chip] < 0:
                label[chip] = cycle
                onward = next(iter(near[chip] - {came_from}))
                self.successor[colour][chip] = onward
                chip, came_from = onward, chip
            cycle += 1

    def order(self, colour: int) -> np.ndarray:
        cycle = [0]
        while len(cycle) < len(self.successor[colour]):
            cycle.append(self.successor[colour][cycle[-1]])
        return np.array(cycle)


def _doubled(cycles: tuple[np.ndarray, ...], chips: int) -> tuple[np.ndarray, ...]:
    """Cycles of the torus with one more dimension of 2, last: each runs there on level 0 and back on level 1.

    Chip c on level l is ``2 * c + l``. Each cycle changes level at two chips no other cycle changes level at.
    """
    if not cycles:
        return (np.array([0, 2, 3, 1]),) if chips == 2 else ()
    used: set[int] = set()
    doubled = []
    for cycle in cycles:
        ends = zip(cycle, np.roll(cycle, -1), strict=True)
        cut = next((i for i, (u, v) in enumerate(ends) if not {int(u), int(v)} & used), None)
        if cut is None:
            break
        path = np.roll(cycle, -cut - 1)
        used |= {int(path[0]), int(path[-1])}
        doubled.append(np.concatenate([2 * path, 2 * path[::-1] + 1]))
    return tuple(doubled)


def _renumbered(cycle: np.ndarray, wide: list[int], kept: list[int]) -> np.ndarray:
    """From the search's numbering (wide dimensions, pairs of 2 as a 4, a last 2) to the torus's own."""
    twos = kept.count(2)
    inner = [*wide, 2] if twos % 2 else wide
    position = list(np.unravel_index(cycle, inner))
    wide_count = len(wide) - twos // 2
    gray = ((0, 0, 1, 1), (0, 1, 1, 0))  # a ring of 4 as a square
    bits = [np.array(g)[position[wide_count + i]] for i in range(twos // 2) for g in gray]
    bits += position[len(wide) :]
    wides = iter(position[:wide_count])
    twos_left = iter(bits)
    return np.ravel_multi_index([next(twos_left) if size == 2 else next(wides) for size in kept], kept)
