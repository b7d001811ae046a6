"""A data-parallel training step on neuron against the CPU with Gloo: ``python -m benchmarks.ddp``.

The model of examples/train_gpt.py, both sides in the same processes and in turns. Timed are a step as it is, a
silent step, which does the same but communicate, and the all-reduces of the gradients alone. "exposed" is the first
less the second: what the backward did not hide, and the waiting for ranks that came late. Host time, where ranks and
their communication share the cores.
"""

import argparse
import os
import statistics
import time
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch.multiprocessing.spawn import spawn
from torch.nn.parallel import DistributedDataParallel

from examples.train_gpt import GPT

ROUNDS = 7


class Side:
    """One device and its group, with the three things that are timed."""

    def __init__(self, device: str, group: "dist.ProcessGroup | None", args: argparse.Namespace) -> None:
        self.group, self.steps = group, args.steps
        self.step = step_of(device, group, args)
        self.silent_step = step_of(device, group, args, silent=True)
        gradients = torch.zeros(sum(p.numel() for p in model_of(args).parameters()), device=device)
        self.buckets = gradients.split(25 << 18)  # DDP's 25 MiB of float32

    def communicate(self) -> None:
        for bucket in self.buckets:
            dist.all_reduce(bucket, group=self.group)

    def seconds(self, work: Callable[[], None]) -> float:
        dist.barrier(self.group)
        begin = time.perf_counter()
        for _ in range(self.steps):
            work()
        dist.barrier(self.group)
        return (time.perf_counter() - begin) / self.steps


def model_of(args: argparse.Namespace) -> GPT:
    torch.manual_seed(0)
    return GPT(args.context, args.width, args.layers)


def leave_as_it_is(_: None, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    done: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    done.set_result(bucket.buffer())
    return done


def step_of(
    device: str, group: "dist.ProcessGroup | None", args: argparse.Namespace, silent: bool = False
) -> Callable[[], None]:
    model = DistributedDataParallel(model_of(args).to(device), process_group=group)
    if silent:
        model.register_comm_hook(None, leave_as_it_is)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    tokens = torch.randint(256, (args.batch, args.context), device=device)

    def step() -> None:
        model(tokens, tokens).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def _rank(rank: int, port: int, ranks: int, args: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    torch.accelerator.set_device_index(rank)
    store = dist.TCPStore("localhost", port, ranks, is_master=False)
    dist.init_process_group("neuron", store=store, rank=rank, world_size=ranks)
    sides = {
        "neuron": Side("neuron", None, args),
        "cpu + gloo": Side("cpu", dist.new_group(backend="gloo"), args),
    }
    times: dict[str, list[list[float]]] = {name: [] for name in sides}
    for turn in range(ROUNDS + 1):
        for name, side in sides.items():
            measured = [side.seconds(work) for work in (side.step, side.silent_step, side.communicate)]
            if turn:  # the first warms up
                times[name].append(measured)
    if rank == 0:
        for name, rounds in times.items():
            step, silent, alone = (statistics.median(each) * 1e3 for each in zip(*rounds, strict=True))
            print(
                f"{ranks:5}  {name:12}{step:9.2f}{silent:9.2f}{step - silent:9.2f}{alone:15.3f}", flush=True
            )
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ddp", description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--steps", type=int, default=10, help="in a round")
    parser.add_argument("--batch", type=int, default=8, help="sequences per rank")
    parser.add_argument("--context", type=int, default=64)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--layers", type=int, default=2)
    args = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    print(f"ranks  {'side':12}{'step ms':>9}{'silent':>9}{'exposed':>9}{'communication':>15}")
    for ranks in args.ranks:
        store = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
        spawn(_rank, (store.port, ranks, args), nprocs=ranks)


if __name__ == "__main__":
    main()
