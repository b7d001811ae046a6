"""What the hardware is: chips, cores, links, presets, routing, faults. Pure Python and NumPy, no torch."""

from .builders import SwitchLevel, from_links, ring, several, switched, torus
from .cycles import edge_disjoint_cycles
from .errors import TopologyError
from .group import Group, parse_cores
from .load import load, preset_names
from .routing import Routes, routes
from .topology import Fact, Links, Topology

__all__ = [
    "Fact",
    "Group",
    "Links",
    "Routes",
    "SwitchLevel",
    "Topology",
    "TopologyError",
    "edge_disjoint_cycles",
    "from_links",
    "load",
    "parse_cores",
    "preset_names",
    "ring",
    "routes",
    "several",
    "switched",
    "torus",
]
