"""Random numbers: every device has a generator whose state is a seed and an offset, 16 bytes."""

from collections.abc import Iterable

import torch

from neuron_dist import _C
from neuron_dist.device.runtime import _lazy_init, device_count, device_index


def _generator(device: "torch.types.Device" = None) -> torch.Generator:
    _lazy_init()
    return _C.default_generator(device_index(device))


def get_rng_state(device: "torch.types.Device" = "neuron") -> torch.Tensor:
    """State of a device's generator: uint8 of shape (16,), a little-endian seed and offset."""
    return _generator(device).get_state()


def set_rng_state(new_state: torch.Tensor, device: "torch.types.Device" = "neuron") -> None:
    """Restore what ``get_rng_state`` gave."""
    _generator(device).set_state(new_state.clone(memory_format=torch.contiguous_format))


def get_rng_state_all() -> list[torch.Tensor]:
    """States of all devices, in order."""
    return [get_rng_state(index) for index in range(device_count())]


def set_rng_state_all(new_states: Iterable[torch.Tensor]) -> None:
    """Restore what ``get_rng_state_all`` gave."""
    for index, state in enumerate(new_states):
        set_rng_state(state, index)


def manual_seed(seed: int) -> None:
    """Seed the current device's generator."""
    _generator().manual_seed(int(seed))


def manual_seed_all(seed: int) -> None:
    """Seed the generators of all devices."""
    for index in range(device_count()):
        _generator(index).manual_seed(int(seed))


def seed() -> None:
    """Seed the current device's generator from the operating system."""
    _generator().seed()


def seed_all() -> None:
    """Seed the generators of all devices alike from the operating system."""
    seed()
    manual_seed_all(initial_seed())


def initial_seed() -> int:
    """Seed of the current device's generator."""
    return _generator().initial_seed()
