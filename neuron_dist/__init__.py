"""Train for AWS Trainium where there is no Trainium: the ``neuron`` device and backend, simulated in host memory.

``import torch`` alone brings both; nothing here needs importing for that. Importing this package does not import
torch: the names that need it are loaded when first used.
"""

from importlib import import_module

__version__ = "0.1.0"

_LAZY = {
    "Options": "neuron_dist.process_group",
    "dump": "neuron_dist.report",
    "flight_recorder_dump": "neuron_dist.flight_recorder",
    "simulated_time": "neuron_dist.clock",
    "trace": "neuron_dist.timeline",
}

__all__ = list(_LAZY)


def __getattr__(name: str) -> object:
    if name in _LAZY:
        value = globals()[name] = getattr(import_module(_LAZY[name]), name)
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
