"""An all-gather of one's own: half of every block goes round each way, so that wires work in both directions.

    cd examples/custom_algorithm
    neuron-dist verify two_rings.py:two_rings --topology ring:8
    neuron-dist predict all_reduce --topology ring:8 --algorithm ring1,ring,two_rings.py:two_rings
    neuron-dist verify two_rings.py:impatient --topology ring:8

The last one fails: ``impatient`` has a bug that the verifier names.
"""

from neuron_dist.collectives import Draft, Schedule
from neuron_dist.topology import Group


def two_rings(group: Group, op: str) -> Schedule:
    """Chunks 2 b and 2 b + 1 are the halves of block b; even ones go up the ranks, odd ones down.

    p - 1 steps, n (1 - 1/p) / 2B. From the all-gather follow all_reduce and the others.
    """
    p = group.size
    draft = Draft("all_gather", ranks=p, chunks=2 * p)
    for step in range(p - 1):
        for rank in range(p):
            up, down = (rank - step) % p, (rank + step) % p  # whose halves have just arrived here
            draft.copy(step=step, src=rank, dst=(rank + 1) % p, chunk=2 * up, channel=0)
            draft.copy(step=step, src=rank, dst=(rank - 1) % p, chunk=2 * down + 1, channel=1)
    return draft.schedule()


def impatient(group: Group, op: str) -> Schedule:
    """The same in half the steps, by two hops in each: but what arrives in a step cannot be sent on in it."""
    p = group.size
    draft = Draft("all_gather", ranks=p, chunks=2 * p)
    for hop in range(p - 1):
        for rank in range(p):
            up, down = (rank - hop) % p, (rank + hop) % p
            draft.copy(step=hop // 2, src=rank, dst=(rank + 1) % p, chunk=2 * up, channel=0)
            draft.copy(step=hop // 2, src=rank, dst=(rank - 1) % p, chunk=2 * down + 1, channel=1)
    return draft.schedule()
