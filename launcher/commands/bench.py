"""Collectives of the neuron backend on this host's processes, beside what the fabric would take.

Takes nccom-test's flags. Columns under "host" are measured here; those under "fabric" are simulated, not measured.
Bandwidths are decimal GB/s, algbw and busbw as nccl-tests defines them.
"""

from __future__ import annotations

import argparse
import json
import os
from contextlib import suppress
from typing import TYPE_CHECKING

from neuron_dist.collectives import OPS, Price, profiles
from neuron_dist.collectives.choose import by_rule, parse_rules
from neuron_dist.collectives.errors import CollectiveError, Unsupported
from neuron_dist.collectives.sizes import parse_size
from neuron_dist.topology import Group

from .common import fabric, print_json, table

if TYPE_CHECKING:
    from ..measure import Row

# nccom-test's names and torch's.
NAMES = {"allr": "all_reduce", "allg": "all_gather", "redsct": "reduce_scatter", "alltoall": "all_to_all"}
NAMES |= {"sendrecv": "send_recv", "bcast": "broadcast"}
DTYPES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
PEERS = ("gloo", "mpich")
MOST_PROCESSES = 16


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("op", metavar="OP", choices=[*NAMES, *NAMES.values()], help=", ".join(NAMES))
    parser.add_argument(
        "-r", "--nworkers", type=int, required=True, help="ranks; more than this host can run are priced"
    )
    parser.add_argument("-b", "--minbytes", default="8", help="smallest size (default 8)")
    parser.add_argument("-e", "--maxbytes", default="16M", help="largest size (default 16M)")
    step = parser.add_mutually_exclusive_group()
    step.add_argument("-f", "--stepfactor", type=int, default=4, help="factor between sizes (default 4)")
    step.add_argument("-i", "--stepbytes", help="bytes between sizes")
    parser.add_argument("-n", "--iters", type=int, default=20, help="measured calls (default 20)")
    parser.add_argument("-w", "--warmup_iters", type=int, default=5, help="calls before (default 5)")
    parser.add_argument("-d", "--datatype", default="fp32", help="dtype (default fp32)")
    parser.add_argument(
        "-c", "--check", default="random", choices=("random", "all_ones"), help="data to check with"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--show-algorithm", action="store_true", help="accepted; the algorithm is always shown"
    )
    parser.add_argument("--vs", default="", help="measure peers in the same run: gloo,mpich")
    parser.add_argument("--report-to-json-file", metavar="FILE", help="write the rows to FILE as well")
    parser.add_argument(
        "--topology", "-t", help="preset, file or inline spec (default: the smallest that holds the ranks)"
    )
    parser.add_argument(
        "--algorithm", default="", help="algorithm or selection string (default: the cheapest)"
    )
    parser.set_defaults(lnc=None, link_counting=None, fault=[])


def run(args: argparse.Namespace) -> int:
    from neuron_dist.job import job_topology  # after the arguments are known to be right

    op = NAMES.get(args.op, args.op)
    if args.nworkers < 2 or args.iters < 1 or args.warmup_iters < 0:
        raise CollectiveError("bench needs at least 2 ranks and 1 iteration")
    for peer in _peers(args):
        if peer not in PEERS:
            raise CollectiveError(f"--vs {args.vs}: no peer {peer!r}; expected {' or '.join(PEERS)}")
    topology = fabric(args, args.topology) if args.topology else job_topology(args.nworkers)
    group = Group(topology, range(args.nworkers))
    rules = parse_rules(args.algorithm).get(op, [])
    pairs = tuple((rank, (rank + 1) % group.size) for rank in range(group.size)) if op == "send_recv" else ()
    candidates = profiles(op, group, pairs=pairs)
    for rule in rules:
        with suppress(Unsupported):
            candidates |= profiles(op, group, [rule.algorithm], pairs=pairs)
    sizes = sizes_of(args)
    prices = {size: candidates[by_rule(candidates, rules, size)].price(size) for size in sizes}
    measured = {row.size: row for row in _measure(args, op, sizes)} if args.nworkers <= MOST_PROCESSES else {}
    rows = [_row(op, args.nworkers, prices[size], measured.get(size)) for size in sizes]
    if args.report_to_json_file:
        with open(args.report_to_json_file, "w") as file:
            json.dump(rows, file, indent=1)
    if args.json:
        print_json(rows)
        return 0
    print(f"{op}, {args.nworkers} ranks of {topology.name}; host: measured, fabric: simulated")
    if not measured:
        print(
            f"priced only: {args.nworkers} ranks are more than the {MOST_PROCESSES} processes that this host is given"
        )
    print(table(list(rows[0]), [[_shown(value) for value in row.values()] for row in rows]))
    if measured:
        rates = [size / row.time_us / 1e3 * OPS[op].busbw(args.nworkers) for size, row in measured.items()]
        print(f"Avg bus bandwidth: {sum(rates) / len(rates):.4g} GB/s (host)")
    return 0


def sizes_of(args: argparse.Namespace) -> list[int]:
    """The sizes from -b to -e by -f or -i. Raises CollectiveError if there are none."""
    size, last = parse_size(args.minbytes), parse_size(args.maxbytes)
    step = parse_size(args.stepbytes) if args.stepbytes else 0
    if size > last or (not step and args.stepfactor < 2) or (args.stepbytes and not step):
        raise CollectiveError(
            f"sizes from {args.minbytes} to {args.maxbytes}: no step leads from one to the other"
        )
    sizes = []
    while size <= last:
        sizes.append(size)
        size = size + step if step else max(size, 1) * args.stepfactor
    return sizes


def _measure(args: argparse.Namespace, op: str, sizes: list[int]) -> list[Row]:
    if args.topology:
        os.environ["NEURON_SIM_TOPOLOGY"] = args.topology
    if args.algorithm:
        os.environ["NEURON_SIM_ALGORITHM"] = args.algorithm
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    import torch

    from ..measure import Job, measure

    dtype = DTYPES.get(args.datatype, args.datatype)
    if not isinstance(getattr(torch, dtype, None), torch.dtype):
        raise CollectiveError(
            f"-d {args.datatype}: no such dtype; expected fp32, bf16, fp16 or torch's names"
        )
    ranks, peers = args.nworkers, _peers(args)
    return measure(Job(op, ranks, sizes, dtype, args.iters, args.warmup_iters, args.check, args.seed, peers))


def _peers(args: argparse.Namespace) -> list[str]:
    return [peer for peer in args.vs.split(",") if peer]


def _row(op: str, ranks: int, price: Price, row: Row | None) -> dict[str, object]:
    """nccom-test's columns for the host where it was measured, then the fabric's."""
    shown: dict[str, object] = {"size(B)": price.size}
    if row:
        algbw = price.size / row.time_us / 1e3
        shown |= {
            "count(elems)": row.count,
            "time(us)": row.time_us,
            "p99(us)": row.p99_us,
            "algbw(GB/s)": algbw,
        }
        shown |= {"busbw(GB/s)": algbw * OPS[op].busbw(ranks), "#wrong": row.wrong}
        for name, microseconds in row.peers_us.items():
            ratio = microseconds / row.time_us if microseconds else None
            shown |= {f"{name}(us)": microseconds, f"{name}/neuron": ratio}
    simulated = row.simulated_us if row and row.simulated_us else price.time_us
    shown |= {"fabric(us)": simulated, "fabric busbw": price.busbw}
    shown |= {"of bound": f"{100 / price.bound_ratio:.1f} %" if price.bound_ratio else "-"}
    return shown | {"algorithm": (row.algorithm if row else "") or price.algorithm}


def _shown(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else "-" if value is None else str(value)
