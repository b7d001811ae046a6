"""What a schedule costs on a topology: latency, links and memory, step by step.

A step costs alpha (issuing it, and the latency of its longest path), then the bytes of its busiest link over
that link's bandwidth (all transfers of the step share the links; bytes cut through), then the HBM touches of
its busiest core. Steps follow each other, the three parts of a step too. Reading a chunk once and sending it
to many counts as one touch; adding up several that arrive in one step reads each and one's own, and writes
once.

Groups on other cores that walk the same schedule side by side share its steps: their bytes add up on the links,
and the latency is that of the longest path of all. Each core still has its HBM to itself.

A pipelined schedule is priced as such: cut into m pieces, piece i does step s at tick i + s, and a tick's
links carry all steps that are then under way. m is the power of two that costs least.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

import numpy as np

from ..topology import Group, Routes, routes
from .bound import bound_us_per_byte
from .errors import CollectiveError
from .schedule import Schedule

MOST_PIECES = 4096
LEAST_PIECE_BYTES = 4096  # Neuron's DMA packet: smaller pieces save nothing
MOST_KEYS = 1 << 24  # of a table by pair of ranks; beyond, sorting
STEPS_AT_ONCE = 64  # bounds the memory that profiling takes


@dataclass(frozen=True)
class Price:
    """Times in us, bandwidths in GB/s (10^9), as nccl-tests defines algbw and busbw."""

    op: str
    algorithm: str
    topology: str
    ranks: int
    size: int
    steps: int  # ticks, if pipelined
    time_us: float
    alpha_us: float
    beta_us: float
    hbm_us: float
    bound_us: float  # links only
    bound_ratio: float | None  # time over bound; None where the bound is 0
    algbw: float
    busbw: float
    busiest_link: str
    pieces: int

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


@dataclass(frozen=True, eq=False)
class Profile:
    """Everything about a schedule on a group that does not depend on the size: price any size from it.

    By step: ``alpha_us``, ``link_us`` (per byte of the busiest link) and ``hbm_us`` (per byte of the busiest
    core). ``link_total``: us per byte by link, of all groups that walk side by side. ``pipeline``: us per byte
    by step and link, and by step and core, kept only for pipelined schedules. ``bound_us``: of the group alone,
    which holds beside others too.
    """

    schedule: Schedule
    group: Group
    alpha_us: np.ndarray
    link_us: np.ndarray
    hbm_us: np.ndarray
    link_total: np.ndarray
    hbm_total: np.ndarray
    pipeline: tuple[np.ndarray, np.ndarray] | None
    bound_us: float  # per byte
    _ticks: dict[int, tuple[float, float]] = field(default_factory=dict, repr=False)  # us per byte, by pieces

    @property
    def busiest_link(self) -> str:
        if not len(self.link_total) or not self.link_total.any():
            return "-"
        return self.group.topology.link_name(int(np.argmax(self.link_total)))

    def price(self, size: int, pieces: int | None = None) -> Price:
        """The price of ``size`` bytes (S of nccl-tests), if pipelined in ``pieces`` (the best number)."""
        if size < 0:
            raise CollectiveError(f"size={size}: must not be negative")
        schedule, topology = self.schedule, self.group.topology
        if size == 0 or not schedule.steps:
            alpha, beta, hbm, pieces = 0.0, 0.0, 0.0, 1
        else:
            alpha, beta, hbm, pieces = self._parts(size, pieces) if pieces else self._best_parts(size)
            alpha += topology.launch_us
        time, bound = alpha + beta + hbm, self.bound_us * size
        algbw = size / time / 1e3 if time else 0.0
        return Price(
            op=schedule.op,
            algorithm=schedule.name,
            topology=topology.name,
            ranks=schedule.ranks,
            size=size,
            steps=schedule.steps + pieces - 1 if schedule.steps else 0,
            time_us=time,
            alpha_us=alpha,
            beta_us=beta,
            hbm_us=hbm,
            bound_us=bound,
            bound_ratio=time / bound if bound else None,
            algbw=algbw,
            busbw=algbw * schedule.spec.busbw(schedule.ranks),
            busiest_link=self.busiest_link,
            pieces=pieces,
        )

    def _best_parts(self, size: int) -> tuple[float, float, float, int]:
        """The parts in the number of pieces that costs least: more cost alpha, fewer leave links idle."""
        most = min(MOST_PIECES, size // (LEAST_PIECE_BYTES * self.schedule.chunks)) if self.pipeline else 1
        counts = [1 << i for i in range(max(most, 1).bit_length())]
        return min((self._parts(size, pieces) for pieces in counts), key=lambda parts: sum(parts[:3]))

    def _parts(self, size: int, pieces: int) -> tuple[float, float, float, int]:
        """Alpha, links, HBM (us), and the number of pieces."""
        if pieces == 1 or self.pipeline is None:
            by_byte = self.link_us.sum(), self.hbm_us.sum()
            return float(self.alpha_us.sum()), *(float(us) * size for us in by_byte), 1  # type: ignore[return-value]
        alpha = float(self.alpha_us.max()) * (len(self.alpha_us) + pieces - 1)
        if pieces not in self._ticks:
            link, core = (_sum_of_ticks(part, pieces) / pieces for part in self.pipeline)
            self._ticks[pieces] = link, core
        beta, hbm = self._ticks[pieces]
        return alpha, beta * size, hbm * size, pieces


def price(schedule: Schedule, group: Group, size: int) -> Price:
    """The price of a schedule for ``size`` bytes on a group's cores. For many sizes keep the ``profile``."""
    return profile(schedule, group).price(size)


