"""Run a schedule symbolically and raise unless it does what its op promises.

Every chunk at every rank holds the set of ranks whose contributions it sums. Wrong are: a transfer that is
malformed, has nothing to send, or brings what is there already; a contribution added twice; a chunk written
twice in a step, or overwritten in the step that reads it; a path that does not exist on the topology; a
result that lacks a contribution.

Waits need no check of their own: a schedule is steps, and a rank waits only for transfers of its current
step, whose sources do not wait for anything of that step. So no cycle of waits can arise, with a single
buffer per connection. Programs of sends and receives can have cycles; ``programs.schedule_of`` finds them on
the way in.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..topology import Group, TopologyError, routes
from .errors import CollectiveError, VerificationError
from .ops import ALL, holders
from .schedule import Schedule

WORD = 64


def verify(schedule: Schedule, group: Group | None = None, *, direct_links: bool = False) -> None:
    """Raise VerificationError naming step, ranks and chunk, unless the schedule is correct.

    With a ``group``, where it runs, every transfer needs a live path; with ``direct_links`` a single link.
    """
    try:
        schedule.check()
    except CollectiveError as error:
        raise VerificationError(str(error)) from None
    if group is not None:
        _check_paths(schedule, group, direct_links)
    before, after = holders(schedule.op, schedule.ranks, schedule.root, schedule.pairs)
    before, after = before[schedule.block], after[schedule.block]
    state = _initial(schedule, before)
    for step in range(schedule.steps):
        _run_step(schedule, step, state)
    _check_result(schedule, state, before, after)


def _check_paths(schedule: Schedule, group: Group, direct_links: bool) -> None:
    if group.size != schedule.ranks:
        raise VerificationError(f"{schedule.title}: {schedule.ranks} ranks on a group of {group.size}")
    pairs, first = np.unique(schedule.src.astype(np.int64) * schedule.ranks + schedule.dst, return_index=True)
    src, dst = group.cores[pairs // schedule.ranks], group.cores[pairs % schedule.ranks]
    try:
        paths = routes(group.topology, src, dst)
    except TopologyError as error:
        raise VerificationError(f"{schedule.title}: {error}") from None
    if direct_links and (paths.hops > 1).any():
        i = int(np.argmax(paths.hops > 1))
        raise _error(
            schedule,
            int(first[i]),
            f"there is no live link from {_place(group, src[i])} to {_place(group, dst[i])}",
        )


def _place(group: Group, core: int) -> str:
    return f"chip {core // group.topology.cores_per_chip} (core {core})"


def _initial(schedule: Schedule, before: np.ndarray) -> np.ndarray:
    """Contributions held, as bits: shape ``(ranks, chunks, words)``."""
    ranks = schedule.ranks
    state = np.zeros((ranks, schedule.chunks, -(-ranks // WORD)), np.uint64)
    rank, chunk = np.nonzero((before == ALL)[None, :] | (before[None, :] == np.arange(ranks)[:, None]))
    state[rank, chunk, rank // WORD] = np.uint64(1) << (rank % WORD).astype(np.uint64)
    return state


def _run_step(schedule: Schedule, step: int, state: np.ndarray) -> None:
    rows = schedule.rows(step)
    counts = schedule.hi[rows] - schedule.lo[rows]
    row = np.repeat(np.arange(rows.start, rows.stop), counts)
    chunk = np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts) + schedule.lo[row]
    src, dst, reduces = schedule.src[row], schedule.dst[row], schedule.reduce[row]
    arriving = state[src, chunk]
    if (empty := ~arriving.any(axis=1)).any():
        i = int(np.argmax(empty))
        raise _error(schedule, int(row[i]), f"rank {src[i]} has nothing of chunk {chunk[i]} yet")

    written, read = (
        dst.astype(np.int64) * schedule.chunks + chunk,
        src.astype(np.int64) * schedule.chunks + chunk,
    )
    copies = np.flatnonzero(~reduces)
    if (race := np.isin(written[copies], read)).any():
        i = copies[np.argmax(race)]
        raise _error(
            schedule, int(row[i]), f"chunk {chunk[i]} of rank {dst[i]} is overwritten while it is sent on"
        )
    places, times = np.unique(written, return_counts=True)
    if (race := np.isin(written[copies], places[times > 1])).any():
        i = copies[np.argmax(race)]
        raise _error(
            schedule, int(row[i]), f"chunk {chunk[i]} of rank {dst[i]} is written twice in this step"
        )
    if (useless := (arriving[copies] == state[dst[copies], chunk[copies]]).all(axis=1)).any():
        i = copies[np.argmax(useless)]
        raise _error(schedule, int(row[i]), f"rank {dst[i]} has chunk {chunk[i]} already")
    state[dst[copies], chunk[copies]] = arriving[copies]

    # Sums arrive one at a time at each place, so that a doubled contribution is seen whichever it meets.
    sums = np.flatnonzero(reduces)
    sums = sums[np.argsort(written[sums], kind="stable")]
    turn = np.arange(len(sums)) - np.searchsorted(written[sums], written[sums])
    for now in range(int(turn.max(initial=-1)) + 1):
        i = sums[turn == now]
        held = state[dst[i], chunk[i]]
        if (doubled := held & arriving[i]).any():
            first = int(np.argmax(doubled.any(axis=1)))
            who = _members(doubled[first])[0]
            at = i[first]
            raise _error(
                schedule,
                int(row[at]),
                f"rank {dst[at]} adds the contribution of rank {who} to chunk {chunk[at]} twice",
            )
        state[dst[i], chunk[i]] = held | arriving[i]


def _check_result(schedule: Schedule, state: np.ndarray, before: np.ndarray, after: np.ndarray) -> None:
    ranks = np.arange(schedule.ranks)
    words = state.shape[2]
    wanted = np.zeros((schedule.chunks, words), np.uint64)
    everyone = np.zeros(words, np.uint64)
    for rank in ranks:
        everyone[rank // WORD] |= np.uint64(1) << np.uint64(rank % WORD)
    if schedule.spec.reduces:
        wanted[:] = everyone
    else:
        wanted[np.arange(schedule.chunks), before // WORD] = np.uint64(1) << (before % WORD).astype(np.uint64)
    must = (after == ALL)[None, :] | (after[None, :] == ranks[:, None])
    if (wrong := must & (state != wanted[None]).any(axis=2)).any():
        at, chunk = (int(i[0]) for i in np.nonzero(wrong))
        lacking = _members(wanted[chunk] & ~state[at, chunk])
        excess = _members(state[at, chunk] & ~wanted[chunk])
        what = (
            f"lacks the contribution of rank {_list(lacking)}"
            if lacking
            else f"holds that of rank {_list(excess)}"
        )
        raise VerificationError(f"{schedule.title}: at the end, chunk {chunk} of rank {at} {what}")


def _members(words: np.ndarray) -> list[int]:
    return [i * WORD + bit for i, word in enumerate(words) for bit in range(WORD) if int(word) >> bit & 1]


def _list(ranks: Sequence[int]) -> str:
    return ", ".join(map(str, ranks[:4])) + (f" and {len(ranks) - 4} more" if len(ranks) > 4 else "")


def _error(schedule: Schedule, row: int, why: str) -> VerificationError:
    return VerificationError(f"{schedule.describe(row)}: {why}")
