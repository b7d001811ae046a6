"""`neuronrun`: torchrun for the simulated fabric. Torch's own parser, rendezvous and agent do the work."""

import os
import shutil
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence

import torch.distributed as dist
from torch.distributed import run as torchrun
from torch.distributed.elastic.multiprocessing import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, record
from torch.distributed.elastic.rendezvous import RendezvousError
from torch.distributed.elastic.rendezvous.utils import parse_rendezvous_endpoint


def get_args_parser() -> ArgumentParser:
    """Torchrun's parser under our name: every torchrun command line parses to the same values.

    Flags of our own are added here, as options: the script and its arguments stay the last positionals.
    """
    parser = torchrun.get_args_parser()
    parser.prog = "neuronrun"
    parser.description = "Start a distributed job on the simulated neuron devices. Takes what torchrun takes."
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line ``argv`` (default: this process's own) and return its exit code.

    0 if every worker ended well, 1 if one failed or a signal stopped the job, 2 if the command line is wrong.
    """
    args = get_args_parser().parse_args(argv)
    try:
        _check(args)
        _choose_port(args)
        _choose_threads(args)
    except ValueError as error:
        return _fail(error, 2)
    try:
        record(torchrun.run)(args)
    except ChildFailedError as error:
        print(error, file=sys.stderr)  # torch's report of the workers that failed
        return 1
    except (SignalException, RendezvousError, dist.DistError, ValueError, AssertionError) as error:
        return _fail(error, 1)
    return 0


def _fail(error: BaseException, code: int) -> int:
    print(f"neuronrun: error: {error}", file=sys.stderr)
    return code


def _check(args: Namespace) -> None:
    """Raise ValueError, naming the flag, for what torch would report late, per worker or as a traceback."""
    script = args.training_script
    if args.no_python:
        if shutil.which(script) is None:
            raise ValueError(f"{script}: no such command")
    elif not args.module and not os.path.exists(script):
        raise ValueError(f"{script}: no such script (for a module give -m, for a command --no-python)")
    try:
        min_nodes, max_nodes = torchrun.parse_min_max_nnodes(args.nnodes)
    except (ValueError, RuntimeError):
        min_nodes = max_nodes = 0
    if not 0 < min_nodes <= max_nodes:
        raise ValueError(f"--nnodes {args.nnodes}: expected a number of nodes or a range such as 1:4")
    if torchrun.determine_local_world_size(args.nproc_per_node) < 1:
        raise ValueError(f"--nproc-per-node {args.nproc_per_node}: expected at least one worker")
    if max_nodes > 1 and args.master_port == 0:
        raise ValueError("--master-port 0: the nodes must agree on one, so name it")


def _choose_port(args: Namespace) -> None:
    """Give a single-node job that names no port, or port 0, a free one.

    The agent's store binds port 0 and tells the workers what it got: no process can take it in between.
    """
    if torchrun.parse_min_max_nnodes(args.nnodes)[1] > 1:
        return
    host, port = parse_rendezvous_endpoint(args.rdzv_endpoint, default_port=0)
    if args.rdzv_backend == "c10d" and port == 0:
        args.rdzv_endpoint = f"[{host}]:0" if ":" in host else f"{host}:0"
    elif args.rdzv_backend == "static" and not (port if args.rdzv_endpoint else args.master_port):
        args.rdzv_endpoint, args.master_port = "", None  # which torch takes as c10d on a free port


def _choose_threads(args: Namespace) -> None:
    """Share the cores out among the workers, unless OMP_NUM_THREADS says how."""
    workers = torchrun.determine_local_world_size(args.nproc_per_node)
    if workers > 1:
        os.environ.setdefault("OMP_NUM_THREADS", str(max(1, len(os.sched_getaffinity(0)) // workers)))