def profile(schedule: Schedule, group: Group, beside: Sequence[Group] = ()) -> Profile:
    """Route every transfer and add up what each step puts on each link and core.

    ``beside``: groups of as many ranks on other cores of the topology, which walk the schedule at the same time.
    """
    for walker in (group, *beside):
        if schedule.ranks != walker.size:
            raise CollectiveError(
                f"{schedule.name}: a schedule of {schedule.ranks} ranks on a group of {walker.size}"
            )
    topology, steps = group.topology, schedule.steps
    pairs, pair = _distinct(schedule.src.astype(np.int64) * schedule.ranks + schedule.dst, schedule.ranks**2)
    paths = _joint_paths((group, *beside), pairs // schedule.ranks, pairs % schedule.ranks)
    latency, links = paths.latency_us[pair], len(topology.link_gbps)

    us_per_byte = np.divide(1e-3, topology.link_gbps, out=np.zeros(links), where=topology.link_gbps > 0)
    alpha, busiest = np.zeros(steps), np.zeros(steps)
    total = np.zeros(links)
    kept = np.zeros((steps, links)) if schedule.pipelined else None
    edges = np.searchsorted(schedule.step, np.arange(steps + 1))
    for first in range(0, steps, STEPS_AT_ONCE):
        last = min(first + STEPS_AT_ONCE, steps)
        rows = slice(edges[first], edges[last])
        step = schedule.step[rows] - first
        used = np.flatnonzero(np.diff(edges[first : last + 1]))
        alpha[first + used] = topology.step_us + np.maximum.reduceat(
            latency[: edges[last]], edges[first + used]
        )
        row, link, share = paths.expand(pair[rows])
        place = step[row] * np.int64(links) + link
        load = np.bincount(place, schedule.fraction[rows][row] * share, (last - first) * links)
        load = load.reshape(-1, links) * us_per_byte
        busiest[first:last] = load.max(axis=1, initial=0.0)
        total += load.sum(axis=0)
        if kept is not None:
            kept[first:last] = load
    touches = _touches(schedule, steps)
    hbm = touches * (1e-3 / topology.hbm_gbps_per_core)
    pipeline = (kept, hbm) if kept is not None else None
    bound = bound_us_per_byte(schedule.op, group, schedule.root, schedule.pairs)
    return Profile(
        schedule,
        group,
        alpha,
        busiest,
        hbm.max(axis=1, initial=0.0),
        total,
        touches.sum(axis=0),
        pipeline,
        bound,
    )


def _joint_paths(groups: Sequence[Group], src: np.ndarray, dst: np.ndarray) -> Routes:
    """From rank ``src[i]`` to rank ``dst[i]``: the links of all groups' paths as one path, of the longest latency."""
    cores = np.stack([group.cores for group in groups])
    paths = routes(groups[0].topology, cores[:, src].T.ravel(), cores[:, dst].T.ravel())
    latency, hops = (
        by_path.reshape(-1, len(groups)).max(axis=1) for by_path in (paths.latency_us, paths.hops)
    )
    return Routes(paths.first[:: len(groups)], paths.link, paths.share, latency, hops)


def _sum_of_ticks(by_step: np.ndarray, pieces: int) -> float:
    """The busiest column of every tick, added up; tick t has steps t - pieces + 1 to t under way."""
    steps = len(by_step)
    total = np.concatenate([np.zeros((1, by_step.shape[1])), np.cumsum(by_step, axis=0)])
    # Beyond as many pieces as steps, every further one adds a tick in which all steps are under way.
    few = min(pieces, steps)
    ends = np.arange(1, steps + few)
    windows = total[np.minimum(ends, steps)] - total[np.maximum(ends - few, 0)]
    return float(windows.max(axis=1).sum() + (pieces - few) * total[-1].max())


def _distinct(keys: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    """The different ones of keys below ``size``, and the place of each key among them."""
    if size > MOST_KEYS:
        return np.unique(keys, return_inverse=True)
    there = np.zeros(size, bool)
    there[keys] = True
    return np.flatnonzero(there), (np.cumsum(there) - 1)[keys]


def _touches(schedule: Schedule, steps: int) -> np.ndarray:
    """Sizes S read and written by each rank in each step, shape ``(steps, ranks)``."""
    ranks, span = schedule.ranks, schedule.chunks + 1
    edges = np.concatenate([[0], np.cumsum(schedule.width)]) * (schedule.spec.span(ranks) / schedule.units)

    def once(rank: np.ndarray, touches: np.ndarray) -> np.ndarray:
        """``touches`` (1 or 2) of each interval, those of one interval at one rank in one step counted once."""
        place = schedule.step.astype(np.int64) * ranks + rank
        keys = np.sort(((place * span + schedule.lo) * span + schedule.hi) * 2 + (touches - 1))
        keys = keys[np.diff(keys, prepend=-1) != 0]
        interval, more = np.divmod(keys, 2)
        interval, hi = np.divmod(interval, span)
        place, lo = np.divmod(interval, span)
        return np.bincount(place, (edges[hi] - edges[lo]) * (1 + more), steps * ranks).reshape(steps, ranks)

    # A source reads, however many it sends to. A target writes, and reads its own if it adds.
    return once(schedule.src, np.ones(schedule.transfers, np.int64)) + once(schedule.dst, 1 + schedule.reduce)
