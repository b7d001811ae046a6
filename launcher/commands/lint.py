"""Whether the Neuron runtime would accept replica groups: ok, warn or reject, in its own words.

Exits with 1 if a group would be rejected.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict

from neuron_dist.collectives import OPS
from neuron_dist.topology import parse_cores
from neuron_dist.topology.rules import VERSION, lint, worst

from .common import add_fabric, fabric, parse_pairs, print_json


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--topology", "-t", required=True, help="preset, file or inline spec")
    parser.add_argument(
        "--groups", "-g", required=True, help="logical cores of each group: '0-31;32-63', '0-60:4'"
    )
    parser.add_argument(
        "--op", default="all_reduce", choices=[*OPS, "barrier"], metavar="OP", help="what the groups are for"
    )
    parser.add_argument("--pairs", default="", help="source-target ranks of a permute: 0-1,1-2,2-0")
    parser.add_argument("--uneven", action="store_true", help="the all_to_all has unequal splits")
    add_fabric(parser)


def run(args: argparse.Namespace) -> int:
    topology = fabric(args, args.topology)
    groups = [parse_cores(part) for part in args.groups.split(";")]
    findings = lint(topology, groups, op=args.op, pairs=parse_pairs(args.pairs), uneven=args.uneven)
    if args.json:
        print_json(
            {
                "rules": VERSION,
                "worst": worst(findings),
                "findings": [asdict(finding) for finding in findings],
            }
        )
    else:
        for finding in findings:
            print(f"{finding.level}: group {finding.group}: {finding.message} [{finding.rule}]")
            if finding.runtime:
                print(f"    the runtime says: {finding.runtime}")
        print(f"{worst(findings)} by the rules of {VERSION}")
    return 1 if worst(findings) == "reject" else 0
