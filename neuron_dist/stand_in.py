"""Finds ``torch_neuronx`` where AWS's package is absent, so that scripts for TorchNeuron run unchanged.

A finder, not a file of that name in site-packages, which would collide with AWS's package if that came later.
"""

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType

NAME = "torch_neuronx"


class StandIn(MetaPathFinder):
    """The last finder: asked only when no other knows the name."""

    @classmethod
    def find_spec(
        cls, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return (
            spec_from_file_location(NAME, Path(__file__).with_name("torch_neuronx.py"))
            if name == NAME
            else None
        )


def install() -> None:
    """Idempotent."""
    if StandIn not in sys.meta_path:
        sys.meta_path.append(StandIn)
