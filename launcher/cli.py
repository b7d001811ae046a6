"""The ``neuron-dist`` command: what a fabric is, what a collective costs there, why, and if it would run."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from neuron_dist.collectives import CollectiveError
from neuron_dist.topology import TopologyError

from .commands import bench, explain, lint, predict, report, topo, verify

USAGE_ERROR = 2


class Parser(argparse.ArgumentParser):
    """Reports a wrong command line in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(USAGE_ERROR, f"{self.prog}: error: {message}\n")


def parser() -> argparse.ArgumentParser:
    """The command line; every subcommand says what it takes in a module of its own."""
    top = Parser(prog="neuron-dist", description=__doc__)
    commands = top.add_subparsers(required=True, metavar="COMMAND", parser_class=Parser)
    for module in (topo, predict, explain, verify, lint, bench, report):
        summary = (module.__doc__ or "").strip().split("\n")[0]
        sub = commands.add_parser(
            module.__name__.rsplit(".", 1)[-1], help=summary, description=module.__doc__
        )
        module.add_arguments(sub)
        sub.add_argument("--json", action="store_true", help="print JSON instead of text")
        sub.set_defaults(run=module.run)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; 0, or 2 after an error told in one line, or 1 where lint rejects a group."""
    args = parser().parse_args(argv)
    try:
        status = args.run(args)
        sys.stdout.flush()
        return status
    except BrokenPipeError:  # the reader, such as head, has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (TopologyError, CollectiveError, OSError) as error:
        print(f"neuron-dist: error: {' '.join(str(error).split())}", file=sys.stderr)
        return USAGE_ERROR


if __name__ == "__main__":
    sys.exit(main())
