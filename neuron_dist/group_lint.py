"""Says at once, where a group is made, what the real fabric would say after minutes of start-up."""

import os
import warnings
from collections.abc import Mapping, Sequence

from neuron_dist.topology import Topology
from neuron_dist.topology.rules import Finding, lint, worst

LEVELS = ("warn", "error", "off")


class FabricWarning(UserWarning):
    """The simulated fabric would refuse a replica group; the message names the rule and a group that would work."""


class FabricError(ValueError):
    """The same, under ``NEURON_SIM_LINT=error``."""


def check_group(
    topology: Topology, cores: Sequence[int], rank: int, env: Mapping[str, str] = os.environ
) -> None:
    """Warn, on the group's first rank, of a group that the topology's runtime rejects.

    ``NEURON_SIM_LINT``: "warn" (default), "error" raises FabricError on all its ranks, "off" is silent.
    """
    level = env.get("NEURON_SIM_LINT") or "warn"
    if level not in LEVELS:
        raise ValueError(f"NEURON_SIM_LINT={level!r}: expected one of {', '.join(LEVELS)}")
    if level == "off" or len(cores) < 2:
        return
    refused = [finding for finding in lint(topology, [cores]) if finding.level == "reject"]
    if not refused:
        return
    text = _describe(topology, cores, refused[0])
    if level == "error":
        raise FabricError(text)
    if rank == 0:
        warnings.warn(text, FabricWarning, stacklevel=2)


def _describe(topology: Topology, cores: Sequence[int], finding: Finding) -> str:
    listed = ", ".join(map(str, cores[:16])) + (", ..." if len(cores) > 16 else "")
    text = f"{topology.name} refuses the group of ranks [{listed}]: {finding.message} ({finding.rule})."
    if finding.runtime:
        text += f" The runtime would say: {finding.runtime}."
    works = working_group(topology, cores)
    return f"{text} A group that works: {works}." if works else text


def working_group(topology: Topology, cores: Sequence[int]) -> str:
    """A group near the given one, of its size or the next larger, that the topology takes; empty if none was found."""
    for size in range(len(cores), topology.cores + 1):
        start = min(cores) // size * size
        if start + size <= topology.cores and worst(lint(topology, [range(start, start + size)])) == "ok":
            return f"ranks {start} to {start + size - 1}"
    return ""
