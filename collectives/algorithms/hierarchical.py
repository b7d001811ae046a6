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
    """``inner`` in each node, ``outer`` between them; on one node, in each chip and between the chips."""
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
    """Ranks by node (or chip) and place in it. Raises Unsupported unless all contribute the same places."""
    topology = group.topology
    per_node = topology.chips_per_node * topology.cores_per_chip
    size, what = (
        (per_node, "node")
        if len(np.unique(group.cores // per_node)) > 1
        else (topology.cores_per_chip, "chip")
    )
    order = np.argsort(group.cores)
    count = len(np.unique(group.cores // size))
    if group.size % count:
        raise Unsupported(f"needs the same number of ranks on each {what}")
    ranks = order.reshape(count, -1)
    places = group.cores[ranks] % size
    if count == 1 or (places != places[0]).any() or (np.diff(group.cores[ranks] // size, axis=1) != 0).any():
        raise Unsupported(f"needs two or more {what}s, with ranks on the same cores of each")
    return ranks
