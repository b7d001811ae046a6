"""Whether an algorithm does what it promises: checks its schedule of every op it serves, or of one."""

from __future__ import annotations

import argparse

from neuron_dist.collectives import OPS, Unsupported, build, reduction_order, verify
from neuron_dist.collectives.build import POINT_TO_POINT

from .common import add_group, group_of, print_json, table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("algorithm", help="file.py:function, or a built-in name")
    add_group(parser, topology="torus:4x4")
    parser.add_argument("--op", choices=list(OPS), metavar="OP", help="only this op (default: all it serves)")
    parser.add_argument("--root", type=int, default=0, help="the root rank of rooted ops")
    parser.add_argument(
        "--direct-links", action="store_true", help="refuse transfers over more than one link"
    )


def run(args: argparse.Namespace) -> int:
    group = group_of(args)
    found, refused = [], []
    for op in [args.op] if args.op else [op for op in OPS if op not in POINT_TO_POINT]:
        try:
            schedule = build(op, args.algorithm, group, root=args.root)
        except Unsupported as error:
            refused.append(error)
            continue
        verify(schedule, group, direct_links=args.direct_links)
        depth = reduction_order(schedule).depth
        found.append(
            {
                "op": op,
                "steps": schedule.steps,
                "transfers": schedule.transfers,
                "chunks": schedule.chunks,
                "sum_depth": depth,
            }
        )
    if not found:
        raise refused[0]
    if args.json:
        print_json(
            {
                "algorithm": args.algorithm,
                "topology": group.topology.name,
                "ranks": group.size,
                "correct": found,
            }
        )
    else:
        print(f"{args.algorithm} on {group.size} ranks of {group.topology.name}: correct")
        header = list(found[0])
        print(table(header, [[str(row[name]) for name in header] for row in found], left="op"))
    return 0
