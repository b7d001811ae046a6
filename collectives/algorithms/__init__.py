"""The algorithms, by name.

Each is a function of a group and an op that returns a schedule of that op, or of one from which it follows
(most return a reduce-scatter). In broadcasts and the like rank 0 is the root.
"""

from functools import partial

from .bucket import bucket, weighted_bucket
from .direct import direct
from .doubling import bruck, recursive_doubling
from .generated import generated
from .hierarchical import Algorithm, hierarchical
from .kangaring import kangaring
from .mesh import mesh, single_step_mesh
from .rdh import rdh
from .ring import ring
from .swing import swing
from .trees import binomial_tree, disjoint_chains

ALGORITHMS: dict[str, Algorithm] = {
    "ring": ring,
    "ring1": partial(ring, cycles=1, way="one"),
    "ring-halfway": partial(ring, way="halfway"),
    "bucket": bucket,
    "bucket1": partial(bucket, copies=1, way="one"),
    "bucket-halfway": partial(bucket, way="halfway"),
    "bucket-weighted": weighted_bucket,
    "rdh": rdh,
    "rdh1": partial(rdh, copies=1),
    "mesh": mesh,
    "mesh1": single_step_mesh,
    "kangaring": kangaring,
    "swing": swing,
    "rd": recursive_doubling,
    "bruck": bruck,
    "tree": binomial_tree,
    "chains": disjoint_chains,
    "direct": direct,
    "generated": generated,
    "hierarchical": partial(hierarchical, inner=partial(bucket, way="halfway"), outer=ring),
}

__all__ = ["ALGORITHMS", "Algorithm", "hierarchical"]
