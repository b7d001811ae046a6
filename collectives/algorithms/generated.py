"""Generated: a schedule searched for on whatever links are alive, for degraded and irregular fabrics.

All-gather by greedy matching on a time-expanded graph (in the manner of TACOS, Won et al., arXiv 2304.05301):
in every step each link carries to its far end one chunk that is missing there, the rarest first. Steps cost
as much as their slowest link, so slow links are left to the chunks no other can bring. Reduce-scatter is the
reversal.
"""

from __future__ import annotations

import numpy as np

from ...topology import Group, routes
from ..compose import reverse
from ..schedule import Draft, Schedule
from .grid import inside_chips


def generated(group: Group, op: str) -> Schedule:
    """Reduce-scatter over the live links between the group's chips, ranks of a chip exchanging first."""
    chips = group.chips[group.lattice[..., 0]].ravel()
    return inside_chips(group, reverse(_gather(*_wires(group, chips))))


def _gather(near: list[list[int]], gbps: np.ndarray) -> Schedule:
    """All-gather where rank v can receive from ``near[v]``, at ``gbps[u, v]``."""
    p = len(near)
    draft = Draft("all_gather", p)
    held = np.eye(p, dtype=bool)
    step = 0
    while not held.all():
        before, copies = held.copy(), held.sum(axis=0)
        for v in range(p):
            for u in sorted(near[v], key=lambda u: -gbps[u, v]):
                missing = np.flatnonzero(before[u] & ~held[v])
                if len(missing):
                    chunk = int(missing[np.argmin(copies[missing])])
                    draft.copy(step=step, src=u, dst=v, chunk=chunk)
                    held[v, chunk] = True
                    copies[chunk] += 1
        step += 1
    return draft.schedule()


def _wires(group: Group, chips: np.ndarray) -> tuple[list[list[int]], np.ndarray]:
    """Who each chip receives from: neighbours over live links; if that leaves parts, the nearest too."""
    p = len(chips)
    u, v = np.divmod(np.arange(p * p), p)
    cores = chips * group.topology.cores_per_chip
    paths = routes(group.topology, cores[u], cores[v])
    speed = np.full(p * p, np.inf)
    row, link, _ = paths.expand(np.arange(p * p))
    np.minimum.at(speed, row, group.topology.link_gbps[link])
    hops = paths.hops.reshape(p, p)
    hops = np.maximum(hops, hops.T)  # around faults the ways there and back may differ
    far = 1
    while True:
        linked = (hops <= far) & (hops > 0)
        reached = {0}
        while fresh := set(np.flatnonzero(linked[list(reached)].any(axis=0)).tolist()) - reached:
            reached |= fresh
        if len(reached) == p:
            return [np.flatnonzero(linked[:, v]).tolist() for v in range(p)], speed.reshape(p, p)
        far += 1
