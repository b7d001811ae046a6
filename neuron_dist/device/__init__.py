"""The module ``torch.neuron``: devices, streams, memory and random numbers of the simulated NeuronCores."""

from neuron_dist.device.random import (
    get_rng_state,
    get_rng_state_all,
    initial_seed,
    manual_seed,
    manual_seed_all,
    seed,
    seed_all,
    set_rng_state,
    set_rng_state_all,
)
from neuron_dist.device.runtime import (
    _is_in_bad_fork,
    _lazy_init,
    current_device,
    device,
    device_count,
    device_of,
    init,
    is_available,
    is_initialized,
    set_device,
    synchronize,
)
from neuron_dist.device.streams import (
    Event,
    Stream,
    StreamContext,
    current_stream,
    default_stream,
    set_stream,
    stream,
)


def __getattr__(name: str) -> object:
    if name == "_initialized":  # read as an attribute by torch's activation checkpointing
        return is_initialized()
    raise AttributeError(f"module 'torch.neuron' has no attribute {name!r}")
