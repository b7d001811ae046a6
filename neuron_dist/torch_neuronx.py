"""What ``import torch_neuronx`` gives where AWS's package is absent: TorchNeuron's names for training.

They are those of ``torch.neuron``; ``neuron_dist.stand_in`` finds this file by that name.
"""

from neuron_dist.device import (
    Event,
    Stream,
    current_device,
    current_stream,
    default_stream,
    device,
    device_count,
    empty_cache,
    get_device_name,
    get_device_properties,
    get_rng_state,
    is_available,
    is_initialized,
    manual_seed,
    manual_seed_all,
    max_memory_allocated,
    max_memory_reserved,
    memory_allocated,
    memory_reserved,
    memory_stats,
    memory_summary,
    reset_peak_memory_stats,
    set_device,
    set_rng_state,
    set_stream,
    stream,
    synchronize,
)

__all__ = [
    "Event",
    "Stream",
    "current_device",
    "current_stream",
    "default_stream",
    "device",
    "device_count",
    "empty_cache",
    "get_device_name",
    "get_device_properties",
    "get_rng_state",
    "is_available",
    "is_initialized",
    "manual_seed",
    "manual_seed_all",
    "max_memory_allocated",
    "max_memory_reserved",
    "memory_allocated",
    "memory_reserved",
    "memory_stats",
    "memory_summary",
    "reset_peak_memory_stats",
    "set_device",
    "set_rng_state",
    "set_stream",
    "stream",
    "synchronize",
]


def __getattr__(name: str) -> object:
    raise AttributeError(
        f"module 'torch_neuronx' has no attribute {name!r}: neuron-dist stands in for AWS's package, "
        "with the names for training only"
    )
