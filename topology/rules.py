"""What the Neuron runtime accepts: a lint of replica groups and ops, with the runtime's own words.

Rules are versioned: they say what releases up to ``VERSION`` do, from the documentation where there is any
and from the behaviour of public code and field reports where there is none. Where reports contradict each
other the level is warn.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from .group import Group
from .routing import routes
from .topology import Topology

VERSION = "neuron 2.32"
LEVELS = ("ok", "warn", "reject")


@dataclass(frozen=True)
class Finding:
    """What is said of group number ``group``; ``runtime`` is what the real runtime prints, if known."""

    level: str
    rule: str
    group: int
    message: str
    runtime: str = ""


def lint(
    topology: Topology,
    groups: Sequence[Sequence[int]],
    *,
    op: str = "all_reduce",
    pairs: Sequence[tuple[int, int]] = (),
    uneven: bool = False,
) -> list[Finding]:
    """One finding or more per group: what would be refused, what is doubtful, or that it is fine.

    Args:
        groups: logical core ids (ranks of a one-rank-per-core job) of each replica group, in rank order.
        op: the operation they are for; also ``barrier``.
        pairs: (source, target) ranks of a permute, within the group.
        uneven: an all_to_all with unequal splits.

    Raises TopologyError for a group with unknown or repeated cores.
    """
    found: list[Finding] = []
    for index, cores in enumerate(groups):
        group = Group(topology, cores)
        rules = (
            _overlap(groups, index),
            _shape(group),
            _size(group),
            _symmetry(group),
            _op(group, op, pairs, uneven),
        )
        verdicts = [Finding(level, rule, index, *text) for part in rules for level, rule, *text in part]
        found += verdicts or [
            Finding("ok", "all", index, f"{group.size} ranks on {len(group.chip_set)} chips")
        ]
    return found


def worst(findings: Sequence[Finding]) -> str:
    """The gravest level found."""
    return max((finding.level for finding in findings), key=LEVELS.index, default="ok")


Verdict = tuple[str, ...]  # level, rule, message, and the runtime's text where known


def family(topology: Topology) -> str:
    """trn1, trn2, trn3 or inf2 by the preset's name; other fabrics, empty, get only the general rules."""
    return next((f for f in ("trn1", "trn2", "trn3", "inf2") if topology.name.startswith(f)), "")


def _overlap(groups: Sequence[Sequence[int]], index: int) -> Iterator[Verdict]:
    mine = set(groups[index])
    for other in range(index):
        if shared := mine & set(groups[other]):
            yield "reject", "disjoint-groups", f"core {min(shared)} is also in group {other}"
            return


def _shape(group: Group) -> Iterator[Verdict]:
    """trn2: one chip, or a cyclic rectangle of chips that all contribute the same cores."""
    topology = group.topology
    if family(topology) != "trn2" or len(group.chip_set) == 1:
        return
    cores = ", ".join(map(str, group.cores.tolist()))
    runtime = (
        "ENC:enc_init_comm failed (2) to init a collective algorithm. "
        f"reason: no_hier no_mesh replica-group: [{cores}] (NRT_INVALID)"
    )
    rule = "routable-rectangle"
    if group.rank_table is None:
        yield "reject", rule, "the chips do not all contribute the same cores", runtime
        return
    for node in np.unique(topology.node_of(group.chip_set)):
        local = group.chip_set[topology.node_of(group.chip_set) == node] % topology.chips_per_node
        rows, columns = (np.unique(part) for part in np.divmod(local, 4))
        if len(local) != len(rows) * len(columns) or not (_routable(rows) and _routable(columns)):
            where = f"chips {', '.join(map(str, local))}"
            yield (
                "reject",
                rule,
                f"{where} are no rectangle of one, two neighbouring or all four rows and columns",
                runtime,
            )
            return
    if len(np.unique(topology.node_of(group.chip_set))) > 1:
        return
    if group.rank_table.shape[1] == 1 and group.size == 4:
        yield (
            "warn",
            rule,
            "a row or column of one core per chip: reports disagree, some releases refuse it",
            runtime,
        )
    elif len(group.chip_set) == 2 and group.rank_table.shape[1] == topology.cores_per_chip:
        yield "warn", rule, "two whole chips: reports disagree, some containers refuse it", runtime


