"""From a collective that a group calls to what the simulated fabric does: algorithm, order of the sums, time.

The native module asks once for each kind of call and keeps the answer; every rank asks for itself and gets the same.
"""

import os
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch.distributed as dist

from neuron_dist import _C, faults
from neuron_dist.collectives import (
    OPS,
    Profile,
    Schedule,
    Unsupported,
    profile,
    profiles,
    reduction_order,
)
from neuron_dist.collectives.build import POINT_TO_POINT
from neuron_dist.collectives.choose import parse_rules
from neuron_dist.group_lint import check_group
from neuron_dist.job import job_topology
from neuron_dist.siblings import siblings
from neuron_dist.topology import Group, Topology
from neuron_dist.topology.topology import INTRA_CHIP, KINDS

REDUCTIONS = ("schedule", "exact")


def make_planner(
    options: "_C.ProcessGroupNeuron.Options", ranks: list[int], rank: int
) -> "tuple[Planner, bool]":
    """The planner of a group of global ``ranks``, and whether its sums round at each step as the wire would.

    ``rank``: this process's in the group. Warns, or raises FabricError, if the fabric would refuse the group.
    """
    world_size = dist.get_world_size() if dist.is_initialized() else len(ranks)
    topology = job_topology(world_size, options.topology)
    check_group(topology, ranks, rank)
    selection = options.algorithm or os.environ.get("NEURON_SIM_ALGORITHM", "")
    reduction = options.reduction or os.environ.get("NEURON_SIM_REDUCTION", "schedule")
    if reduction not in REDUCTIONS:
        raise ValueError(f"reduction={reduction!r}: expected one of {', '.join(REDUCTIONS)}")
    planner = Planner(topology, ranks, selection, reduction, world_size, tells=rank == 0)
    _latest[options.group_name] = planner, rank
    for name in list(_latest)[:-KEPT_GROUPS]:
        del _latest[name]
    return planner, reduction == "schedule"


KEPT_GROUPS = 1024
_latest: "dict[str, tuple[Planner, int]]" = {}  # planner and this process's rank, of the groups made last, by name


def busy_links(group: str, op: str, algorithm: str, size: int) -> list[tuple[int, str, float]]:
    """Links that a collective of ``size`` bytes uses, as (number, name, seconds of traffic on it).

    Empty except on the group's first rank, and for an op that no schedule stands behind.
    """
    planner, rank = _latest.get(group, (None, 0))
    if planner is None or rank:
        return []
    load = planner.traffic(op, algorithm) * size * 1e-6
    topology = planner.fabric.topology
    return [(int(i), topology.link_name(int(i)), float(load[i])) for i in np.flatnonzero(load)]


def link_bytes(group: str, op: str, algorithm: str, size: int) -> dict[str, int]:
    """Bytes that all ranks' transfers of a collective of ``size`` bytes put on links, by the kind of link.

    A transfer counts on each link of its path. Empty for an op that no schedule stands behind.
    """
    planner, _ = _latest.get(group, (None, 0))
    if planner is None:
        return {}
    topology = planner.fabric.topology
    carried = planner.traffic(op, algorithm) * topology.link_gbps * (1e3 * size)
    kinds = np.concatenate([topology.links.kind, np.full(topology.core_links, INTRA_CHIP)])
    by_kind = np.bincount(kinds, carried, len(KINDS))
    return {kind: round(by_kind[i]) for i, kind in enumerate(KINDS) if by_kind[i]}


