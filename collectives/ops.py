"""What each operation promises: who holds which block before, and who must hold what after.

A schedule moves blocks of a *space*. For most ops the space is the one buffer all ranks have in mind (the
input of a reduce-scatter, the output of an all-gather). For all-to-all and permute every rank has a buffer of
its own, and the space is all of them one after the other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

ALL = -1  # every rank


@dataclass(frozen=True)
class Op:
    """What an op is, by number of ranks.

    ``blocks``: blocks of the space by number of ranks. ``span``: rank buffers in the space. ``busbw``:
    nccl-tests' factor from algbw. ``reduces``: whether the result is the sum over all ranks, else the block
    of its first holder.
    """

    name: str
    reduces: bool
    blocks: Callable[[int], int]
    span: Callable[[int], int]
    busbw: Callable[[int], float]
    rooted: bool = False


def _one(_: int) -> int:
    return 1


def _each(p: int) -> int:
    return p


def _shared(p: int) -> float:
    return (p - 1) / p


OPS = {
    op.name: op
    for op in (
        Op("all_reduce", True, _one, _one, lambda p: 2 * (p - 1) / p),
        Op("reduce_scatter", True, _each, _one, _shared),
        Op("all_gather", False, _each, _one, _shared),
        Op("all_to_all", False, lambda p: p * p, _each, _shared),
        Op("broadcast", False, _one, _one, lambda _: 1.0, rooted=True),
        Op("reduce", True, _one, _one, lambda _: 1.0, rooted=True),
        Op("gather", False, _each, _one, _shared, rooted=True),
        Op("scatter", False, _each, _one, _shared, rooted=True),
        Op("permute", False, _each, _each, lambda _: 1.0),
        Op("send_recv", False, _each, _each, lambda _: 1.0),
    )
}

NOBODY = -2


def holders(
    op: str, ranks: int, root: int, pairs: tuple[tuple[int, int], ...]
) -> tuple[np.ndarray, np.ndarray]:
    """By block: the rank that holds it before, and that must hold the result after; ALL, NOBODY possible."""
    blocks = np.arange(OPS[op].blocks(ranks))
    everyone, the_root = np.full(len(blocks), ALL), np.full(len(blocks), root)
    if op in ("permute", "send_recv"):
        target = np.full(ranks, NOBODY)
        for src, dst in pairs:
            target[src] = dst
        return blocks, target
    return {
        "all_reduce": (everyone, everyone),
        "reduce_scatter": (everyone, blocks),
        "all_gather": (blocks, everyone),
        "all_to_all": (blocks // ranks, blocks % ranks),
        "broadcast": (the_root, everyone),
        "reduce": (everyone, the_root),
        "gather": (blocks, the_root),
        "scatter": (the_root, blocks),
    }[op]
