"""Collectives of the neuron backend against peers, in one run: ``python -m benchmarks.collectives``.

Peers: gloo; mpich (``pip install mpich mpi4py``); bare, a C loop that only reads and writes what it must. A figure is
the median over the rounds of the mean time of a call, as rank 0 sees it. Host time; nothing here is simulated.
"""

import argparse
import json
import os

from neuron_dist.collectives.sizes import parse_size
from neuron_dist.launcher.measure import Job, measure

OPS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
SIZES = ("4", "1K", "64K", "1M", "16M", "64M")
PEERS = {"gloo": "gloo", "mpich": "mpich", "bare": "benchmarks.bare_loop:connect"}
ROUND_SECONDS = 0.15  # of each contender


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.collectives", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4, 8])
    parser.add_argument("--ops", nargs="+", choices=OPS, default=OPS)
    parser.add_argument(
        "--sizes", nargs="+", default=SIZES, help="the all_reduce tensor, gathered output, scattered input"
    )
    parser.add_argument("--dtypes", nargs="+", default=["float32"])
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=["gloo"])
    parser.add_argument("--json", action="store_true", help="a line of JSON for each row")
    args = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    if not args.json:
        head = "".join(f"{name + ' us':>12}{'ratio':>8}" for name in args.peers)
        print(f"{'op':15}{'dtype':>9}{'bytes':>6}{'ranks':>6}{'neuron us':>12}{head}")
    names = [PEERS[name] for name in args.peers]
    for ranks in args.ranks:
        for op in args.ops:
            for dtype in args.dtypes:
                sizes = [parse_size(size) for size in args.sizes]
                job = Job(op, ranks, sizes, dtype, peers=names, round_seconds=ROUND_SECONDS)
                for size, row in zip(args.sizes, measure(job), strict=True):
                    times = dict(zip(args.peers, row.peers_us.values(), strict=True))
                    report(op, dtype, size, ranks, row.time_us, times, args.json)


def report(
    op: str, dtype: str, size: str, ranks: int, ours: float, peers: dict[str, float | None], as_json: bool
) -> None:
    """Print a row. A ratio is the peer's time over ours."""
    if as_json:
        row = {"op": op, "dtype": dtype, "size": size, "ranks": ranks, "neuron_us": ours}
        print(json.dumps(row | {f"{name}_us": time for name, time in peers.items()}), flush=True)
        return
    cells = "".join(
        f"{time:12.1f}{time / ours:8.2f}" if time else f"{'-':>12}{'-':>8}" for time in peers.values()
    )
    print(f"{op:15}{dtype:>9}{size:>6}{ranks:>6}{ours:>12.1f}{cells}", flush=True)


if __name__ == "__main__":
    main()
