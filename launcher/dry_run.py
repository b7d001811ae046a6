"""`neuronrun --dry-run`: what would be started, and the fabric's word on the groups that jobs usually make."""

import os
import shlex
import sys
from argparse import Namespace
from collections.abc import Iterator

from neuron_dist.launcher.settings import fabric, nodes
from neuron_dist.topology import Topology
from neuron_dist.topology.rules import VERSION, lint, worst

from neuron_dist.cores import hbm_bytes, visible_cores

_SHOWN = ("NEURON_", "OMP_NUM_THREADS", "GLOO_SOCKET_IFNAME", "TORCH_DEVICE_BACKEND_AUTOLOAD")


def describe(args: Namespace) -> str:
    """The plan of a settled command line, in lines."""
    return "\n".join(_lines(args))


def _lines(args: Namespace) -> Iterator[str]:
    workers, (least, most) = int(args.nproc_per_node), nodes(args)
    topology = fabric(args)
    span = str(most) if least == most else f"{least} to {most}"
    yield f"command      {shlex.join(_command(args))}"
    yield f"ranks        {workers * most}: {workers} on each of {span} node{'s' if most > 1 else ''}"
    yield f"rendezvous   {_rendezvous(args, most)}"
    hbm = hbm_bytes() / (1 << 30)
    yield (
        f"topology     {topology.name}: {topology.chips} chips, {topology.cores} cores of {hbm:g} GiB,"
        f" {topology.nodes} instance{'s' if topology.nodes > 1 else ''}"
    )
    yield f"visible      cores {_spans(visible_cores())} of this node; local rank i uses the i-th"
    yield "rank  local  core  chip  instance"
    for rank in _some(workers * most):
        if rank is None:
            yield "  ..."
            continue
        chip = rank // topology.cores_per_chip
        yield f"{rank:4}  {rank % workers:5}  {rank:4}  {chip:4}  {chip // topology.chips_per_node:8}"
    yield "environment"
    for name, value in sorted(os.environ.items()):
        if name.startswith(_SHOWN):
            yield f"  {name}={value}"
    yield f"groups       by the rules of {VERSION}"
    for name, groups in usual_groups(topology, workers * most):
        findings = lint(topology, groups)
        level = worst(findings)
        said = next((f": {f.message} ({f.rule})" for f in findings if f.level == level != "ok"), "")
        yield f"  {level:6} {name}{said}"


def usual_groups(topology: Topology, ranks: int) -> Iterator[tuple[str, list[list[int]]]]:
    """What data, tensor and mixed parallelism make of ``ranks``: the world, the chips, and the ranks across chips."""
    yield f"all {ranks} ranks (data parallel)", [list(range(ranks))]
    chip = topology.cores_per_chip
    for size in (chip, chip * 4, topology.cores // topology.nodes):
        if 1 < size < ranks and ranks % size == 0:
            where = "one chip" if size == chip else f"{size // chip} chips"
            yield (
                f"{ranks // size} groups of {size} neighbours (tensor parallel within {where})",
                [list(range(start, start + size)) for start in range(0, ranks, size)],
            )
            yield (
                f"{size} groups of {ranks // size} with stride {size} (data parallel across them)",
                [list(range(start, ranks, size)) for start in range(size)],
            )


def _command(args: Namespace) -> list[str]:
    program = [args.training_script, *args.training_script_args]
    if args.no_python:
        return program
    return [os.environ.get("PYTHON_EXEC", sys.executable), "-u", *(["-m"] if args.module else []), *program]


def _rendezvous(args: Namespace, most: int) -> str:
    unnamed = args.rdzv_backend == "static" and not args.rdzv_endpoint and not args.master_port
    if args.standalone or (most == 1 and unnamed):
        return "c10d on a free port of this node"
    if args.rdzv_backend == "static" and not args.rdzv_endpoint:
        return f"static, {args.master_addr}:{args.master_port or 29500}, node {args.node_rank}"
    return f"{args.rdzv_backend}, {args.rdzv_endpoint}"


def _some(ranks: int) -> Iterator[int | None]:
    """All of few ranks, the ends of many."""
    if ranks <= 20:
        yield from range(ranks)
    else:
        yield from range(16)
        yield None
        yield ranks - 1


def _spans(cores: list[int]) -> str:
    whole = cores == list(range(cores[0], cores[-1] + 1))
    return f"{cores[0]}-{cores[-1]}" if whole and len(cores) > 1 else ",".join(map(str, cores))
