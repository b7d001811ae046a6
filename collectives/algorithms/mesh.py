"""Mesh: Neuron's algorithm for small messages, direct sends in few steps.

Two-level (``mesh``): the ranks of a chip exchange first, then each core offset among all chips, so that every
chip-to-chip message exists once. Four steps for all-reduce, two where a chip has one rank. Single step
(``mesh1``): every rank broadcasts its whole buffer and adds up what it gets. One step, (p - 1) n into each
rank: for a few bytes only.
"""

from __future__ import annotations

import numpy as np

from ...topology import Group
from ..errors import Unsupported
from ..schedule import Schedule, transfers
from .direct import direct, exchange
from .grid import inside_chips


def mesh(group: Group, op: str) -> Schedule:
    """Two levels of direct exchange; for all_to_all, which has nothing to gain from two, one."""
    if op == "all_to_all":
        return direct(group, op)
    lattice = group.lattice
    return inside_chips(group, exchange(lattice.size // lattice.shape[-1]))


def single_step_mesh(group: Group, op: str) -> Schedule:
    """All-reduce in one step."""
    if op != "all_reduce":
        raise Unsupported(f"mesh1 is an all_reduce, not {op}")
    rank = np.arange(group.size)
    return transfers(op, group.size, step=0, src=rank[:, None], dst=rank, lo=0)
