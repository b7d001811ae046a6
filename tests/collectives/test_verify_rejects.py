"""The verifier: wrong schedules are refused, with a message that says where and why."""

import numpy as np
import pytest
from neuron_dist.collectives import (
    Draft,
    Schedule,
    Unsupported,
    VerificationError,
    algorithm_names,
    build,
    verify,
)
from neuron_dist.collectives.schedule import COLUMNS
from neuron_dist.topology import Group, from_links, load
from neuron_dist.topology.faults import link_down
from walk import inputs, must_hold, walk

SPECS = ("ring:5", "torus:4x4", "torus:2x3", "trn2.3xlarge", "trn1.32xlarge")
OPS = ("all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce", "gather", "scatter", "all_to_all")
KINDS = ("drop", "double", "redirect", "reorder")


def with_row(schedule: Schedule, row: int, **changes: int) -> Schedule:
    columns = {name: column.copy() for name, column in schedule.columns.items()}
    for name, value in changes.items():
        columns[name][row] = value
    return schedule.with_columns(**columns)


def mutated(schedule: Schedule, kind: str, rng: np.random.Generator) -> Schedule | None:
    """One thing wrong; None where the schedule offers no place for it."""
    row = int(rng.integers(schedule.transfers))
    if kind == "drop":
        return schedule.where(np.arange(schedule.transfers) != row)
    if kind == "double":
        again = {name: np.append(column, column[row]) for name, column in schedule.columns.items()}
        again["step"][-1] += rng.integers(0, 2)
        return schedule.with_columns(**again)
    if kind == "redirect":
        others = [r for r in range(schedule.ranks) if r not in (schedule.src[row], schedule.dst[row])]
        return with_row(schedule, row, dst=int(rng.choice(others))) if others else None
    # Two transfers of which the later passes on what the earlier brought, in the wrong order.
    for first in rng.permutation(schedule.transfers):
        passes_on = (
            (schedule.src == schedule.dst[first])
            & (schedule.step > schedule.step[first])
            & (schedule.lo < schedule.hi[first])
            & (schedule.hi > schedule.lo[first])
        )
        if passes_on.any():
            second = int(rng.choice(np.flatnonzero(passes_on)))
            columns = schedule.columns | {"step": schedule.step.copy()}
            columns["step"][[first, second]] = schedule.step[[second, first]]
            return schedule.with_columns(**columns)
    return None


def still_right(schedule: Schedule) -> bool:
    """Whether a redirected sum reached its place another way, which is no error: walked on numbers."""
    count = schedule.units
    held = inputs(schedule, count, np.int64)
    after, expected = walk(schedule, held), held.sum(axis=0)
    masks = [must_hold(schedule, rank, count) for rank in range(schedule.ranks)]
    return all((row[mask] == expected[mask]).all() for row, mask in zip(after, masks, strict=True))


def test_a_hundred_mutations_are_all_rejected() -> None:
    rng = np.random.default_rng(20_260)
    rejected = dict.fromkeys(KINDS, 0)
    while sum(rejected.values()) < 100:
        kind = KINDS[sum(rejected.values()) % len(KINDS)]
        group = Group(load(str(rng.choice(SPECS))))
        op, algorithm = str(rng.choice(OPS)), str(rng.choice(algorithm_names()))
        try:
            schedule = build(op, algorithm, group, root=int(rng.integers(group.size)))
        except Unsupported:
            continue
        wrong = mutated(schedule, kind, rng)
        if wrong is None or (kind == "redirect" and still_right(wrong)):
            continue
        verify(schedule, group)
        with pytest.raises(VerificationError):
            verify(wrong, group)
        rejected[kind] += 1
    assert rejected == dict.fromkeys(KINDS, 25)


def chain() -> Draft:
    draft = Draft("broadcast", ranks=3)
    draft.copy(step=0, src=0, dst=1, chunk=0)
    return draft


def test_missing_contribution() -> None:
    with pytest.raises(
        VerificationError, match="at the end, chunk 0 of rank 2 lacks the contribution of rank 0"
    ):
        verify(chain().schedule())


