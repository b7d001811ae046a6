"""Swing: pairs that swing to either side, ever further (De Sensi et al., arXiv 2401.09356).

In step s rank r exchanges with r + rho(s) if even and r - rho(s) if odd, rho(s) = (1 - (-2)^(s+1)) / 3 = 1,
-1, 3, -5, 11: log2 p steps over shorter ways than recursive halving's. With 2d copies (each dimension first,
mirrored) the time of a phase is n (1 - 1/p) / 2dB times 1.00 on 4^d, 1.10 on 8x8, 1.14 on 16x16, 1.29 on a
ring of 8, 1.53 on a ring of 16.
"""

from __future__ import annotations

import numpy as np

from ...topology import Group
from ..compose import fold, merge_intervals, side_by_side
from ..schedule import Schedule, transfers
from .grid import chip_lattice, inside_chips, rotations


def swing(group: Group, op: str) -> Schedule:
    """Reduce-scatter; extents that are no powers of two fold their last chips into the first."""
    return inside_chips(group, swing_reduce_scatter(chip_lattice(group)))


def swing_reduce_scatter(chips: np.ndarray) -> Schedule:
    """Reduce-scatter over a lattice numbered row-major."""
    if any(extent & (extent - 1) for extent in chips.shape):
        core = 1 << chips.size.bit_length() - 1
        return fold(swing_reduce_scatter(np.arange(core)), chips.size)
    axes = [axis for axis in range(chips.ndim) if chips.shape[axis] > 1]
    orders = rotations(axes)
    return side_by_side([halving(_partners(chips, order, sign)) for order in orders for sign in (1, -1)])


def halving(partners: list[np.ndarray]) -> Schedule:
    """Reduce-scatter from the partner of every rank in every step: send what the partner's side will own."""
    ranks = len(partners[0]) if partners else 1
    mine = np.eye(ranks, dtype=bool)  # blocks each rank's side still covers, after the last step
    parts = []
    for step in range(len(partners) - 1, -1, -1):
        partner = partners[step]
        src, lo = np.nonzero(mine[partner])
        parts.append(np.stack([np.full(len(src), step), src, partner[src], lo]))
        mine = mine | mine[partner]
    steps, src, dst, lo = np.concatenate(parts, axis=1) if parts else np.zeros((4, 0), np.int64)
    return merge_intervals(
        transfers("reduce_scatter", ranks, step=steps, src=src, dst=dst, lo=lo, chunks=ranks)
    )


def _partners(chips: np.ndarray, order: list[int], sign: int) -> list[np.ndarray]:
    """Each dimension in turn takes its next swing, until all are through."""
    depth = {axis: chips.shape[axis].bit_length() - 1 for axis in order}
    turns = [(axis, s) for s in range(max(depth.values(), default=0)) for axis in order if s < depth[axis]]
    position = np.stack(np.unravel_index(np.arange(chips.size), chips.shape))
    partners = []
    for axis, s in turns:
        rho = (1 - (-2) ** (s + 1)) // 3
        there = position.copy()
        there[axis] = (position[axis] + sign * np.where(position[axis] % 2, -rho, rho)) % chips.shape[axis]
        partners.append(chips[tuple(there)])
    return partners
