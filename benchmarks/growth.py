"""How the cost of an all_reduce grows with size, ranks and groups: ``python -m benchmarks.growth growth.svg``.

Each line of the plot varies one of them: seconds of a call on this host over what is varied, both axes logarithmic,
so that a linear cost has slope 1. The slopes between neighbouring points are printed.
"""

import argparse
import os
from dataclasses import dataclass
from itertools import pairwise
from math import log
from pathlib import Path

import torch
import torch.distributed as dist
from neuron_dist.launcher.measure import Job, measure
from neuron_dist.launcher.peers import Call, Start
from neuron_dist.launcher.peers.torch_group import call_on
from neuron_dist.launcher.plot import log_log_svg

SIZES = [4 << (2 * k) for k in range(14)]  # 4 bytes to 256 MiB
RANKS = [2, 4, 8, 16, 32]
GROUPS = [1, 4, 16, 64, 256]


@dataclass(frozen=True)
class OnGroups:
    """A peer: one call on each of ``count`` groups of all ranks."""

    count: int

    def __call__(self, rank: int, ranks: int) -> Start:
        groups = [dist.new_group(backend="neuron") for _ in range(self.count)]

        def start(op: str, given: torch.Tensor, output: torch.Tensor) -> Call:
            calls = [call_on(group, op, tensor := given.to("neuron"), tensor) for group in groups]
            return lambda: [call() for call in calls]

        return start


groups_1, groups_4, groups_16, groups_64, groups_256 = map(OnGroups, GROUPS)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.growth", description=__doc__.splitlines()[0])
    parser.add_argument("plot", type=Path, help="the SVG file to write")
    args = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    lines = {}
    for ranks in (2, 4):
        rows = measure(Job("all_reduce", ranks, SIZES, round_seconds=0.1))
        lines[f"bytes, {ranks} ranks"] = [(row.size, row.time_us * 1e-6) for row in rows]
    for size, name in ((4, "4 B"), (1 << 20, "1 MiB")):
        times = [(n, measure(Job("all_reduce", n, [size], round_seconds=0.1))[0].time_us) for n in RANKS]
        lines[f"ranks, {name}"] = [(n, time * 1e-6) for n, time in times]
    peers = [f"benchmarks.growth:groups_{count}" for count in GROUPS]
    row = measure(Job("all_reduce", 2, [4], peers=peers, round_seconds=0.1))[0]
    lines["groups, one call on each"] = [
        (count, (row.peers_us[peer] or 0) * 1e-6) for count, peer in zip(GROUPS, peers, strict=True)
    ]
    for name, points in lines.items():
        print(name)
        for (x, y), (next_x, next_y) in pairwise(points):
            print(
                f"  {x:>12} -> {next_x:<12} {next_y * 1e6:12.1f} us   slope {log(next_y / y) / log(next_x / x):5.2f}"
            )
    args.plot.write_text(log_log_svg(lines, "Seconds of an all_reduce on this host"))


if __name__ == "__main__":
    main()