class Planner:
    """Plans the collectives of one group, for it and its siblings in the job (see ``siblings``) at once.

    They take one schedule, chosen for the cores of the first of them, and share the links: so all cost the same.

    ``selection``: as in ``neuron_dist.collectives.choose``; empty for the cheapest. ``reduction``: "schedule" sums each
    chunk in the order of the schedule, "exact" in rank order. ``tells``: warns of what faults change.
    """

    def __init__(
        self,
        topology: Topology,
        cores: list[int],
        selection: str,
        reduction: str,
        world_size: int,
        *,
        tells: bool = False,
    ) -> None:
        self.cores = tuple(cores)
        self.siblings = siblings(cores, world_size)
        self.sound = self.fabric = Fabric(topology, _on_live_chips(topology, self.siblings, self.cores))
        self.rules = parse_rules(selection)
        self.reduction = reduction
        self.told: set[tuple[int, str]] | None = set() if tells else None

    def __call__(self, op: str, size: int, root: int, peer: int, struck: int) -> "_C.Plan":
        """The plan of ``op`` on ``size`` bytes, as nccl-tests counts them. A barrier is an all_reduce of 4 bytes.

        ``struck``: the faults of the fabric that have struck, as bits; see ``neuron_dist.faults``.
        """
        if op == "barrier":
            op, size = "all_reduce", 4
        pairs = ((root, peer),) if op == "send_recv" else ()
        self.fabric = self._with_faults(struck)
        chosen = self.choose(op, size, pairs=pairs)
        if struck:
            self._tell_change(op, size, struck, pairs, chosen)
        if root and OPS[op].rooted:  # the algorithm that serves rank 0 best serves any
            names = (chosen.schedule.name,)
            chosen = _candidates(op, self.fabric, names, root, ())[names[0]]
        price = chosen.price(size)
        sums = OPS[op].reduces and self.reduction == "schedule"
        busy = np.flatnonzero(chosen.link_total)
        return _C.Plan(
            price.algorithm,
            price.steps,
            price.time_us * 1e-6,
            native_orders(chosen.schedule) if sums else None,
            busy + _first_link(self.sound.topology),
            chosen.link_total[busy] * (size * 1e-6),
        )

    def traffic(self, op: str, algorithm: str) -> np.ndarray:
        """Microseconds per byte that a collective of this group keeps each link busy, a rooted one's from rank 0."""
        if op not in OPS or op in POINT_TO_POINT or not algorithm:
            return np.zeros(len(self.fabric.topology.link_gbps))
        return _own_traffic(op, self.fabric, self.cores, algorithm)

    def choose(
        self, op: str, size: int, *, pairs: tuple[tuple[int, int], ...] = (), fabric: "Fabric | None" = None
    ) -> Profile:
        """The algorithm that runs: by the first rule that covers the size and can serve, else the cheapest."""
        root = 0
        fabric = fabric or self.fabric
        for rule in self.rules.get(op, ()):
            if rule.low <= size < rule.high:
                try:
                    return _candidates(op, fabric, (rule.algorithm,), root, pairs)[rule.algorithm]
                except Unsupported:
                    continue
        candidates = _candidates(op, fabric, None, root, pairs)
        return min(candidates.values(), key=lambda profile: profile.price(size).time_us)

    def _with_faults(self, struck: int) -> "Fabric":
        if not struck:
            return self.sound
        topology = faults.changed(self.sound.topology, self.cores, struck)
        return Fabric(topology, _on_live_chips(topology, self.siblings, self.cores))

    def _tell_change(
        self, op: str, size: int, struck: int, pairs: tuple[tuple[int, int], ...], chosen: Profile
    ) -> None:
        """Warn of a changed plan, once for each op of the group and set of faults."""
        if self.told is None or (struck, op) in self.told:
            return
        before, after = self.choose(op, size, pairs=pairs, fabric=self.sound).price(size), chosen.price(size)
        if (before.algorithm, before.time_us, before.bound_us) == (
            after.algorithm,
            after.time_us,
            after.bound_us,
        ):
            return
        self.told.add((struck, op))
        told = [
            f"{price.algorithm} in {price.time_us:.1f} us, link bound {price.bound_us:.1f} us"
            for price in (before, after)
        ]
        faults.warn_of_change(op, size, struck, *told)


class Fabric(NamedTuple):
    """A topology and the groups that share its links: what the price of a schedule depends on."""

    topology: Topology
    side_by_side: tuple[tuple[int, ...], ...]


@lru_cache(maxsize=64)  # 5 MB each at 64 ranks
def _candidates(
    op: str,
    fabric: Fabric,
    names: tuple[str, ...] | None,
    root: int,
    pairs: tuple[tuple[int, int], ...],
) -> dict[str, Profile]:
    """Whatever the size: the algorithms that serve the op on the cores of these groups, ready to be priced."""
    group, *beside = (Group(fabric.topology, cores) for cores in fabric.side_by_side)
    return profiles(op, group, names, root=root, pairs=pairs, beside=beside)


@lru_cache(maxsize=64)
def _own_traffic(op: str, fabric: Fabric, cores: tuple[int, ...], algorithm: str) -> np.ndarray:
    """Microseconds per byte that the one of the groups on ``cores`` keeps each link busy."""
    schedule = _candidates(op, fabric, (algorithm,), 0, ())[algorithm].schedule
    return profile(schedule, Group(fabric.topology, cores)).link_total


def _on_live_chips(
    topology: Topology, groups: list[tuple[int, ...]], own: tuple[int, ...]
) -> tuple[tuple[int, ...], ...]:
    """The groups that can run; the own one alone if it cannot, which its planning will say."""
    live = tuple(
        group
        for group in groups
        if topology.dead_chips.isdisjoint(topology.chip_of(np.array(group)).tolist())
    )
    return live if own in live else (own,)


_numbered: dict[Topology, int] = {}


def _first_link(topology: Topology) -> int:
    """The number of a topology's first link in this process: links of two topologies are never the same."""
    return _numbered.setdefault(topology, sum(len(other.link_gbps) for other in _numbered))


@lru_cache(maxsize=64)
def native_orders(schedule: Schedule) -> "_C.ReductionOrders":
    """The order of the sums of a schedule in the form that the native executor evaluates."""
    order = reduction_order(schedule)
    position = np.argsort(schedule.start, kind="stable")
    start, which = schedule.start[position], order.which[position]
    end = start + schedule.width[position]
    first = np.concatenate([[True], which[1:] != which[:-1]])  # neighbours of one order are one chunk
    begins, ends = start[first], end[np.concatenate([first[1:], [True]])]
    return _C.ReductionOrders(schedule.units, begins, ends, which[first], order.words, order.lengths)
