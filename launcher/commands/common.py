"""What the subcommands share: how a fabric and a group are named, tables, JSON."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Sequence

from neuron_dist.collectives import OPS
from neuron_dist.topology import Group, Topology, TopologyError, load, parse_cores
from neuron_dist.topology.faults import apply
from neuron_dist.topology.load import COUNTINGS


def add_fabric(parser: argparse.ArgumentParser) -> None:
    """--lnc, --link-counting, --fault: knobs of a topology."""
    parser.add_argument(
        "--lnc", type=int, choices=(1, 2), help="logical NeuronCore configuration (the preset's)"
    )
    parser.add_argument("--link-counting", choices=COUNTINGS, help="what the preset's GB/s per link count")
    parser.add_argument(
        "--fault",
        action="append",
        default=[],
        metavar="FAULT",
        help="link:0-1:down, link:0-1:slow=0.5, link:0-1:late=3 (us) or chip:5:down; may be repeated",
    )


def add_op(parser: argparse.ArgumentParser) -> None:
    """OP, --root and --pairs: the operation."""
    parser.add_argument("op", choices=list(OPS), metavar="OP", help=", ".join(OPS))
    parser.add_argument(
        "--root", type=int, default=0, help="the root rank of broadcast, reduce, gather and scatter"
    )
    parser.add_argument(
        "--pairs", default="", help="source-target ranks of permute and send_recv: 0-1,1-2,2-0"
    )


def add_group(parser: argparse.ArgumentParser, topology: str | None = None) -> None:
    """--topology, --ranks or --group, and the knobs."""
    parser.add_argument(
        "--topology",
        "-t",
        default=topology,
        required=topology is None,
        help="preset, file or inline spec: trn2.48xlarge, trn2.48xlarge*4, my.json, torus:4x4, ring:8"
        + (f" (default {topology})" if topology else ""),
    )
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--ranks", "-r", type=int, help="the first N logical cores (default: all)")
    which.add_argument("--group", "-g", help="logical cores by rank, such as 0-15,48-63 or 0-60:4")
    add_fabric(parser)


def fabric(args: argparse.Namespace, spec: str) -> Topology:
    """The topology the arguments name, with its faults."""
    topology = load(spec, lnc=args.lnc, link_counting=args.link_counting)
    for fault in args.fault:
        topology = apply(topology, fault)
    return topology


def group_of(args: argparse.Namespace) -> Group:
    """The group the arguments name."""
    topology = fabric(args, args.topology)
    if args.group:
        return Group(topology, parse_cores(args.group))
    if args.ranks is not None and not 0 < args.ranks <= topology.cores:
        raise TopologyError(f"--ranks {args.ranks}: {topology.name} has 1 to {topology.cores} logical cores")
    return Group(topology, range(args.ranks or topology.cores))


def parse_pairs(text: str) -> tuple[tuple[int, int], ...]:
    """(src, dst) ranks of ``0-1,1-2,2-0``."""
    pairs = []
    for part in text.split(",") if text else []:
        src, dash, dst = part.strip().partition("-")
        if not (dash and src.isdecimal() and dst.isdecimal()):
            raise TopologyError(f"--pairs {text!r}: {part!r} is no pair of ranks such as 0-1")
        pairs.append((int(src), int(dst)))
    return tuple(pairs)


def print_json(value: object) -> None:
    print(json.dumps(value, indent=2))


def table(header: Sequence[str], rows: Iterable[Sequence[str]], left: str = "") -> str:
    """Columns aligned to the right, those of the names in ``left`` to the left."""
    lines = [list(header), *(list(row) for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(header))]
    to_left = [name in left.split(",") for name in header]

    def justified(line: list[str]) -> str:
        cells = (c.ljust(w) if lft else c.rjust(w) for c, w, lft in zip(line, widths, to_left, strict=True))
        return "  ".join(cells).rstrip()

    return "\n".join(justified(line) for line in lines)


def significant(value: float, digits: int = 4) -> str:
    """A number with so many digits and no exponent: ``0.1235``, ``12.35``, ``12346``."""
    if value == 0:
        return "0"
    text = f"{value:.{digits}g}"
    return f"{value:.0f}" if "e+" in text else text
