"""Torus bucket: rings along one dimension after another (BlueConnect, Cho et al. 2019).

Along dimension 1 on n bytes, dimension 2 on n / k_1, ...: sum(k_i - 1) steps, or sum(floor(k_i / 2))
half-way. One copy one way uses one of a chip's 2d links. The rotated form cuts the buffer in d parts, part c
starting at dimension c, each both ways: all links busy, and the bound n (1 - 1/p) / 2dB reached where the
dimensions are equal.

Where they are not, the copies get widths that load each dimension in proportion to its bandwidth, and the
steps are pipelined so that all dimensions are busy at once (what Themis does online: Rashidi et al. 2022).
For Z at half speed on 4x4x4 the copy that goes Z-first gets 21.3 %.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np

from ...topology import Group
from ..compose import side_by_side
from ..schedule import Schedule, transfers
from .grid import chip_lattice, inside_chips, long_axes, on_axes, rotations
from .ring import arcs

WEIGHT_GRAIN = 10_000  # widths of weighted copies are in ten-thousandths of the buffer


def bucket(group: Group, op: str, *, copies: int | None = None, way: str = "both") -> Schedule:
    """Reduce-scatter in up to ``copies`` rotated copies, by default one a dimension; or all_to_all."""
    if op == "all_to_all":
        return dimension_ordered_all_to_all(group)
    chips = chip_lattice(group)
    orders = rotations(long_axes(chips))[:copies]
    return inside_chips(group, side_by_side([part for order in orders for part in _copy(chips, order, way)]))


def weighted_bucket(group: Group, op: str, *, way: str = "halfway") -> Schedule:
    """Reduce-scatter by a copy starting at each dimension, wide as the bandwidths ask, pipelined."""
    chips = chip_lattice(group)
    axes = long_axes(chips)
    gbps = _axis_gbps(group, axes)
    # After its first, a copy takes the fastest dimensions first: the slowest get what is left.
    orders = [[*order[:1], *sorted(order[1:], key=lambda axis: -gbps[axis])] for order in rotations(axes)]
    weights = _balance(orders, {axis: chips.shape[axis] for axis in axes}, gbps)
    parts, widths = [], []
    for order, weight in zip(orders, np.rint(weights * WEIGHT_GRAIN).astype(int).tolist(), strict=True):
        if weight:
            halves = _copy(chips, order, way)
            parts += halves
            widths += [weight] * len(halves)
    return replace(inside_chips(group, side_by_side(parts, widths)), pipelined=True)


def dimension_ordered_all_to_all(group: Group) -> Schedule:
    """Every block corrects one coordinate a step, in rotated copies: as many steps as dimensions."""
    lattice = group.lattice
    axes = [axis for axis in range(lattice.ndim) if lattice.shape[axis] > 1]
    position = np.stack(np.unravel_index(np.argsort(lattice.ravel()), lattice.shape))
    p = group.size
    source, target = np.divmod(np.arange(p * p), p)
    copies = []
    for order in rotations(axes):
        at = position[:, source]
        rows = []
        for step, axis in enumerate(order):
            moved = at.copy()
            moved[axis] = position[axis, target]
            ends = [lattice[tuple(place)] for place in (at, moved)]
            rows.append(np.stack([np.full(p * p, step), *ends, np.arange(p * p)]))
            at = moved
        step, src, dst, lo = np.concatenate(rows, axis=1)
        copies.append(transfers("all_to_all", p, step=step, src=src, dst=dst, lo=lo))
    return side_by_side(copies)


def _copy(chips: np.ndarray, order: list[int], way: str) -> list[Schedule]:
    """One copy's reduce-scatters, one for each way round; between islands goes last."""
    axes = [axis for axis in [*order, 0] if chips.shape[axis] > 1] or [0]
    rest = [axis for axis in range(chips.ndim) if axis not in axes]
    lattice = chips.transpose(*axes, *rest).reshape([chips.shape[axis] for axis in axes])
    lines = [arcs(extent, way) for extent in lattice.shape]
    return [on_axes(lattice, range(len(axes)), stages) for stages in zip(*lines, strict=True)]


def _axis_gbps(group: Group, axes: list[int]) -> dict[int, float]:
    """GB/s a chip can send along each dimension: its links there, as fast as the slowest live one."""
    links = group.topology.links
    chips = group.chips[group.lattice[..., 0]]
    speeds = {}
    for axis in axes:
        lines = np.moveaxis(chips, axis, 0)
        pairs = zip(lines[0].ravel().tolist(), lines[1].ravel().tolist(), strict=True)
        found = np.concatenate([links.between(a, b) for a, b in pairs])
        live = links.gbps[found][links.gbps[found] > 0]
        # Chips that are no neighbours have no link of their own to go by: they count as the fabric's fastest.
        slowest = float(live.min() if len(live) else links.gbps.max())
        speeds[axis] = slowest * min(chips.shape[axis] - 1, 2)
    return speeds


def _balance(orders: list[list[int]], extents: dict[int, int], gbps: dict[int, float]) -> np.ndarray:
    """Widths of the copies that load each dimension in proportion to its bandwidth.

    An order loads dimension i with (1 - 1/k_i) over the product of the extents that went before. Where the
    proportion cannot be had, because a dimension is too fast to be filled, the other copies are left out.
    """
    if len(orders) < 2:
        return np.ones(1)
    load = [
        [
            (1 - 1 / extents[axis]) / prod(extents[before] for before in order[: order.index(axis)])
            for axis in extents
        ]
        for order in orders
    ]
    weights = np.maximum(np.linalg.solve(np.array(load).T, list(gbps.values())), 0)
    return weights / weights.sum()
