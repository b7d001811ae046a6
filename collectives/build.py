"""From a name to a schedule: built-in algorithms, ``inner+outer``, and one's own, ``file.py:function``."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

from ..topology import Group
from .algorithms import ALGORITHMS, Algorithm, hierarchical
from .algorithms.direct import point_to_point
from .compose import derive, relabel
from .errors import CollectiveError, Unsupported
from .ops import OPS
from .schedule import Schedule, transfers

POINT_TO_POINT = ("permute", "send_recv")


def algorithm_names() -> list[str]:
    """Built-in names. Any two joined by ``+`` are an algorithm too: inside the nodes, between them."""
    return list(ALGORITHMS)


def build(
    op: str, algorithm: str, group: Group, *, root: int = 0, pairs: tuple[tuple[int, int], ...] = ()
) -> Schedule:
    """The schedule of ``op`` by ``algorithm`` on the group's cores.

    Args:
        op: all_reduce, all_gather, reduce_scatter, all_to_all, broadcast, reduce, gather, scatter, permute or
            send_recv.
        algorithm: a name, ``inner+outer``, or ``path/to/file.py:function``.
        root: the group's rank that broadcasts, reduces, gathers or scatters.
        pairs: (src, dst) ranks of permute and send_recv.

    Raises Unsupported if the algorithm cannot serve the op or the group, CollectiveError for an unknown name.
    """
    if op not in OPS:
        raise CollectiveError(f"op {op!r}: expected one of {', '.join(OPS)}")
    if not 0 <= root < group.size:
        raise CollectiveError(f"root={root} is not a rank of the group of {group.size}")
    if op in POINT_TO_POINT:
        if algorithm != "direct":
            raise Unsupported(f"{op} has one algorithm, direct, not {algorithm}")
        return replace(point_to_point(group.size, op, tuple(pairs)), name=algorithm)
    function = find(algorithm)
    if group.size == 1:
        return transfers(op, 1, step=[], src=[], dst=[], lo=[], name=algorithm, root=root)
    # Algorithms take rank 0 for the root; the numbering is put right after.
    order = np.roll(np.arange(group.size), -root) if OPS[op].rooted else np.arange(group.size)
    try:
        made = function(Group(group.topology, group.cores[order]), op)
        if not isinstance(made, Schedule):
            raise CollectiveError(f"it returned {type(made).__name__}, not a Schedule (see Draft.schedule)")
        made = replace(made, name=algorithm)
        made.check()
        schedule = derive(made, op)
    except CollectiveError as error:
        raise type(error)(f"{algorithm}: {error}") from None
    except Exception as error:
        if algorithm not in ALGORITHMS and ":" in algorithm:
            raise CollectiveError(f"{algorithm}: {type(error).__name__}: {error}") from error
        raise
    return relabel(schedule, order) if OPS[op].rooted else schedule


def find(algorithm: str) -> Algorithm:
    """The function behind a name. Raises CollectiveError naming what there is."""
    if algorithm in ALGORITHMS:
        return ALGORITHMS[algorithm]
    if ":" in algorithm:
        return _from_file(*algorithm.rsplit(":", 1))
    if "+" in algorithm:
        inner, outer = (find(part) for part in algorithm.split("+", 1))

        def composed(group: Group, op: str) -> Schedule:
            return hierarchical(group, op, inner=inner, outer=outer)

        return composed
    raise CollectiveError(
        f"algorithm {algorithm!r}: expected one of {', '.join(ALGORITHMS)}, inner+outer or file.py:function"
    )


def _from_file(path: str, name: str) -> Algorithm:
    if not Path(path).is_file():
        raise CollectiveError(f"algorithm {path}:{name}: no such file")
    spec = importlib.util.spec_from_file_location(f"neuron_dist_algorithm.{Path(path).stem}", path)
    if spec is None or spec.loader is None:
        raise CollectiveError(f"algorithm {path}:{name}: not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise CollectiveError(f"algorithm {path}: {type(error).__name__}: {error}") from error
    function = getattr(module, name, None)
    if not callable(function):
        raise CollectiveError(f"algorithm {path}:{name}: the file defines no function {name!r}")
    return function
