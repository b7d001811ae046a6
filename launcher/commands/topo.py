"""What a fabric is: chips, cores, links, and where every number comes from.

Without a name, lists the presets.
"""

from __future__ import annotations

import argparse
from math import isfinite
from pathlib import Path

import numpy as np
from neuron_dist.topology import Topology, load, preset_names
from neuron_dist.topology.draw import grid, svg
from neuron_dist.topology.topology import KINDS

from .common import add_fabric, fabric, print_json, significant, table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "name", nargs="?", help="preset, file or inline spec such as torus:4x4; presets are listed without"
    )
    parser.add_argument("--svg", type=Path, metavar="FILE", help="draw the fabric")
    add_fabric(parser)


def run(args: argparse.Namespace) -> int:
    if args.name is None:
        return _list(args.json)
    topology = fabric(args, args.name)
    if args.svg:
        args.svg.write_text(svg(topology))
    if args.json:
        print_json(describe(topology))
    else:
        print(_text(topology))
    return 0


def describe(topology: Topology) -> dict[str, object]:
    """The numbers of a fabric, and its neighbours in neuron-ls order."""
    return {
        "name": topology.name,
        "chips": topology.chips,
        "nodes": topology.nodes,
        "dims": list(topology.dims),
        "torus": topology.torus,
        "cores": topology.cores,
        "cores_per_chip": topology.cores_per_chip,
        "switches": topology.switches,
        "links": [
            {"kind": kind, "count": count, "gbps_per_direction": gbps, "latency_us": us}
            for (kind, gbps, us), count in _link_classes(topology).items()
        ],
        "chip_egress_gbps": float(topology.egress_gbps.max(initial=0)),
        "core_gbps": topology.core_gbps,
        "step_us": topology.step_us,
        "hbm_gib_per_core": topology.hbm_gib / topology.cores_per_chip,
        "hbm_gbps_per_core": topology.hbm_gbps_per_core if isfinite(topology.hbm_gbps) else None,
        "tflops_per_core": {t: flops / topology.cores_per_chip for t, flops in topology.tflops.items()},
        "connected_to": {str(chip): topology.neighbours(chip) for chip in range(topology.chips)},
        "facts": {
            name: {"value": fact.value, "mark": fact.mark, "source": fact.source}
            for name, fact in topology.facts.items()
        },
    }


def _link_classes(topology: Topology) -> dict[tuple[str, float, float], int]:
    """Directed links by kind, GB/s and latency."""
    links = topology.links
    rows = zip(links.kind.tolist(), links.gbps.tolist(), links.latency_us.tolist(), strict=True)
    classes: dict[tuple[str, float, float], int] = {}
    for kind, gbps, us in rows:
        classes[KINDS[kind], gbps, us] = classes.get((KINDS[kind], gbps, us), 0) + 1
    return classes


def _text(topology: Topology) -> str:
    shape = "x".join(map(str, topology.dims))
    kind = (
        "one chip"
        if topology.chips == 1
        else f"torus {shape}"
        if topology.torus
        else f"{shape} chips, switched"
    )
    if topology.islands > 1:
        kind = f"{topology.islands} times {kind}"
    parts = [
        f"{topology.name}: {kind}; {topology.chips} chips, {topology.cores} logical cores"
        f" ({topology.cores_per_chip} a chip), {topology.nodes} node{'s' * (topology.nodes > 1)}",
        "",
    ]
    for (name, gbps, us), count in sorted(_link_classes(topology).items()):
        parts.append(f"  {count} directed {name} links of {gbps:g} GB/s one way, {us:g} us")
    q = topology.cores_per_chip
    flops = ", ".join(f"{value / q:g} {dtype}" for dtype, value in topology.tflops.items())
    speed = f"{topology.hbm_gbps_per_core:g} GB/s" if isfinite(topology.hbm_gbps) else "no cost"
    parts += [
        f"  {topology.core_gbps:g} GB/s one way, {topology.core_us:g} us, between two cores of a chip",
        f"  a step costs {topology.step_us:g} us and the latency of its longest path",
        f"  per core: {topology.hbm_gib / q:g} GiB HBM at {speed}" + (f"; TFLOPS {flops}" if flops else ""),
        f"  a chip sends {np.max(topology.egress_gbps, initial=0):g} GB/s at most",
    ]
    if topology.facts:
        rows = [
            [name, str(fact.value), fact.mark, fact.source]
            for name, fact in topology.facts.items()
            if name != "name"
        ]
        parts += ["", table(["field", "value", "mark", "source"], rows, left="field,value,mark,source")]
    if drawing := grid(topology):
        parts += ["", drawing]
    return "\n".join(parts)


def _list(as_json: bool) -> int:
    presets = [load(name) for name in preset_names()]
    if as_json:
        print_json([{"name": t.name, "chips": t.chips, "cores": t.cores, "torus": t.torus} for t in presets])
    else:
        rows = [[t.name, str(t.chips), str(t.cores), significant(float(t.egress_gbps[0]))] for t in presets]
        print(table(["name", "chips", "cores", "GB/s out of a chip"], rows, left="name"))
    return 0
