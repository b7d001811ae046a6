"""The ring for any subset of chips: a short closed walk that visits each once."""

from __future__ import annotations

import numpy as np

from .routing import routes
from .topology import Topology

SEARCH_BUDGET = 20_000  # steps of backtracking: finds a cycle of any box of up to 64 chips that has one
MATRIX_CHIPS = 256  # above, distances of all pairs cost more than a tour is worth


def tour(topology: Topology, chips: np.ndarray) -> np.ndarray:
    """The chips in the order of a Hamiltonian cycle over live links, else of one that is short in hops."""
    if len(chips) <= 3 or len(chips) > MATRIX_CHIPS:
        return chips
    n = len(chips)
    a, b = np.divmod(np.arange(n * n), n)
    cores = chips * topology.cores_per_chip
    hops = routes(topology, cores[a], cores[b]).hops.reshape(n, n)
    hops = np.maximum(hops, hops.T)  # around faults the ways there and back may differ
    order = _hamiltonian_cycle(hops == 1) or _two_opt(hops, _nearest_neighbour(hops))
    return chips[order]


def _hamiltonian_cycle(adjacent: np.ndarray) -> list[int] | None:
    """Backtracking that always tries the neighbour with the fewest ways on first (Warnsdorff)."""
    near = [set(np.flatnonzero(row).tolist()) for row in adjacent]
    path, on_path, budget = [0], {0}, SEARCH_BUDGET

    def onward() -> list[int]:
        free = near[path[-1]] - on_path
        return sorted(free, key=lambda chip: (-len(near[chip] - on_path), -chip))

    choices = [onward()]
    while choices and budget:
        budget -= 1
        if len(path) == len(near) and path[0] in near[path[-1]]:
            return path
        if choices[-1]:
            path.append(choices[-1].pop())
            on_path.add(path[-1])
            choices.append(onward())
        else:
            choices.pop()
            on_path.discard(path.pop())
    return None


def _nearest_neighbour(hops: np.ndarray) -> list[int]:
    order, left = [0], set(range(1, len(hops)))
    while left:
        order.append(min(left, key=lambda chip: (hops[order[-1], chip], chip)))
        left.remove(order[-1])
    return order


def _two_opt(hops: np.ndarray, order: list[int]) -> list[int]:
    """Reverse stretches of the tour while that makes it shorter."""
    n, improved = len(order), True
    while improved:
        improved = False
        for i in range(n - 1):
            for j in range(i + 2, n):
                a, b, c, d = order[i], order[i + 1], order[j], order[(j + 1) % n]
                if hops[a, c] + hops[b, d] < hops[a, b] + hops[c, d]:
                    order[i + 1 : j + 1] = order[i + 1 : j + 1][::-1]
                    improved = True
    return order
