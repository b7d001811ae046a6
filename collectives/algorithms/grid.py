"""Algorithms that go dimension by dimension: what they share."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import numpy as np

from ...topology import Group
from ..compose import nest, relabel
from ..schedule import Schedule
from .direct import exchange


def nested(stages: Sequence[Schedule]) -> Schedule:
    """Reduce-scatters nested in each other, the first innermost: it goes first, on the whole buffer."""
    return reduce(lambda outer, inner: nest(inner, outer), reversed(stages[:-1]), stages[-1])


def on_axes(lattice: np.ndarray, axes: Sequence[int], stages: Sequence[Schedule]) -> Schedule:
    """``nested`` stages along the axes of a lattice of ranks, the i-th stage along ``axes[i]``."""
    return relabel(nested(stages), lattice.transpose(axes[::-1]).ravel())


def inside_chips(group: Group, among_chips: Schedule) -> Schedule:
    """First every chip's ranks exchange directly, then ``among_chips`` runs once for each core offset.

    ``among_chips`` is a reduce-scatter over the chips of the group's lattice in row-major order.
    """
    lattice = group.lattice
    cores = lattice.shape[-1]
    if cores == 1:
        return relabel(among_chips, lattice.ravel())
    if lattice.size == cores:
        return relabel(exchange(cores), lattice.ravel())
    return relabel(nest(exchange(cores), among_chips), lattice.ravel())


def chip_lattice(group: Group) -> np.ndarray:
    """Row-major numbers 0, 1, ... of the group's chips, in the shape ``(islands, *dims)``."""
    shape = group.shape[:-1]
    return np.arange(int(np.prod(shape))).reshape(shape)


def long_axes(lattice: np.ndarray) -> list[int]:
    """The torus's axes with more than one position; axis 0, the islands, is none of them."""
    return [axis for axis in range(1, lattice.ndim) if lattice.shape[axis] > 1]


def rotations(axes: Sequence[int]) -> list[list[int]]:
    """The axes from each start in turn; of no axes, the one empty order."""
    return [[*axes[i:], *axes[:i]] for i in range(max(len(axes), 1))]
