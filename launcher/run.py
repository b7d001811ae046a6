"""`neuronrun`: torchrun for the simulated fabric. Torch's own parser, rendezvous and agent do the work."""

import os
import shutil
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence

import torch.distributed as dist
from neuron_dist.collectives.choose import parse_rules
from neuron_dist.topology import load
from torch.distributed import run as torchrun
from torch.distributed.elastic.multiprocessing import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, record
from torch.distributed.elastic.rendezvous import RendezvousError
from torch.distributed.elastic.rendezvous.utils import parse_rendezvous_endpoint

from neuron_dist.timeline import merge_traces

# Flags of our own and the variables that workers read; a flag wins over the environment.
FABRIC_FLAGS = {
    "--topology": (
        "NEURON_SIM_TOPOLOGY",
        "instance type, file or inline spec, such as trn2.48xlarge or torus:4x4",
    ),
    "--algorithm": (
        "NEURON_SIM_ALGORITHM",
        "algorithm, file.py:function, or selection string by op and size",
    ),
    "--reduction": (
        "NEURON_SIM_REDUCTION",
        "schedule (round at each hop, as the wire) or exact (round once)",
    ),
    "--lint": ("NEURON_SIM_LINT", "warn, error or off for groups that the fabric would refuse"),
    "--trace": ("NEURON_SIM_TRACE", "folder for a timeline of the job, merged over its ranks"),
}


def get_args_parser() -> ArgumentParser:
    """Torchrun's parser under our name: every torchrun command line parses to the same values.

    Flags of our own are added here, as options: the script and its arguments stay the last positionals.
    """
    parser = torchrun.get_args_parser()
    parser.prog = "neuronrun"
    parser.description = "Start a distributed job on the simulated neuron devices. Takes what torchrun takes."
    fabric = parser.add_argument_group("the simulated fabric")
    for flag, (variable, text) in FABRIC_FLAGS.items():
        fabric.add_argument(flag, default=None, help=f"{text} (sets {variable})")
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
        _choose_fabric(args)
    except ValueError as error:
        return _fail(error, 2)
    try:
        record(torchrun.run)(args)
    except ChildFailedError as error:
        print(error, file=sys.stderr)  # torch's report of the workers that failed
        return 1
    except (SignalException, RendezvousError, dist.DistError, ValueError, AssertionError) as error:
        return _fail(error, 1)
    finally:
        if args.trace:
            print(f"neuronrun: trace written to {merge_traces(args.trace)}", file=sys.stderr)
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


def _choose_fabric(args: Namespace) -> None:
    """Hand our own flags to the workers, after a look at what they would refuse one by one."""
    if args.topology:
        topology = load(args.topology)
        workers = torchrun.determine_local_world_size(args.nproc_per_node)
        if workers * torchrun.parse_min_max_nnodes(args.nnodes)[1] > topology.cores:
            raise ValueError(
                f"--topology {args.topology}: {topology.cores} cores, too few for the job's ranks"
            )
    if args.algorithm:
        parse_rules(args.algorithm)
    for flag, choices in (("reduction", ("schedule", "exact")), ("lint", ("warn", "error", "off"))):
        value = getattr(args, flag)
        if value is not None and value not in choices:
            raise ValueError(f"--{flag} {value}: expected one of {', '.join(choices)}")
    if args.trace:
        args.trace = os.path.abspath(args.trace)
        os.makedirs(args.trace, exist_ok=True)
    for flag, (variable, _) in FABRIC_FLAGS.items():
        value = getattr(args, flag.removeprefix("--"))
        if value is not None:
            os.environ[variable] = value
