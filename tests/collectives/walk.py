"""A schedule on real numbers, two independent ways: transfer by transfer, and by its reduction order."""

import numpy as np
from neuron_dist.collectives import ADD, ReductionOrder, Schedule
from neuron_dist.collectives.ops import ALL, holders


def inputs(schedule: Schedule, count: int, dtype: type, seed: int = 0) -> np.ndarray:
    """What every rank holds before, shape ``(ranks, count)`` over the space; zero where it holds nothing."""
    rng = np.random.default_rng(seed)
    values = rng.integers(1, 1000, (schedule.ranks, count)).astype(dtype)
    if dtype != np.int64:
        values *= rng.random((schedule.ranks, count)).astype(dtype)
    held = np.zeros_like(values)
    before, _ = holders(schedule.op, schedule.ranks, schedule.root, schedule.pairs)
    for chunk, (first, last) in enumerate(schedule.elements(count)):
        holder = before[schedule.block[chunk]]
        ranks = range(schedule.ranks) if holder == ALL else [holder]
        for rank in ranks:
            held[rank, first:last] = values[rank, first:last]
    return held


def walk(schedule: Schedule, held: np.ndarray) -> np.ndarray:
    """What every rank holds after, added in ``held``'s dtype: the semantics of a schedule, spelled out."""
    spans = schedule.elements(held.shape[1])
    before, _ = holders(schedule.op, schedule.ranks, schedule.root, schedule.pairs)
    has = np.array([[before[b] in (ALL, rank) for b in schedule.block] for rank in range(schedule.ranks)])
    lowest = np.where(
        has, np.arange(schedule.ranks)[:, None], schedule.ranks
    )  # rank in what is held, by chunk
    held = held.copy()
    for step in range(schedule.steps):
        old, had, low = held.copy(), has.copy(), lowest.copy()
        arriving: dict[tuple[int, int], list[int]] = {}
        rows = schedule.rows(step)
        for row in range(rows.start, rows.stop):
            src, dst = int(schedule.src[row]), int(schedule.dst[row])
            for chunk in range(schedule.lo[row], schedule.hi[row]):
                first, last = spans[chunk]
                has[dst, chunk] = True
                if schedule.reduce[row]:
                    arriving.setdefault((dst, chunk), []).append(src)
                else:
                    held[dst, first:last] = old[src, first:last]
                    lowest[dst, chunk] = low[src, chunk]
        for (dst, chunk), sources in arriving.items():
            first, last = spans[chunk]
            terms = sorted([*sources, dst] if had[dst, chunk] else sources, key=lambda rank: low[rank, chunk])
            lowest[dst, chunk] = low[terms[0], chunk]
            total = old[terms[0], first:last].copy()
            for term in terms[1:]:
                total += old[term, first:last]
            held[dst, first:last] = total
    return held


def evaluate(schedule: Schedule, order: ReductionOrder, held: np.ndarray) -> np.ndarray:
    """The result by the chunks' postfix programs, one row that every rank must end with."""
    result = np.zeros(held.shape[1], held.dtype)
    for chunk, (first, last) in enumerate(schedule.elements(held.shape[1])):
        stack: list[np.ndarray] = []
        for word in order.program(chunk).tolist():
            if word == ADD:
                right = stack.pop()
                stack[-1] = stack[-1] + right
            else:
                stack.append(held[word, first:last])
        (result[first:last],) = stack
    return result


def must_hold(schedule: Schedule, rank: int, count: int) -> np.ndarray:
    """Which elements of the space the op promises to a rank."""
    _, after = holders(schedule.op, schedule.ranks, schedule.root, schedule.pairs)
    mask = np.zeros(count, bool)
    for chunk, (first, last) in enumerate(schedule.elements(count)):
        mask[first:last] = after[schedule.block[chunk]] in (ALL, rank)
    return mask
