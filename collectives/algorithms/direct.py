"""Direct: everyone sends to everyone at once, routed by the fabric. Least steps, most bytes on the links.

All-reduce in two steps, n (1 - 1/p) twice into each rank; on a torus the middle links carry the mean distance
many times that (x2.13 of the bound on 4x4, x8 on 16x16). On a non-blocking switch it meets the bound.
"""

from __future__ import annotations

import numpy as np

from ...topology import Group
from ..errors import Unsupported
from ..schedule import Schedule, transfers


def exchange(ranks: int) -> Schedule:
    """Reduce-scatter in one step: rank r sends chunk c to rank c."""
    rank = np.arange(ranks)
    return transfers("reduce_scatter", ranks, step=0, src=rank[:, None], dst=rank, lo=rank)


def direct(group: Group, op: str) -> Schedule:
    """One step (two for all_reduce) for any op."""
    p = group.size
    rank = np.arange(p)
    if op == "all_to_all":
        src, dst = np.divmod(np.arange(p * p), p)
        return transfers(op, p, step=0, src=src, dst=dst, lo=np.arange(p * p))
    if op in ("broadcast", "reduce"):
        return transfers("broadcast", p, step=0, src=0, dst=rank, lo=0)
    if op in ("scatter", "gather"):
        return transfers("scatter", p, step=0, src=0, dst=rank, lo=rank)
    return exchange(p)


def point_to_point(ranks: int, op: str, pairs: tuple[tuple[int, int], ...]) -> Schedule:
    """send_recv and permute: each (src, dst) pair in one step."""
    if not pairs:
        raise Unsupported(f"{op}: no (src, dst) pairs given")
    src, dst = np.array(pairs).T
    for name, end in (("source", src), ("target", dst)):
        values, counts = np.unique(end, return_counts=True)
        if values[0] < 0 or values[-1] >= ranks:
            raise Unsupported(
                f"{op}: {name} ranks {values[0]} to {values[-1]}: the group has 0 to {ranks - 1}"
            )
        if counts.max() > 1:
            raise Unsupported(f"{op}: rank {values[counts > 1][0]} is a {name} twice")
    return transfers(op, ranks, step=0, src=src, dst=dst, lo=src, pairs=tuple(pairs))
