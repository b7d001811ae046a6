"""One schedule, step by step: who sends what to whom, what it costs and which links it lights."""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from neuron_dist.collectives import build, choose, profile, reduction_order
from neuron_dist.collectives.explain import step_lines, steps_svg
from neuron_dist.collectives.schedule import COLUMNS
from neuron_dist.collectives.sizes import format_size, parse_size

from .common import add_group, add_op, group_of, parse_pairs, print_json, significant


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_op(parser)
    add_group(parser)
    parser.add_argument(
        "--algorithm", "-a", help="name, inner+outer or file.py:function (default: the cheapest)"
    )
    parser.add_argument("--size", "-s", default="1M", help="bytes the costs are for (default 1M)")
    parser.add_argument(
        "--show", type=int, default=4, metavar="N", help="transfers to list in each step (default 4)"
    )
    parser.add_argument("--svg", type=Path, metavar="FILE", help="draw the links lit in each step")


def run(args: argparse.Namespace) -> int:
    size = parse_size(args.size)
    group = group_of(args)
    pairs = parse_pairs(args.pairs)
    name = args.algorithm or choose(args.op, group, size, root=args.root, pairs=pairs)
    schedule = build(args.op, name, group, root=args.root, pairs=pairs)
    costs = profile(schedule, group)
    # Step by step is how it is told, so the price is of one piece.
    price = costs.price(size, pieces=1)
    if args.svg:
        args.svg.write_text(steps_svg(schedule, group))
    if args.json:
        transfers = np.stack([getattr(schedule, column).astype(int) for column in COLUMNS], axis=1).tolist()
        by_step = {"alpha_us": costs.alpha_us, "beta_us": costs.link_us * size, "hbm_us": costs.hbm_us * size}
        steps = [
            dict(zip(by_step, values, strict=True))
            for values in zip(*(p.tolist() for p in by_step.values()), strict=True)
        ]
        print_json({"price": price.as_dict(), "steps": steps, "columns": COLUMNS, "transfers": transfers})
        return 0
    where = f"{group.size} ranks of {group.topology.name}"
    print(f"{args.op} of {format_size(size)} by {name}, {where}: predicted, not measured")
    parts = {"alpha": price.alpha_us, "links": price.beta_us, "HBM": price.hbm_us}
    print(f"{schedule.steps} steps, {schedule.chunks} chunks, {schedule.transfers} transfers")
    total = " + ".join(f"{name} {significant(us)}" for name, us in parts.items())
    print(f"{significant(price.time_us)} us = {total}; the links' bound is {significant(price.bound_us)} us")
    if schedule.pipelined:
        best = costs.price(size)
        print(
            f"pipelined: in {best.pieces} pieces, {best.steps} ticks, it takes {significant(best.time_us)} us"
        )
    for line in step_lines(costs, size=size, show=args.show):
        print(line)
    if schedule.spec.reduces:
        order = reduction_order(schedule)
        print(f"chunk 0 is summed {_shortened(order.formula(0))}; {order.depth} additions deep at most")
    return 0


def _shortened(formula: str, most: int = 100) -> str:
    return formula if len(formula) <= most else f"{formula[: most // 2]} ... {formula[-most // 2 :]}"
