"""Measures collectives of the neuron backend, and of peers beside it, on processes of this host.

All contenders run in the same processes and in turns, so that what else the machine does strikes each.
"""

import gc
import os
import pickle
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

import torch
import torch.distributed as dist
from neuron_dist.collectives.errors import CollectiveError
from torch._C._distributed_c10d import TCPStore
from torch.multiprocessing.spawn import spawn

from neuron_dist import _C
from neuron_dist.clock import simulated_time

from . import peers
from .peers import Call
from .peers.torch_group import call_on

ROUNDS = 5


@dataclass(frozen=True)
class Job:
    """What to measure. ``sizes`` in bytes, as nccl-tests counts them; ``peers``: as in ``launcher.peers``.

    ``iterations`` is of each size; with ``round_seconds`` a round takes about as long instead, whatever the size.
    """

    op: str
    ranks: int
    sizes: list[int]
    dtype: str = "float32"
    iterations: int = 20
    warmup: int = 5
    data: str = "random"
    seed: int = 0
    peers: list[str] = field(default_factory=list)
    round_seconds: float = 0


@dataclass(frozen=True)
class Row:
    """One size. Host times are of a call in microseconds, as rank 0 sees them; ``wrong`` counts over all ranks.

    ``time_us``: the median over the rounds of the mean; ``p99_us``: of single calls.
    """

    size: int
    count: int
    time_us: float
    p99_us: float
    simulated_us: float
    algorithm: str
    wrong: int
    peers_us: dict[str, "float | None"]


def measure(job: Job) -> list[Row]:
    """Run the job on ``job.ranks`` processes. Raises what a rank raised."""
    store = TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder, "rows")
        if "mpich" in job.peers:
            _run_under_mpiexec(store.port, job, result)
        else:
            spawn(_rank, (store.port, job, result), nprocs=job.ranks)
        return torch.load(result, weights_only=False)


def _run_under_mpiexec(port: int, job: Job, result: Path) -> None:
    mpiexec = shutil.which("mpiexec", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if mpiexec is None or find_spec("mpi4py") is None:
        raise CollectiveError("measuring beside MPICH needs its packages: pip install mpich mpi4py")
    arguments = result.with_name("arguments")
    arguments.write_bytes(pickle.dumps((port, job, result)))
    code = f"from {__name__} import _rank_of_mpi; _rank_of_mpi({str(arguments)!r})"
    ranks = subprocess.run([mpiexec, "-n", str(job.ranks), sys.executable, "-c", code], check=False)
    if ranks.returncode:
        raise CollectiveError(f"{mpiexec} ended with exit code {ranks.returncode}")


def _rank_of_mpi(arguments: str) -> None:
    from mpi4py import MPI

    _rank(MPI.COMM_WORLD.Get_rank(), *pickle.loads(Path(arguments).read_bytes()))


def _rank(rank: int, port: int, job: Job, result: Path) -> None:
    torch.set_num_threads(1)
    torch.accelerator.set_device_index(rank)
    os.environ["RANK"] = str(rank)
    store = TCPStore("localhost", port, job.ranks, is_master=False)
    dist.init_process_group("neuron", store=store, rank=rank, world_size=job.ranks)
    others = {name: peers.connect(name, rank, job.ranks) for name in job.peers}
    rows = [_measure_size(job, rank, size, others) for size in job.sizes]
    if rank == 0:
        torch.save(rows, result)
    dist.destroy_process_group()


def _measure_size(job: Job, rank: int, size: int, others: dict[str, peers.Start]) -> Row:
    case = Case(job, rank, size)
    given, output = case.buffers("neuron")
    ours = call_on(None, job.op, given, output)
    began = simulated_time()
    ours()
    simulated = simulated_time() - began
    algorithm = _C.records()[-1].algorithm
    wrong = torch.tensor(case.count_wrong(output))
    dist.all_reduce(wrong)

    contenders: dict[str, Call | None] = {"neuron": ours}
    for name, start in others.items():
        contenders[name] = start(job.op, *case.buffers("cpu"))
    times = _times({name: call for name, call in contenders.items() if call}, job)
    means = {
        name: statistics.median(statistics.fmean(each) for each in rounds) for name, rounds in times.items()
    }
    calls = sorted(call for each in times["neuron"] for call in each)
    return Row(
        size,
        case.count,
        means["neuron"] * 1e6,
        calls[min(len(calls) - 1, int(len(calls) * 0.99))] * 1e6,
        simulated * 1e6,
        algorithm,
        int(wrong),
        {name: means[name] * 1e6 if name in means else None for name in others},
    )


def _times(contenders: dict[str, Call], job: Job) -> dict[str, list[list[float]]]:
    """Seconds of every call, by contender and round."""
    repeats = {}
    for name, call in contenders.items():
        warm = _round(call, max(job.warmup, 1))
        repeats[name] = -(-job.iterations // ROUNDS)
        if job.round_seconds:
            mean = torch.tensor(statistics.fmean(warm))
            dist.broadcast(mean, 0)
            repeats[name] = max(2, min(2000, int(job.round_seconds / max(mean.item(), 1e-6))))
    times: dict[str, list[list[float]]] = {name: [] for name in contenders}
    for _ in range(ROUNDS):
        for name, call in contenders.items():
            times[name].append(_round(call, repeats[name]))
    return times


def _round(call: Call, repeats: int) -> list[float]:
    gc.collect()
    gc.disable()  # as timeit does
    dist.barrier()
    stamps = [time.perf_counter()]
    for _ in range(repeats):
        call()
        stamps.append(time.perf_counter())
    gc.enable()
    return [after - before for before, after in pairwise(stamps)]


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
        return self._values(rank).to(self.dtype)

    def _values(self, rank: int) -> torch.Tensor:
        count = self.part if self.job.op == "all_gather" else self.count
        if self.job.data == "all_ones":
            return torch.ones(count, dtype=torch.uint8)
        generator = torch.Generator().manual_seed(self.job.seed * 1000 + rank)
        return torch.randint(0, 3, (count,), generator=generator, dtype=torch.uint8)

    def buffers(self, device: str) -> tuple[torch.Tensor, torch.Tensor]:
        """This rank's input and output on the device; one tensor where the op works in place."""
        given = self.input(self.rank).to(device)
        if self.job.op in ("all_reduce", "broadcast"):
            return given, given
        return given, given.new_empty(self.part if self.job.op == "reduce_scatter" else self.count)

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
        if self.job.op == "all_reduce":
            mine = slice(None)
        total = torch.zeros_like(self._values(0)[mine], dtype=torch.int32)
        for rank in everyone:
            total += self._values(rank)[mine]
        return total.to(self.dtype)