def _routable(positions: np.ndarray) -> bool:
    adjacent = len(positions) == 2 and (positions[1] - positions[0]) % 4 in (1, 3)
    return len(positions) in (1, 4) or adjacent


def _size(group: Group) -> Iterator[Verdict]:
    n, kind = group.size, family(group.topology)
    if kind == "trn1":
        if n not in (1, 2, 8, 16) and n % 32:
            yield (
                "reject",
                "group-size",
                f"{n} ranks: trn1 takes 1, 2, 8, 16 or a multiple of 32",
                "Unsupported topology. Supported number of Neuron Cores is 1, 2, 8, 16 or a multiple of 32. "
                "For other configurations, such as multiples of 2, consider using inf2 instances",
            )
        elif n in (2, 8, 32) and group.cores.min() % n and len(group.cores) == np.ptp(group.cores) + 1:
            yield (
                "warn",
                "start-core",
                f"{n} cores from core {group.cores.min()}: must start at a multiple of {n}",
            )
    if kind == "trn2" and n not in (1, 2, 4, 8, 16) and n % 32:
        yield (
            "warn",
            "group-size",
            f"{n} ranks: newer releases take 1, 2, 4, 8, 16 or a multiple of 32",
            "Supported number of Logical NeuronCores is 1, 2, 4, 8, 16 or a multiple of 32",
        )
    if kind == "inf2" and len(np.unique(group.topology.node_of(group.chips))) > 1:
        yield "reject", "single-instance", "inf2 has no collectives between instances"


def _symmetry(group: Group) -> Iterator[Verdict]:
    """Across nodes: as many ranks on each, on the same cores."""
    topology = group.topology
    per_node = topology.chips_per_node * topology.cores_per_chip
    nodes, places = np.divmod(np.sort(group.cores), per_node)
    parts = [places[nodes == node] for node in np.unique(nodes)]
    if any(not np.array_equal(part, parts[0]) for part in parts):
        yield "reject", "symmetric-nodes", "the nodes must contribute as many ranks each, on the same cores"


def _op(group: Group, op: str, pairs: Sequence[tuple[int, int]], uneven: bool) -> Iterator[Verdict]:
    n, world = group.size, group.topology.cores
    if op == "all_to_all":
        if n not in (4, 8, 16) and n % 32:
            sizes = "supported sizes: 4, 8, 16, or multiples of 32"
            yield "reject", "all-to-all-size", f"{n} ranks: {sizes}", f"unsupported world size {n}, {sizes}"
        if group.cores.min() % n:
            yield (
                "reject",
                "all-to-all-start",
                f"starts at core {group.cores.min()}: must be a multiple of the size {n}",
            )
        if world % n:
            yield "reject", "all-to-all-divides", f"{n} ranks do not divide the world of {world}"
        if uneven:
            yield "reject", "all-to-all-splits", "splits must be equal", "NotImplementedError"
    elif op == "barrier" and n != world:
        yield (
            "reject",
            "barrier-world",
            f"barrier on {n} of {world} ranks: only the default group has one",
            "NotImplementedError",
        )
    elif op == "send_recv":
        yield "warn", "point-to-point", "send and recv are not implemented by every release", "NRT_INVALID"
    elif op == "permute":
        yield from _permute(group, pairs)


def _permute(group: Group, pairs: Sequence[tuple[int, int]]) -> Iterator[Verdict]:
    """Source-target pairs must make one ring over wires."""
    target = dict(pairs)
    at, seen = (pairs[0][0], 0) if pairs else (None, 0)
    while at in target and seen <= len(pairs):
        at, seen = target[at], seen + 1
        if at == pairs[0][0]:
            break
    if not pairs or at != pairs[0][0] or seen != len(pairs) or len(target) != len(pairs):
        yield "reject", "permute-ring", "the source-target pairs must form one ring"
        return
    if bad := [rank for pair in pairs for rank in pair if not 0 <= rank < group.size]:
        yield "reject", "permute-ring", f"rank {bad[0]} is not in the group of {group.size}"
        return
    src, dst = (group.cores[list(end)] for end in zip(*pairs, strict=True))
    if (far := routes(group.topology, src, dst).hops > 1).any():
        i = int(np.argmax(far))
        yield (
            "reject",
            "permute-direct",
            f"ranks {pairs[i][0]} and {pairs[i][1]} are not on neighbouring chips",
        )
