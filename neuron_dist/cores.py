"""Which logical NeuronCores this process sees, by Neuron's own environment variables."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from neuron_dist.topology import Topology

DEFAULT_CORES = 64  # one trn2.48xlarge at LNC 2
DEFAULT_HBM_BYTES = 24 << 30  # per logical core of that machine
MAX_DEVICES = 127  # torch counts devices in a signed byte

_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def visible_cores(env: Mapping[str, str] = os.environ) -> list[int]:
    """Core ids of the machine in the order of this process's devices: ``neuron:0`` is the first.

    ``NEURON_RT_VISIBLE_CORES`` takes a list of ids and ranges ("0-3,8"); ``NEURON_RT_NUM_CORES`` a count. As
    in the Neuron runtime, the list wins where both are set. Without either, all cores of a node of
    ``NEURON_SIM_TOPOLOGY``. Raises ValueError naming the variable and its value.
    """
    listed = env.get("NEURON_RT_VISIBLE_CORES")
    if listed:
        return _parse_core_list(listed)
    count = env.get("NEURON_RT_NUM_CORES")
    if not count:
        topology = _topology(env)
        cores = topology.cores_per_chip * topology.chips_per_node if topology else DEFAULT_CORES
        return list(range(min(cores, MAX_DEVICES)))
    if not count.isdecimal() or not 0 < int(count) <= MAX_DEVICES:
        raise ValueError(f"NEURON_RT_NUM_CORES={count!r}: expected a number of cores from 1 to {MAX_DEVICES}")
    return list(range(int(count)))


def hbm_bytes(env: Mapping[str, str] = os.environ) -> int:
    """HBM of one logical core in bytes: ``NEURON_SIM_HBM`` ("24GiB", "512M"), else the topology's."""
    text = env.get("NEURON_SIM_HBM")
    if not text:
        topology = _topology(env)
        return int(topology.hbm_gib * (1 << 30)) // topology.cores_per_chip if topology else DEFAULT_HBM_BYTES
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?", text.strip().lower())
    size = int(float(match[1]) * _UNITS[match[2]]) if match else 0
    if not 2 << 20 <= size <= 1 << 40:
        raise ValueError(f"NEURON_SIM_HBM={text!r}: expected a size from 2MiB to 1TiB, such as 24GiB")
    return size


def _topology(env: Mapping[str, str]) -> Topology | None:
    spec = env.get("NEURON_SIM_TOPOLOGY")
    if not spec:
        return None  # and `import torch` does without NumPy and the builders
    from neuron_dist.topology import TopologyError, load

    try:
        return load(spec)
    except TopologyError as error:
        raise ValueError(f"NEURON_SIM_TOPOLOGY={spec!r}: {error}") from error


def _parse_core_list(text: str) -> list[int]:
    cores: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,4})\s*(?:-\s*(\d{1,4})\s*)?", part)
        if not match or int(match[2] or match[1]) < int(match[1]):
            raise ValueError(
                f'NEURON_RT_VISIBLE_CORES={text!r}: {part!r} is no core id or range such as "0-3"'
            )
        cores.extend(range(int(match[1]), int(match[2] or match[1]) + 1))
    if len(set(cores)) != len(cores):
        raise ValueError(f"NEURON_RT_VISIBLE_CORES={text!r}: a core is listed twice")
    if len(cores) > MAX_DEVICES:
        raise ValueError(
            f"NEURON_RT_VISIBLE_CORES={text!r}: {len(cores)} cores, more than torch's {MAX_DEVICES} devices"
        )
    return cores
