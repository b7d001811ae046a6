"""Torus bucket: rings along one dimension after another (BlueConnect, Cho et al. 2019).

Along dimension 1 on n bytes, dimension 2 on n / k_1, ...: sum(k_i - 1) steps, or sum(floor(k_i / 2))
half-way. One copy one way uses one of a chip's 2d links. The rotated form cuts the buffer in d parts, part c
starting at dimension c, each both ways: all links busy, and the bound n (1 - 1/p) / 2dB reached where the
dimensions are equal.

Where they are not, the copies of every order of dimensions get widths that load each dimension in proportion
to its bandwidth, and the steps are pipelined so that all dimensions are busy at once (Themis, Rashidi et al.
2022, by calculation). For Z at half speed on 4x4x4 that is 21.3 % Z-first.
"""

from __future__ import annotations

from itertools import combinations, permutations
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
    orders = rotations(long_axes(chips))[:copies] or [[]]
    return inside_chips(group, side_by_side([part for order in orders for part in _copy(chips, order, way)]))


def weighted_bucket(group: Group, op: str, *, way: str = "halfway") -> Schedule:
    """Reduce-scatter by copies in every order of dimensions, wide as their bandwidths ask, pipelined."""
    chips = chip_lattice(group)
    axes = long_axes(chips)
    orders = [list(order) for order in permutations(axes)]
    weights = (
        _balance([chips.shape[a] for a in axes], _axis_gbps(group, axes)) if len(axes) > 1 else np.ones(1)
    )
    parts, widths = [], []
    for order, weight in zip(orders, np.rint(weights * WEIGHT_GRAIN).astype(int), strict=True):
        if weight:
            halves = _copy(chips, order, way)
            parts += halves
            widths += [int(weight)] * len(halves)
    together = inside_chips(group, side_by_side(parts, widths))
    return Schedule(**vars(together) | {"pipelined": True})


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


def _axis_gbps(group: Group, axes: list[int]) -> np.ndarray:
    """GB/s of the slowest live link along each dimension of the group's box, one way."""
    topology = group.topology
    chips = group.chips[group.lattice[..., 0]]
    speeds = []
    for axis in axes:
        lines = np.moveaxis(chips, axis, 0)
        found = [
            topology.links.between(int(a), int(b))
            for a, b in zip(lines[0].ravel(), lines[1].ravel(), strict=True)
        ]
        gbps = topology.links.gbps[np.concatenate([*found, np.zeros(0, np.int64)]).astype(np.int64)]
        speeds.append(gbps[gbps > 0].min(initial=np.inf))
    finite = [speed for speed in speeds if speed < np.inf]
    return np.array([speed if speed < np.inf else min(finite, default=1.0) for speed in speeds])


def _balance(extents: list[int], gbps: np.ndarray) -> np.ndarray:
    """Widths of the copies, by order of dimensions, that make the busiest dimension least busy.

    An order loads dimension i with (1 - 1/k_i) over the extents that went before. The best widths put weight
    on at most as many orders as there are dimensions: try them all.
    """
    d = len(extents)
    orders = list(permutations(range(d)))
    load = np.array(
        [
            [(1 - 1 / extents[i]) / prod(extents[j] for j in order[: order.index(i)]) for i in range(d)]
            for order in orders
        ]
    )
    best, least = np.full(len(orders), 1 / len(orders)), np.inf
    found: list[np.ndarray] = []
    for chosen in combinations(range(len(orders)), d):
        system = load[list(chosen)].T
        if abs(np.linalg.det(system)) < 1e-12:
            continue
        weights = np.maximum(np.linalg.solve(system, gbps), 0)
        weights /= weights.sum()
        busiest = float((weights @ load[list(chosen)] / gbps).max())
        if busiest < least * (1 - 1e-9):
            least, found = busiest, []
        if busiest <= least * (1 + 1e-9):
            best = np.zeros(len(orders))
            best[list(chosen)] = weights
            found.append(best)
    # Several are equally good: their mean also spreads each step evenly over like dimensions.
    return np.mean(found, axis=0) if found else best
