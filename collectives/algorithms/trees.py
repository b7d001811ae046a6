"""Trees: binomial for few bytes, wire-disjoint chains for many.

Binomial: ceil(log2 p) steps, each of n bytes. The chains are a torus's Hamiltonian cycles walked both ways
from the root: 2d spanning trees no two of which share a link, an equal slice of the buffer down each,
pipelined; a broadcast takes n / 2dB and the time to fill the chains (edge-disjoint spanning trees: Johnsson
and Ho 1989).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ...topology import Group
from ..compose import relabel, side_by_side
from ..errors import Unsupported
from ..schedule import Schedule, transfers
from .ring import ranks_along


def binomial_tree(group: Group, op: str) -> Schedule:
    """Broadcast (reversed: reduce; both: all_reduce) or scatter (reversed: gather) from rank 0."""
    if op not in ("broadcast", "reduce", "all_reduce", "scatter", "gather"):
        raise Unsupported(f"tree serves broadcast, reduce, all_reduce, scatter and gather, not {op}")
    p = group.size
    order = _from_root(np.argsort(group.cores))
    rows = []
    reach = 1 << (p - 1).bit_length()
    step = 0
    while reach > 1:
        half = reach // 2
        src = np.arange(0, p - half, reach)
        rows.append(np.stack([np.full(len(src), step), src, src + half, np.minimum(src + reach, p)]))
        reach, step = half, step + 1
    step_, src, dst, end = np.concatenate(rows, axis=1) if rows else np.zeros((4, 0), np.int64)
    if op in ("scatter", "gather"):
        return relabel(transfers("scatter", p, step=step_, src=src, dst=dst, lo=dst, hi=end), order)
    return relabel(transfers("broadcast", p, step=step_, src=src, dst=dst, lo=0), order)


def disjoint_chains(group: Group, op: str) -> Schedule:
    """Broadcast (or reduce, or all_reduce) down both ways of every wire-disjoint cycle, pipelined."""
    if op not in ("broadcast", "reduce", "all_reduce"):
        raise Unsupported(f"chains serve broadcast, reduce and all_reduce, not {op}")
    link = np.arange(group.size - 1)
    chain = transfers("broadcast", group.size, step=link, src=link, dst=link + 1, lo=0)
    walks = [
        ranks_along(group, cycle[::way], i) for i, cycle in enumerate(group.chip_cycles) for way in (1, -1)
    ]
    together = side_by_side([relabel(chain, _from_root(walk)) for walk in walks])
    return replace(together, pipelined=True)


def _from_root(order: np.ndarray) -> np.ndarray:
    """The order, a closed walk, started at rank 0."""
    return np.roll(order, -int(np.flatnonzero(order == 0)[0]))
