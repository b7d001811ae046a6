"""Checks and choices before a job starts: what torch would report late, choose badly or leave to the user."""

import os
import shutil
from argparse import Namespace
from pathlib import Path

from neuron_dist.collectives.choose import parse_rules
from neuron_dist.launcher.flags import FABRIC_FLAGS
from neuron_dist.launcher.workers import parse_std
from neuron_dist.topology import Topology
from torch.distributed import run as torchrun
from torch.distributed.elastic.rendezvous.utils import parse_rendezvous_endpoint

from neuron_dist.cores import visible_cores
from neuron_dist.faults import parse as parse_faults
from neuron_dist.job import job_topology


def settle(args: Namespace) -> None:
    """Complete the parsed command line. Raises ValueError, in one line that names the flag, if it cannot work."""
    _check_script(args)
    _check_nodes(args)
    _choose_fabric(args)
    _count_workers(args)
    _check_faults(args)
    _check_cores(args)
    _check_local_ranks(args)
    _choose_port(args)
    _choose_threads(args)


def nodes(args: Namespace) -> tuple[int, int]:
    """The least and the largest number of nodes."""
    least, most = torchrun.parse_min_max_nnodes(args.nnodes)
    return least, most


def _check_script(args: Namespace) -> None:
    script = args.training_script
    if args.no_python:
        if shutil.which(script) is None:
            raise ValueError(f"{script}: no such command")
    elif not args.module and not os.path.exists(script):
        raise ValueError(f"{script}: no such script (for a module give -m, for a command --no-python)")


def _check_nodes(args: Namespace) -> None:
    try:
        least, most = nodes(args)
    except (ValueError, RuntimeError):
        least = most = 0
    if not 0 < least <= most:
        raise ValueError(f"--nnodes {args.nnodes}: expected a number of nodes or a range such as 1:4")
    if most > 1 and args.master_port == 0:
        raise ValueError("--master-port 0: the nodes must agree on one, so name it")
    if args.rdzv_backend == "static" and least != most:
        raise ValueError(
            f"--nnodes {args.nnodes}: a range needs --rdzv-backend c10d; the static one cannot grow or shrink"
        )


def _choose_fabric(args: Namespace) -> None:
    """Hand our own flags to the workers, after a look at what they would refuse one by one."""
    if args.algorithm:
        parse_rules(args.algorithm)
    for flag, choices in (("reduction", ("schedule", "exact")), ("lint", ("warn", "error", "off"))):
        value = getattr(args, flag)
        if value is not None and value not in choices:
            raise ValueError(f"--{flag} {value}: expected one of {', '.join(choices)}")
    if args.faults and os.path.exists(args.faults):
        args.faults = os.path.abspath(args.faults)
    if args.trace:
        args.trace = os.path.abspath(args.trace)
        os.makedirs(args.trace, exist_ok=True)
    if args.report:
        args.report = os.path.abspath(args.report)
        os.makedirs(args.report, exist_ok=True)
        for left in Path(args.report).glob("rank_*"):  # by an earlier job
            left.unlink()
    for flag, (variable, _) in FABRIC_FLAGS.items():
        value = getattr(args, flag.removeprefix("--"))
        if value is not None:
            os.environ[variable] = value


def _check_faults(args: Namespace) -> None:
    faults = os.environ.get("NEURON_SIM_FAULTS")
    if faults:
        world_size = int(args.nproc_per_node) * nodes(args)[1]
        parse_faults(faults, job_topology(world_size), world_size)


def _count_workers(args: Namespace) -> None:
    """Turn ``--nproc-per-node neuron``, ``auto`` or ``cpu`` into a number."""
    if args.nproc_per_node in ("neuron", "auto"):
        count = len(visible_cores())
    else:
        count = torchrun.determine_local_world_size(args.nproc_per_node)
    if count < 1:
        raise ValueError(f"--nproc-per-node {args.nproc_per_node}: expected at least one worker")
    args.nproc_per_node = str(count)


def _check_local_ranks(args: Namespace) -> None:
    """Of the flags that name some: torch ignores those that are not there."""
    named: dict[str, list[int]] = {}
    for flag in ("redirects", "tee"):
        try:
            parsed = parse_std(getattr(args, flag))
        except ValueError as error:
            raise ValueError(f"--{flag} {error}") from error
        named[flag] = list(parsed) if isinstance(parsed, dict) else []
    try:
        named["local_ranks_filter"] = [int(rank) for rank in args.local_ranks_filter.split(",") if rank]
    except ValueError:
        text = f"--local-ranks-filter {args.local_ranks_filter}: expected local ranks such as 0,1"
        raise ValueError(text) from None
    last = int(args.nproc_per_node) - 1
    for flag, ranks in named.items():
        if any(not 0 <= rank <= last for rank in ranks):
            text = f"--{flag.replace('_', '-')} {getattr(args, flag)}"
            raise ValueError(f"{text}: this node's local ranks are 0 to {last}")


def _check_cores(args: Namespace) -> None:
    workers = int(args.nproc_per_node)
    topology = fabric(args)
    if args.topology and workers * nodes(args)[1] > topology.cores:
        raise ValueError(f"--topology {args.topology}: {topology.cores} cores, too few for the job's ranks")
    for variable in ("NEURON_RT_VISIBLE_CORES", "NEURON_RT_NUM_CORES"):
        if os.environ.get(variable):
            found = len(visible_cores())
            if found < workers:
                raise ValueError(
                    f"{variable}={os.environ[variable]}: {found} cores, too few for {workers} ranks on this node"
                )
            break
    lnc = os.environ.get("NEURON_LOGICAL_NC_CONFIG") or os.environ.get("NEURON_RT_VIRTUAL_CORE_SIZE")
    if lnc not in (None, "1", "2"):
        raise ValueError(f"NEURON_LOGICAL_NC_CONFIG={lnc}: expected 1 or 2 physical cores per logical core")
    if lnc is None and "lnc" in topology.facts:
        os.environ["NEURON_LOGICAL_NC_CONFIG"] = str(topology.facts["lnc"].value)


def fabric(args: Namespace) -> Topology:
    """The machine that the job runs on."""
    named = os.environ.get("NEURON_SIM_TOPOLOGY")
    return job_topology(1 if named else int(args.nproc_per_node) * nodes(args)[1])


def _choose_port(args: Namespace) -> None:
    """Give a single-node job that names no port, or port 0, a free one.

    The agent's store binds port 0 and tells the workers what it got: no process can take it in between.
    """
    if ":" in args.master_addr and not args.master_addr.startswith("["):
        args.master_addr = f"[{args.master_addr}]"  # IPv6
    if nodes(args)[1] > 1:
        return
    host, port = parse_rendezvous_endpoint(args.rdzv_endpoint, default_port=0)
    if args.rdzv_backend == "c10d" and port == 0:
        args.rdzv_endpoint = f"[{host}]:0" if ":" in host else f"{host}:0"
    elif args.rdzv_backend == "static" and not (port if args.rdzv_endpoint else args.master_port):
        args.rdzv_endpoint, args.master_port = "", None  # which torch takes as c10d on a free port


def _choose_threads(args: Namespace) -> None:
    """Share the cores out among the workers, unless OMP_NUM_THREADS says how."""
    workers = int(args.nproc_per_node)
    if workers > 1:
        os.environ.setdefault("OMP_NUM_THREADS", str(max(1, len(os.sched_getaffinity(0)) // workers)))
