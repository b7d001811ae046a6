"""What a collective costs on a fabric, by size and algorithm.

Times are predicted for the fabric, not measured on this host. The algorithm that would run is marked with *.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from neuron_dist.collectives import Price, Unsupported, profiles
from neuron_dist.collectives.choose import by_rule, parse_selection
from neuron_dist.collectives.price import Profile
from neuron_dist.collectives.sizes import format_size, parse_sizes

from ..plot import log_log_svg
from .common import add_group, add_op, group_of, parse_pairs, print_json, significant, table

TOP = 5  # algorithms a size in the table, unless asked for by name


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_op(parser)
    add_group(parser)
    parser.add_argument(
        "--size",
        "-s",
        default="1K:1G:32",
        help="bytes: 1M, 1K,1M or 1K:1G[:FACTOR] (default 1K:1G:32); S of nccl-tests",
    )
    parser.add_argument(
        "--algorithm",
        "-a",
        help=f"names apart by commas, or all (default: all; the table shows the {TOP} cheapest)",
    )
    parser.add_argument(
        "--selection", help="what would run: neuron, or such as 'all_reduce=mesh:0-1M;rdh:1M-'"
    )
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw time by size as SVG")


def run(args: argparse.Namespace) -> int:
    sizes = parse_sizes(args.size)
    rules = parse_selection(args.selection).get(args.op, []) if args.selection else []
    group = group_of(args)
    asked = None if args.algorithm in (None, "all") else args.algorithm.split(",")
    pairs = parse_pairs(args.pairs)
    shown = profiles(args.op, group, asked, root=args.root, pairs=pairs)
    for name in asked or ():
        if name not in shown:
            print(f"neuron-dist: {name} does not serve {args.op} on this group: left out", file=sys.stderr)
    wanted = dict(shown)
    for rule in rules:
        if rule.algorithm not in wanted:
            try:
                wanted |= profiles(args.op, group, [rule.algorithm], root=args.root, pairs=pairs)
            except Unsupported:
                continue
    chosen = {size: by_rule(wanted, rules, size) for size in sizes}
    rows = [(p, name == chosen[p.size]) for size in sizes for name, p in _by_time(wanted, size)]
    if args.plot:
        lines = {name: [(p.size, p.time_us) for p, _ in rows if p.algorithm == name] for name in wanted}
        args.plot.write_text(
            log_log_svg(lines, title=f"{args.op}, {group.size} ranks of {group.topology.name}: us by bytes")
        )
    if args.json:
        print_json([price.as_dict() | {"chosen": is_chosen} for price, is_chosen in rows])
    else:
        print(f"{args.op}, {group.size} ranks of {group.topology.name}: predicted, not measured")
        print(_table(rows, top=TOP if args.algorithm is None else len(wanted)))
    return 0


def _by_time(candidates: dict[str, Profile], size: int) -> list[tuple[str, Price]]:
    priced = [(name, candidate.price(size)) for name, candidate in candidates.items()]
    return sorted(priced, key=lambda pair: pair[1].time_us)


def _table(rows: list[tuple[Price, bool]], top: int) -> str:
    header = [
        "size",
        "algorithm",
        "",
        "steps",
        "us",
        "alpha",
        "links",
        "HBM",
        "algbw",
        "busbw",
        "of bound",
        "busiest link",
    ]
    lines, place, size = [], 0, -1
    for price, is_chosen in rows:
        place = place + 1 if price.size == size else 0
        if place >= top and not is_chosen:
            continue
        lines.append(
            [
                format_size(price.size) if price.size != size else "",
                price.algorithm,
                "*" if is_chosen else "",
                str(price.steps),
                *(significant(us) for us in (price.time_us, price.alpha_us, price.beta_us, price.hbm_us)),
                *(significant(gbps) for gbps in (price.algbw, price.busbw)),
                f"{100 / price.bound_ratio:.1f} %" if price.bound_ratio else "-",
                price.busiest_link,
            ]
        )
        size = price.size
    note = "us = alpha + links + HBM; GB/s = 10^9; of bound: least time of the links over this; *: would run"
    return f"{table(header, lines, left='algorithm,busiest link')}\n{note}"
