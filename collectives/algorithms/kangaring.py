"""KangaRing: Neuron's ring for large messages, in which half the ranks ride along.

Half of a chip's ranks are primaries and make the ring; each carries a secondary beside it. An all-gather step
reads a chunk once and writes it twice, to the next primary and to one's own secondary (1R2W, where two ranks
of a ring do 2R2W: 25 % fewer touches of HBM); a reduce-scatter step reads the partial sum, one's own and the
secondary's chunk and writes once (3R1W against 4R2W: 33 % fewer). A phase has p/2 + 1 steps.

Roles and pairings alternate over the wire-disjoint cycles and their two ways, so that with four of them no
core-to-core link serves two.
"""

from __future__ import annotations

import numpy as np

from ...topology import Group
from ..compose import reverse, side_by_side
from ..errors import Unsupported
from ..schedule import Schedule, transfers


def kangaring(group: Group, op: str) -> Schedule:
    """Reduce-scatter. Raises Unsupported unless the group has all cores of its chips, an even number."""
    cores = group.topology.cores_per_chip
    if group.rank_table is None or group.rank_table.shape[1] != cores or cores % 2:
        raise Unsupported(
            f"needs all ranks of each chip, an even number of them: {group.size} ranks on "
            f"{len(group.chip_set)} chips of {cores} cores"
        )
    ways = [(cycle, way) for cycle in group.chip_cycles for way in (1, -1)]
    # Ways 0 and 2 ride on even cores, 1 and 3 on odd ones; a cycle's two ways get unlike roles.
    rings = [_ring(group, cycle[::way], role) for role, (cycle, way) in enumerate(ways)]
    return reverse(side_by_side(rings))


def _ring(group: Group, cycle: np.ndarray, role: int) -> Schedule:
    """All-gather around one cycle: secondaries hand over, then hops; secondaries get theirs a step later."""
    assert group.rank_table is not None
    on_chip = group.rank_table[np.searchsorted(group.chip_set, cycle)]
    cores = on_chip.shape[1]
    backwards = role // 2 % 2
    first = np.arange(role % 2, cores, 2)[:: -1 if backwards else 1]
    beside = (first + (1 if role % 2 == backwards else -1)) % cores
    primary, secondary = on_chip[:, first].ravel(), on_chip[:, beside].ravel()
    k = len(primary)

    at = np.concatenate([np.arange(k), np.arange(k)])[:, None]  # where on the ring each chunk sets out
    chunk = np.concatenate([primary, secondary])[:, None]
    hop, visit = np.arange(k - 1), np.arange(k)
    hand_over = (0, secondary[at], primary[at], chunk, chunk == secondary[at])
    onward = (1 + hop, primary[(at + hop) % k], primary[(at + hop + 1) % k], chunk, True)
    beside_it = secondary[(at + visit) % k]
    ride = (1 + visit, primary[(at + visit) % k], beside_it, chunk, beside_it != chunk)
    columns = [[c.ravel() for c in np.broadcast_arrays(*row)] for row in (hand_over, onward, ride)]
    step, src, dst, lo, wanted = (np.concatenate(column) for column in zip(*columns, strict=True))
    table = {name: c[wanted] for name, c in (("step", step), ("src", src), ("dst", dst), ("lo", lo))}
    return transfers("all_gather", group.size, **table)
