"""The simulated machine that a job runs on, and where its ranks sit."""

import os
from collections.abc import Mapping
from functools import lru_cache

from neuron_dist.topology import Topology, TopologyError, load

# The Trainium instances, smallest first.
INSTANCES = ("trn1.2xlarge", "trn2.3xlarge", "trn1.32xlarge", "trn2.48xlarge", "trn2-ultraserver")


def job_topology(world_size: int, spec: str = "", env: Mapping[str, str] = os.environ) -> Topology:
    """The topology that ``spec`` or ``NEURON_SIM_TOPOLOGY`` names, else the smallest instance that holds the ranks.

    Rank r sits on core r. Raises TopologyError if the machine has fewer cores than the job has ranks.
    """
    topology = load(spec or env.get("NEURON_SIM_TOPOLOGY") or _smallest(world_size))
    if topology.cores < world_size:
        raise TopologyError(
            f"{topology.name} has {topology.cores} cores, too few for a job of {world_size} ranks"
        )
    return topology


@lru_cache
def _smallest(world_size: int) -> str:
    for name in INSTANCES:
        if load(name).cores >= world_size:
            return name
    nodes = -(-world_size // load("trn2.48xlarge").cores)
    return f"trn2.48xlarge*{nodes}"
