"""Measures collectives of the neuron backend, and of Gloo beside it, on processes of this host."""

import os
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import TCPStore
from torch.multiprocessing.spawn import spawn

from neuron_dist import _C
from neuron_dist.clock import simulated_time


@dataclass(frozen=True)
class Job:
    """What to measure. ``sizes`` in bytes, as nccl-tests counts them; ``peers``: "gloo" or nothing."""

    op: str
    ranks: int
    sizes: list[int]
    dtype: str = "float32"
    iterations: int = 20
    warmup: int = 5
    data: str = "random"
    seed: int = 0
    peers: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Row:
    """One size. Host times are of a call in microseconds, as rank 0 sees them; ``wrong`` counts over all ranks."""

    size: int
    count: int
    median_us: float
    p99_us: float
    simulated_us: float
    algorithm: str
    wrong: int
    peers_us: dict[str, float]


def measure(job: Job) -> list[Row]:
    """Run the job on ``job.ranks`` processes. Raises what a rank raised."""
    store = TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder, "rows")
        spawn(_rank, (store.port, job, result), nprocs=job.ranks)
        return torch.load(result, weights_only=False)


def _rank(rank: int, port: int, job: Job, result: Path) -> None:
    torch.set_num_threads(1)
    torch.accelerator.set_device_index(rank)
    os.environ["RANK"] = str(rank)
    store = TCPStore("localhost", port, job.ranks, is_master=False)
    dist.init_process_group("neuron", store=store, rank=rank, world_size=job.ranks)
    peers = {name: dist.new_group(backend=name) for name in job.peers}
    rows = [_measure_size(job, rank, size, peers) for size in job.sizes]
    if rank == 0:
        torch.save(rows, result)
    dist.destroy_process_group()


def _measure_size(job: Job, rank: int, size: int, peers: dict[str, dist.ProcessGroup]) -> Row:
    case = Case(job, rank, size)
    began = simulated_time()
    output = case.call("neuron", dist.group.WORLD)()
    simulated = simulated_time() - began
    algorithm = _C.records()[-1].algorithm
    wrong = torch.tensor(case.count_wrong(output))
    dist.all_reduce(wrong)
    times = _times(case.call("neuron", dist.group.WORLD), job)
    others = {
        name: statistics.median(_times(case.call("cpu", group), job)) * 1e6 for name, group in peers.items()
    }
    p99 = sorted(times)[min(len(times) - 1, int(len(times) * 0.99))]
    return Row(
        size,
        case.count,
        statistics.median(times) * 1e6,
        p99 * 1e6,
        simulated * 1e6,
        algorithm,
        int(wrong),
        others,
    )


def _times(call: Callable[[], object], job: Job) -> list[float]:
    for _ in range(job.warmup):
        call()
    dist.barrier()
    times = []
    for _ in range(job.iterations):
        began = time.perf_counter()
        call()
        times.append(time.perf_counter() - began)
    return times


class Case:
    """One collective of one size: its inputs, which every rank can make for every other, and its result.

    Values are small integers, so that sums are exact in every dtype and any order.
    """

    def __init__(self, job: Job, rank: int, size: int) -> None:
        self.job, self.rank, self.dtype = job, rank, getattr(torch, job.dtype)
        elements = -(-size // self.dtype.itemsize)
        self.part = -(-elements // job.ranks)
        self.count = elements if job.op in ("all_reduce", "broadcast", "send_recv") else self.part * job.ranks

    def input(self, rank: int) -> torch.Tensor:
        count = self.part if self.job.op == "all_gather" else self.count
        if self.job.data == "all_ones":
            return torch.ones(count, dtype=self.dtype)
        generator = torch.Generator().manual_seed(self.job.seed * 1000 + rank)
        return torch.randint(0, 3, (count,), generator=generator, dtype=torch.uint8).to(self.dtype)

    def call(self, device: str, group: "dist.ProcessGroup | None") -> Callable[[], torch.Tensor]:
        """One call on tensors of the device; returns the output. Repeats of an all_reduce reuse its output."""
        given = self.input(self.rank).to(device)
        output = torch.empty(self.count, dtype=self.dtype, device=device)
        piece = torch.empty(self.part, dtype=self.dtype, device=device)
        ring = (self.rank + 1) % self.job.ranks, (self.rank - 1) % self.job.ranks

        def send_recv() -> None:
            works = [dist.isend(given, ring[0], group), dist.irecv(output, ring[1], group)]
            for work in works:
                if work is not None:  # None is for ranks outside the group
                    work.wait()

        calls: dict[str, tuple[Callable[[], object], torch.Tensor]] = {
            "all_reduce": (lambda: dist.all_reduce(given, group=group), given),
            "all_gather": (lambda: dist.all_gather_into_tensor(output, given, group=group), output),
            "reduce_scatter": (lambda: dist.reduce_scatter_tensor(piece, given, group=group), piece),
            "all_to_all": (lambda: dist.all_to_all_single(output, given, group=group), output),
            "broadcast": (lambda: dist.broadcast(given, 0, group=group), given),
            "send_recv": (send_recv, output),
        }
        run, result = calls[self.job.op]

        def once() -> torch.Tensor:
            run()
            return result

        return once

    def count_wrong(self, output: torch.Tensor) -> int:
        """Elements of the first call's output that differ from what they must be."""
        return int((output.cpu() != self.expected()).sum())

    def expected(self) -> torch.Tensor:
        everyone = range(self.job.ranks)
        if self.job.op == "broadcast":
            return self.input(0)
        if self.job.op == "send_recv":
            return self.input((self.rank - 1) % self.job.ranks)
        if self.job.op == "all_gather":
            return torch.cat([self.input(rank) for rank in everyone])
        mine = slice(self.rank * self.part, (self.rank + 1) * self.part)
        if self.job.op == "all_to_all":
            return torch.cat([self.input(rank)[mine] for rank in everyone])
        total = torch.stack([self.input(rank).double() for rank in everyone]).sum(0)
        return (total if self.job.op == "all_reduce" else total[mine]).to(self.dtype)
