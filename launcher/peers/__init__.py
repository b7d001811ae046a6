"""Other implementations of the collectives, which ``measure`` times beside ours in the same processes.

A peer is a module with ``connect(rank, ranks)``, called on every rank of a running job, which returns a function
``start(op, given, output)``: one call of the op, to be repeated, that reads the CPU tensor ``given`` and writes
``output``. In all_reduce and broadcast the two are one tensor. It returns None where the peer lacks the op or dtype.
"""

from collections.abc import Callable
from importlib import import_module

import torch

Call = Callable[[], object]
Start = Callable[[str, torch.Tensor, torch.Tensor], "Call | None"]


def connect(name: str, rank: int, ranks: int) -> Start:
    """The peer of that name in this folder, or ``module:function`` with the function in the role of ``connect``.

    Every rank must call it.
    """
    module, _, function = name.partition(":")
    connector = getattr(import_module(module if function else f"{__name__}.{name}"), function or "connect")
    return connector(rank, ranks)
