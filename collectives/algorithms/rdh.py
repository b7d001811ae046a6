"""RDH, recursive doubling and halving: pairs exchange half of what they hold, over the axes of a hypercube.

A ring of 4 is a square and a torus of 4s a hypercube: with positions Gray-coded every pair are neighbours
(Neuron's axes W, X, Y, Z on 4x4). log2 p steps a phase. One copy sends n (1 - 1/p) over one link at a time;
copies that start at each axis in turn use all of them, and on 4^d meet the bound n (1 - 1/p) / 2dB with as
few steps as the torus is wide. Rabenseifner 2004; Neuron's intranode-collective-comm.rst. Other counts fold
their last ranks into the first.
"""

from __future__ import annotations

import numpy as np

from ...topology import Group
from ..compose import fold, side_by_side
from ..schedule import Schedule
from .direct import exchange
from .grid import chip_lattice, inside_chips, on_axes, rotations
from .ring import arc


def rdh(group: Group, op: str, *, copies: int | None = None) -> Schedule:
    """Reduce-scatter, a copy starting at every axis (or ``copies``); ranks of a chip exchange first."""
    return inside_chips(group, hypercube_reduce_scatter(chip_lattice(group), copies))


def hypercube_reduce_scatter(chips: np.ndarray, copies: int | None = None) -> Schedule:
    """Reduce-scatter over a lattice numbered row-major, of any extents."""
    if any(extent & (extent - 1) for extent in chips.shape):
        core = 1 << chips.size.bit_length() - 1
        return fold(hypercube_reduce_scatter(np.arange(core), copies), chips.size)
    if chips.size == 1:
        return exchange(1)
    cube = chips
    for axis, extent in enumerate(chips.shape):
        cube = cube.take(np.argsort(_gray(extent)), axis)
    cube = cube.reshape((2,) * (chips.size.bit_length() - 1))
    orders = rotations(range(cube.ndim)[::-1])[:copies]
    return side_by_side([on_axes(cube, order, [arc(2, 1, 0)] * cube.ndim) for order in orders])


def _gray(extent: int) -> np.ndarray:
    position = np.arange(extent)
    return position ^ (position >> 1)
