"""What walking a schedule's order of sums costs: ``python -m benchmarks.orders``.

all_reduce in the order of the ranks against the order of each algorithm, in one run. Host time.
"""

import argparse
import os

import torch
import torch.distributed as dist
from neuron_dist.launcher.measure import Job, measure
from neuron_dist.launcher.peers import Call, Start
from neuron_dist.launcher.peers.torch_group import call_on

import neuron_dist


def _connect(algorithm: str, reduction: str) -> Start:
    options = neuron_dist.Options(algorithm=algorithm, reduction=reduction)
    group = dist.new_group(backend="neuron", pg_options=options)

    def start(op: str, given: torch.Tensor, output: torch.Tensor) -> Call:
        on_device = given.to("neuron")
        return call_on(group, op, on_device, on_device)

    return start


def exact(rank: int, ranks: int) -> Start:
    """Sums in fp32 in the order of the ranks, rounded once."""
    return _connect("", "exact")


def ring(rank: int, ranks: int) -> Start:
    return _connect("ring", "schedule")


def rdh(rank: int, ranks: int) -> Start:
    return _connect("rdh", "schedule")


def mesh(rank: int, ranks: int) -> Start:
    return _connect("mesh", "schedule")


ORDERS = (exact, mesh, ring, rdh)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.orders", description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4, 8])
    parser.add_argument("--mib", type=int, nargs="+", default=[1, 16, 64])
    parser.add_argument("--dtypes", nargs="+", default=["float32", "bfloat16"])
    args = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    names = [f"benchmarks.orders:{order.__name__}" for order in ORDERS]
    titles = "".join(f"{order.__name__:>10}" for order in ORDERS[1:])
    print(f"{'ranks':>5}{'dtype':>10}{'MiB':>6}{'exact us':>12}   time over exact:{titles}")
    for ranks in args.ranks:
        for dtype in args.dtypes:
            sizes = [mib << 20 for mib in args.mib]
            for row in measure(Job("all_reduce", ranks, sizes, dtype, peers=names, round_seconds=0.2)):
                base, *others = (row.peers_us[name] or 0 for name in names)
                ratios = "".join(f"{time / base:10.2f}" for time in others)
                print(f"{ranks:5}{dtype:>10}{row.size >> 20:6}{base:12.1f}{'':20}{ratios}", flush=True)


if __name__ == "__main__":
    main()
