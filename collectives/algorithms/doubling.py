"""Recursive doubling and Bruck: logarithmic, blind to the fabric, for few bytes and any rank count."""

from __future__ import annotations

import numpy as np

from ...topology import Group
from ..compose import relabel
from ..schedule import Schedule, transfers
from .rdh import hypercube_reduce_scatter


def recursive_doubling(group: Group, op: str) -> Schedule:
    """All-reduce by exchanging the whole buffer with rank r xor 2^s: log2 p steps of n bytes.

    Ranks past a power of two hand their buffer to a partner before and get the result after. For
    reduce_scatter and all_gather: recursive halving of the ranks in order, log2 p steps of n/2, n/4, ...
    """
    order = np.argsort(group.cores)
    p = group.size
    if op != "all_reduce":
        return relabel(hypercube_reduce_scatter(np.arange(p), copies=1), order)
    core = 1 << p.bit_length() - 1
    guest = np.arange(core, p)
    rank, s = np.arange(core)[:, None], np.arange(core.bit_length() - 1)
    first = 1 if len(guest) else 0
    exchange = [
        np.broadcast_to(column, (core, len(s))).ravel() for column in (first + s, rank, rank ^ (1 << s))
    ]
    come = [np.zeros_like(guest), guest, guest - core]
    leave = [np.full_like(guest, first + len(s)), guest - core, guest]
    step, src, dst = (np.concatenate(column) for column in zip(come, exchange, leave, strict=True))
    is_sum = np.arange(len(step)) < len(step) - len(guest)
    return relabel(transfers(op, p, step=step, src=src, dst=dst, lo=0, reduce=is_sum, chunks=1), order)


def bruck(group: Group, op: str) -> Schedule:
    """All-gather in ceil(log2 p) steps for any p (Bruck et al. 1997; reversed, PAT of NCCL 2.23).

    In step s rank r hands the 2^s blocks it holds from its own on to rank r - 2^s. All-to-all: a block goes
    2^s ranks ahead in step s if its distance has that bit, n log2(p) / 2 bytes from each rank.
    """
    p = group.size
    order = np.argsort(group.cores)
    spans = [1 << s for s in range((p - 1).bit_length())]
    if op == "all_to_all":
        return _bruck_all_to_all(p, spans, order)
    rank = np.arange(p)
    rows = []
    for step, span in enumerate(spans):
        end = rank + min(span, p - span)
        for lo, hi in ((rank, np.minimum(end, p)), (0 * rank, np.maximum(end - p, 0))):
            rows.append(np.stack([np.full(p, step), rank, (rank - span) % p, lo, hi]))
    table = np.concatenate(rows, axis=1) if rows else np.zeros((5, 0), np.int64)
    step, src, dst, lo, hi = table[:, table[4] > table[3]]
    return relabel(transfers("all_gather", p, step=step, src=src, dst=dst, lo=lo, hi=hi), order)


def _bruck_all_to_all(p: int, spans: list[int], order: np.ndarray) -> Schedule:
    source, target = np.divmod(np.arange(p * p), p)
    distance = (target - source) % p
    rows = [
        np.stack([np.full(p * p, step), (source + distance % span) % p, (source + distance % (2 * span)) % p])
        for step, span in enumerate(spans)
    ]
    step, src, dst = np.concatenate(rows, axis=1) if rows else np.zeros((3, 0), np.int64)
    block = order[source] * p + order[target]
    lo = np.tile(block, len(spans))
    return transfers("all_to_all", p, step=step, src=order[src], dst=order[dst], lo=lo)