def test_doubled_contribution() -> None:
    draft = Draft("reduce", ranks=3)
    for step in (0, 1):
        draft.reduce(step=step, src=1, dst=0, chunk=0)
    with pytest.raises(
        VerificationError, match="step 1, reduce 1 -> 0 of chunk 0: rank 0 adds the contribution of rank 1"
    ):
        verify(draft.schedule())


def test_sending_what_is_not_there() -> None:
    draft = chain()
    draft.copy(step=0, src=1, dst=2, chunk=0)
    with pytest.raises(
        VerificationError, match="step 0, copy 1 -> 2 of chunk 0: rank 1 has nothing of chunk 0 yet"
    ):
        verify(draft.schedule())


def test_needless_copy() -> None:
    draft = chain()
    draft.copy(step=1, src=0, dst=1, chunk=0)
    with pytest.raises(VerificationError, match="rank 1 has chunk 0 already"):
        verify(draft.schedule())


def test_two_writes_of_one_chunk_in_a_step() -> None:
    draft = chain()
    draft.copy(step=1, src=0, dst=2, chunk=0)
    draft.copy(step=1, src=1, dst=2, chunk=0)
    with pytest.raises(VerificationError, match="chunk 0 of rank 2 is written twice in this step"):
        verify(draft.schedule())


def test_reading_what_is_overwritten_in_the_same_step() -> None:
    draft = Draft("all_reduce", ranks=3, chunks=1)
    draft.reduce(step=0, src=1, dst=0, chunk=0)
    draft.reduce(step=0, src=2, dst=0, chunk=0)
    draft.copy(step=1, src=0, dst=1, chunk=0)
    draft.reduce(step=1, src=1, dst=2, chunk=0)
    with pytest.raises(VerificationError, match="chunk 0 of rank 1 is overwritten while it is sent on"):
        verify(draft.schedule())


def test_an_exchange_of_sums_is_no_race() -> None:
    draft = Draft("all_reduce", ranks=2)
    draft.reduce(step=0, src=0, dst=1, chunk=0)
    draft.reduce(step=0, src=1, dst=0, chunk=0)
    verify(draft.schedule())


@pytest.mark.parametrize(
    ("transfer", "message"),
    [
        ({"src": 0, "dst": 3, "chunk": 0}, "the target is no rank of the group of 3"),
        ({"src": -1, "dst": 1, "chunk": 0}, "the source is no rank of the group of 3"),
        ({"src": 0, "dst": 1, "chunk": 7}, "not among the 1 chunks"),
        ({"src": 0, "dst": 1, "chunk": 0, "to": 0}, "not among the 1 chunks"),
        ({"src": 0, "dst": 1, "chunk": 0, "step": -1}, "a negative step"),
    ],
)
def test_malformed_transfers(transfer: dict[str, int], message: str) -> None:
    draft = Draft("broadcast", ranks=3)
    draft.copy(**{"step": 0} | transfer)
    with pytest.raises(VerificationError, match=message):
        verify(draft.schedule())


def test_a_link_that_is_down() -> None:
    line = from_links(3, [(0, 1, 100, 0.5), (1, 2, 100, 0.5)])
    draft = chain()
    draft.copy(step=1, src=1, dst=2, chunk=0)
    schedule = draft.schedule(name="chain")
    verify(schedule, Group(line), direct_links=True)
    with pytest.raises(VerificationError, match="broadcast by chain: no path from chip 1 to chip 2"):
        verify(schedule, Group(link_down(line, 1, 2)))


def test_a_link_that_does_not_exist() -> None:
    draft = chain()
    draft.copy(step=1, src=0, dst=2, chunk=0)
    schedule, line = draft.schedule(), from_links(3, [(0, 1, 100, 0.5), (1, 2, 100, 0.5)])
    verify(schedule, Group(line))
    with pytest.raises(
        VerificationError, match=r"there is no live link from chip 0 \(core 0\) to chip 2 \(core 2\)"
    ):
        verify(schedule, Group(line), direct_links=True)


def test_another_number_of_ranks() -> None:
    with pytest.raises(VerificationError, match="16 ranks on a group of 5"):
        verify(build("all_reduce", "ring", Group(load("torus:4x4"))), Group(load("ring:5")))


def test_columns_are_what_the_schedule_says() -> None:
    assert tuple(build("all_reduce", "ring", Group(load("ring:3"))).columns) == COLUMNS
