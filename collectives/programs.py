"""A schedule from what each rank does: lists of sends and receives, as MPI programs have them.

The lists are run against each other with a bounded number of messages in flight per connection, so that sends
and receives that never meet, and waits that go in a circle, are found before anything hangs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from .errors import VerificationError
from .schedule import Draft, Schedule

IN_FLIGHT = 32  # chunks per channel in Neuron's runtime (nec.h)


@dataclass(frozen=True)
class Send:
    """Send ``chunk`` to ``peer``; waits while the connection has no room."""

    peer: int
    chunk: int


@dataclass(frozen=True)
class Recv:
    """Wait for ``chunk`` from ``peer``, and take it for one's own, or with ``reduce`` add it."""

    peer: int
    chunk: int
    reduce: bool = False


def schedule_of(
    op: str,
    programs: Sequence[Sequence[Send | Recv]],
    *,
    chunks: int | None = None,
    in_flight: int = IN_FLIGHT,
    **fields: object,
) -> Schedule:
    """The schedule of one program per rank, each message in the earliest step its rank's order allows.

    Raises VerificationError for a send or receive without its match, a chunk received other than sent, and
    waits in a circle, naming the ranks.
    """
    ranks = len(programs)
    at = [0] * ranks
    ready = [0] * ranks  # the first step each rank's next action may be in
    wires: dict[tuple[int, int], deque[tuple[int, int]]] = {}
    draft = Draft(op, ranks, chunks)
    moved = True
    while moved:
        moved = False
        for rank, program in enumerate(programs):
            while at[rank] < len(program) and _act(rank, program[at[rank]], wires, ready, draft, in_flight):
                at[rank] += 1
                moved = True
    stuck = [rank for rank in range(ranks) if at[rank] < len(programs[rank])]
    if stuck:
        raise VerificationError(
            _why(stuck, [p[i] if i < len(p) else None for p, i in zip(programs, at, strict=True)])
        )
    for (src, dst), wire in wires.items():
        if wire:
            raise VerificationError(
                f"rank {src} sends chunk {wire[0][0]} to rank {dst}, which never receives it"
            )
    return draft.schedule(**fields)


def _act(
    rank: int,
    action: Send | Recv,
    wires: dict[tuple[int, int], deque[tuple[int, int]]],
    ready: list[int],
    draft: Draft,
    in_flight: int,
) -> bool:
    """Do a rank's next action if it need not wait."""
    if not 0 <= action.peer < len(ready) or action.peer == rank:
        raise VerificationError(f"rank {rank}: {action}: no such peer")
    if isinstance(action, Send):
        wire = wires.setdefault((rank, action.peer), deque())
        if len(wire) >= in_flight:
            return False
        wire.append((action.chunk, ready[rank]))
        return True
    wire = wires.setdefault((action.peer, rank), deque())
    if not wire:
        return False
    chunk, sent = wire.popleft()
    if chunk != action.chunk:
        raise VerificationError(
            f"rank {rank} expects chunk {action.chunk} from rank {action.peer}, which sends {chunk}"
        )
    step = max(sent, ready[rank])
    add = draft.reduce if action.reduce else draft.copy
    add(step=step, src=action.peer, dst=rank, chunk=chunk)
    ready[rank] = step + 1
    return True


def _why(stuck: list[int], waits: list[Send | Recv | None]) -> str:
    """A circle among the waiting ranks, or the one whose peer is through."""
    path = [stuck[0]]
    while True:
        action = waits[path[-1]]
        assert action is not None
        verb = "send to" if isinstance(action, Send) else "receive from"
        if waits[action.peer] is None:
            return (
                f"rank {path[-1]} waits to {verb} rank {action.peer} (chunk {action.chunk}), which is through"
            )
        if action.peer in path:
            circle = [*path[path.index(action.peer) :], action.peer]
            return f"waits in a circle: rank {' waits for rank '.join(map(str, circle))}"
        path.append(action.peer)
