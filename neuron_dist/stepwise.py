"""A second executor: walks a schedule hop by hop with real transfers, as the wire would.

Slow and plain; it exists to hold the native executor, which evaluates the order of the sums at once, to its bits.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache, reduce

import numpy as np
import torch

from neuron_dist.collectives import Schedule
from neuron_dist.collectives.ops import ALL, holders

Combine = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
Sends = list[tuple[int, torch.Tensor]]


NOTHING = np.iinfo(np.int64).max


@lru_cache(maxsize=8)
def lowest_ranks(schedule: Schedule) -> list[np.ndarray]:
    """Before each step, the lowest rank in what each rank holds of each chunk, or NOTHING; shape (ranks, chunks)."""
    ranks = np.arange(schedule.ranks)[:, None]
    before, _ = holders(schedule.op, schedule.ranks, schedule.root, schedule.pairs)
    of_chunk = before[schedule.block]
    states = [np.where((of_chunk == ALL) | (of_chunk == ranks), ranks, NOTHING)]
    for step in range(schedule.steps):
        old, new = states[-1], states[-1].copy()
        rows = schedule.rows(step)
        for row in range(rows.start, rows.stop):
            source, target = schedule.src[row], schedule.dst[row]
            chunks = slice(schedule.lo[row], schedule.hi[row])
            arriving = old[source, chunks]
            new[target, chunks] = (
                np.minimum(new[target, chunks], arriving) if schedule.reduce[row] else arriving
            )
        states.append(new)
    return states


class Walk:
    """One rank's walk through a schedule.

    ``space`` is the rank's buffer of the whole space of the op, one dimension, changed in place: for all_reduce the
    buffer, for reduce_scatter the input, for all_gather the output with the own block filled in.
    """

    def __init__(self, schedule: Schedule, rank: int, space: torch.Tensor, combine: Combine) -> None:
        self.schedule, self.rank, self.space, self.combine = schedule, rank, space, combine
        self.edges = schedule.elements(space.numel()).tolist()
        self.lowest = lowest_ranks(schedule)

    def sends(self, step: int) -> Sends:
        """What the rank sends in a step, as (receiver, elements), one chunk each."""
        return [(int(self.schedule.dst[row]), self.chunk(c).clone()) for row, c in self._moves(step, "src")]

    def receives(self, step: int) -> Sends:
        """Where to put what the rank gets, as (sender, elements), in the order in which the senders send it."""
        moves = self._moves(step, "dst")
        self.arrived = [(row, c, torch.empty_like(self.chunk(c))) for row, c in moves]
        return [(int(self.schedule.src[row]), elements) for row, _, elements in self.arrived]

    def finish(self, step: int) -> None:
        """Copy or combine what has arrived; terms are summed in the order of the lowest rank each contains."""
        terms: dict[int, list[tuple[int, torch.Tensor]]] = {}
        for row, chunk, elements in self.arrived:
            if self.schedule.reduce[row]:
                contains = int(self.lowest[step][self.schedule.src[row], chunk])
                terms.setdefault(chunk, []).append((contains, elements))
            else:
                self.chunk(chunk).copy_(elements)
        for chunk, others in terms.items():
            own = int(self.lowest[step][self.rank, chunk])
            if own != NOTHING:
                others.append((own, self.chunk(chunk).clone()))
            first, *rest = (elements for _, elements in sorted(others, key=lambda term: term[0]))
            self.chunk(chunk).copy_(reduce(self.combine, rest, first))

    def chunk(self, index: int) -> torch.Tensor:
        begin, end = self.edges[index]
        return self.space[begin:end]

    def _moves(self, step: int, side: str) -> list[tuple[int, int]]:
        rows = self.schedule.rows(step)
        column = getattr(self.schedule, side)
        mine = [row for row in range(rows.start, rows.stop) if column[row] == self.rank]
        return [
            (row, c) for row in mine for c in range(int(self.schedule.lo[row]), int(self.schedule.hi[row]))
        ]


def walk_locally(schedule: Schedule, spaces: Sequence[torch.Tensor], combine: Combine) -> None:
    """All ranks of a schedule in this process; ``spaces[rank]`` as in Walk."""
    walks = [Walk(schedule, rank, space, combine) for rank, space in enumerate(spaces)]
    for step in range(schedule.steps):
        mail: dict[tuple[int, int], list[torch.Tensor]] = {}
        for walk in walks:
            for to, elements in walk.sends(step):
                mail.setdefault((walk.rank, to), []).append(elements)
        for walk in walks:
            for sender, elements in walk.receives(step):
                elements.copy_(mail[sender, walk.rank].pop(0))
        for walk in walks:
            walk.finish(step)


def walk_processes(schedule: Schedule, rank: int, space: torch.Tensor, combine: Combine) -> None:
    """This rank's part, with the other ranks' processes, by send and receive of the default group."""
    import torch.distributed as dist

    walk = Walk(schedule, rank, space, combine)
    for step in range(schedule.steps):
        works = [dist.isend(elements, to) for to, elements in walk.sends(step)]
        works += [dist.irecv(elements, sender) for sender, elements in walk.receives(step)]
        for work in works:
            if work is not None:  # None is for ranks outside the group
                work.wait()
        walk.finish(step)
