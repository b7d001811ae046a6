"""Ring: partial sums travel around. The classic of large messages (Patarasuk and Yuan 2009).

On a ring of k, in one phase (reduce-scatter or all-gather) of n bytes, a link carrying B bytes/s each way:

- one way: k - 1 steps, n (1 - 1/k) / B
- both ways, half the buffer each: k - 1 steps, n (1 - 1/k) / 2B
- half-way, every chunk collected from both sides: floor(k/2) steps at the load of both ways

A torus of d dimensions has d wire-disjoint Hamiltonian cycles: all of them both ways reach its bound n (1 -
1/p) / 2dB.
"""

from __future__ import annotations

import numpy as np

from ...topology import Group
from ..compose import relabel, side_by_side
from ..schedule import Schedule, transfers


def arc(ranks: int, behind: int, ahead: int) -> Schedule:
    """Reduce-scatter on a ring: chunk c collects from ``behind`` ranks before c and ``ahead`` after it.

    Both sums travel towards c from their far ends and start at once. ``behind + ahead == ranks - 1``.
    """
    chunk = np.arange(ranks)[:, None]
    hop, back = np.arange(behind), np.arange(ahead)
    src = np.concatenate([(chunk - behind + hop) % ranks, (chunk + ahead - back) % ranks], axis=1)
    way = np.concatenate([np.ones_like(hop), -np.ones_like(back)])
    step = np.concatenate([hop, back])
    return transfers("reduce_scatter", ranks, step=step, src=src, dst=(src + way) % ranks, lo=chunk)


def arcs(ranks: int, way: str) -> list[Schedule]:
    """The reduce-scatters that share the buffer: ``one`` way round, ``both`` ways, or ``halfway`` round."""
    far, near = ranks // 2, (ranks - 1) // 2
    return {
        "one": [arc(ranks, ranks - 1, 0)],
        "both": [arc(ranks, ranks - 1, 0), arc(ranks, 0, ranks - 1)],
        "halfway": [arc(ranks, far, near), arc(ranks, near, far)],
    }[way]


def ring(group: Group, op: str, *, cycles: int | None = None, way: str = "both") -> Schedule:
    """Reduce-scatter on up to ``cycles`` wire-disjoint cycles of the group's chips, by default all."""
    parts = []
    for index, cycle in enumerate(group.chip_cycles[:cycles]):
        order = ranks_along(group, cycle, index)
        parts += [relabel(part, order) for part in arcs(group.size, way)]
    return side_by_side(parts)


def ranks_along(group: Group, cycle: np.ndarray, index: int = 0) -> np.ndarray:
    """The group's ranks along a cycle of chips; cycle ``index`` has core-to-core hops of its own."""
    if group.rank_table is None:
        return group.lattice.ravel()
    rows = group.rank_table[np.searchsorted(group.chip_set, cycle)]
    return rows[:, zigzag(rows.shape[1], index)].ravel()


def zigzag(cores: int, index: int) -> np.ndarray:
    """The index-th path through a chip's cores: index, +1, -1, +2, ... (Walecki: disjoint if even)."""
    steps = np.arange(cores)
    return (index + np.where(steps % 2, (steps + 1) // 2, -(steps // 2))) % cores
