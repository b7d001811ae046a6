"""Collectives of the neuron backend against Gloo, in one run: ``python -m benchmarks.collectives``.

Both backends run in the same processes, in turns, so that what else the machine does strikes both. A figure is the
median over the rounds of the mean time of a call, as rank 0 sees it. Host time; nothing here is simulated.
"""

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

OPS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
SIZES = ("4", "1K", "64K", "1M", "16M", "64M")
ROUNDS = 5
ROUND_SECONDS = 0.15  # of each backend


def parse_size(text: str) -> int:
    """Bytes of "4", "64K", "16M": the all_reduce tensor, the gathered output, the input that is scattered."""
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    return int(text[:-1]) * units[text[-1]] if text[-1] in units else int(text)


def make_call(
    op: str, count: int, dtype: torch.dtype, device: str, group: dist.ProcessGroup
) -> Callable[[], object]:
    """One call of ``op`` on ``count`` elements; they are rounded up to a multiple of the ranks."""
    size = group.size()
    part = -(-count // size)
    whole = torch.zeros(count if op == "all_reduce" else part * size, dtype=dtype, device=device)
    piece = torch.zeros(part, dtype=dtype, device=device)
    output = torch.zeros_like(whole)
    return {
        "all_reduce": lambda: dist.all_reduce(whole, group=group),
        "all_gather": lambda: dist.all_gather_into_tensor(whole, piece, group=group),
        "reduce_scatter": lambda: dist.reduce_scatter_tensor(piece, whole, group=group),
        "all_to_all": lambda: dist.all_to_all_single(output, whole, group=group),
    }[op]


def mean_time(call: Callable[[], object], repeats: int, group: dist.ProcessGroup) -> float:
    dist.barrier(group=group)
    began = time.perf_counter()
    for _ in range(repeats):
        call()
    return (time.perf_counter() - began) / repeats


def compare(op: str, size: int, dtype: torch.dtype, groups: dict[str, dist.ProcessGroup]) -> dict[str, float]:
    """Seconds per call of each backend."""
    count = -(-size // dtype.itemsize)
    calls = {
        name: make_call(op, count, dtype, "neuron" if name == "neuron" else "cpu", group)
        for name, group in groups.items()
    }
    repeats = {}
    for name, call in calls.items():
        call()
        estimate = torch.tensor(mean_time(call, 2, groups[name]))
        dist.broadcast(estimate, 0, group=groups["gloo"])
        repeats[name] = max(2, min(2000, int(ROUND_SECONDS / max(estimate.item(), 1e-6))))
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(ROUNDS):
        for name, call in calls.items():
            times[name].append(mean_time(call, repeats[name], groups[name]))
    return {name: statistics.median(each) for name, each in times.items()}


def worker(rank: int, world_size: int, port: int, args: argparse.Namespace) -> None:
    """One rank: measures everything; rank 0 prints."""
    torch.set_num_threads(1)
    torch.accelerator.set_device_index(rank)
    store = dist.TCPStore("localhost", port, world_size, is_master=False)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world_size)
    groups = {"gloo": dist.group.WORLD, "neuron": dist.new_group(backend="neuron")}
    for op in args.ops:
        for text in args.sizes:
            times = compare(op, parse_size(text), getattr(torch, args.dtype), groups)
            if rank == 0:
                report(op, text, world_size, times, args.json)
    dist.destroy_process_group()


def report(op: str, size: str, ranks: int, times: dict[str, float], as_json: bool) -> None:
    ratio = times["gloo"] / times["neuron"]
    if as_json:
        row = {"op": op, "size": size, "ranks": ranks, **{f"{name}_us": t * 1e6 for name, t in times.items()}}
        print(json.dumps({**row, "ratio": ratio}), flush=True)
    else:
        gloo, neuron = times["gloo"] * 1e6, times["neuron"] * 1e6
        print(f"{op:15}{size:>6}{ranks:>7}{gloo:>14.1f}{neuron:>14.1f}{ratio:>9.1f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.collectives", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4, 8])
    parser.add_argument(
        "--ops", nargs="+", choices=OPS, default=["all_reduce", "all_gather", "reduce_scatter"]
    )
    parser.add_argument("--sizes", nargs="+", default=SIZES)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    if not args.json:
        print(f"{'op':15}{'bytes':>6}{'ranks':>7}{'gloo us':>14}{'neuron us':>14}{'ratio':>9}")
    for ranks in args.ranks:
        store = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
        mp.spawn(worker, (ranks, store.port, args), nprocs=ranks)


if __name__ == "__main__":
    main()
