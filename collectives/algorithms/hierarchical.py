"""Hierarchical: any algorithm inside the nodes with any other between them (internode-collective-comm.rst).

All-reduce: reduce-scatter inside, all-reduce between ranks of equal place in their nodes, all-gather inside;
so each byte crosses between nodes once, in as many streams as a node has ranks. Reduce-scatter: inside, then
between.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...topology import Group
from ..compose import derive, nest, relabel, sandwich
from ..errors import Unsupported
from ..schedule import Schedule

Algorithm = Callable[[Group, str], Schedule]


def hierarchical(group: Group, op: str, *, inner: Algorithm, outer: Algorithm) -> Schedule:
    """``inner`` in each node, ``outer`` between them; on one node in and between chips, or rows of chips."""
    ranks = _levels(group)
    inside = Group(group.topology, group.cores[ranks[0]])
    between = Group(group.topology, group.cores[ranks[:, 0]])
    scatter = derive(inner(inside, "reduce_scatter"), "reduce_scatter")
    if op == "all_reduce":
        joined = sandwich(scatter, derive(outer(between, op), op))
    else:
        joined = nest(scatter, derive(outer(between, "reduce_scatter"), "reduce_scatter"))
    return relabel(joined, ranks.ravel())


def _levels(group: Group) -> np.ndarray:
    """Ranks by node and place in it; on one node by chip, or by row of chips: whatever parts them first.

    Raises Unsupported where nothing does, or where the parts do not all have ranks in the same places.
    """
    topology = group.topology
    sizes = {"node": topology.chips_per_node * topology.cores_per_chip, "chip": topology.cores_per_chip}
    for what, size in sizes.items():
        part, place = np.divmod(group.cores, size)
        count = len(np.unique(part))
        if 1 < count < group.size:
            order = np.lexsort((place, part))
            if (
                group.size % count
                or (place[order].reshape(count, -1) != place[order][: group.size // count]).any()
            ):
                raise Unsupported(f"needs ranks on the same cores of each {what}")
            return order.reshape(count, -1)
    lattice = group.lattice.squeeze()
    if lattice.ndim < 2:
        raise Unsupported("needs ranks on two or more nodes, chips or rows of chips, several on each")
    return lattice.reshape(len(lattice), -1)
