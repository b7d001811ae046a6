"""Which devices there are, which one is current, and when they come into use."""

import os
from typing import Any

import torch

from neuron_dist import _C, cores

_initialized = False
_configured: tuple[str | None, ...] | None = (
    None  # the environment that the devices were last configured from
)
_error: str | None = None  # what is wrong with it

_VARIABLES = (
    "NEURON_RT_VISIBLE_CORES",
    "NEURON_RT_NUM_CORES",
    "NEURON_SIM_HBM",
    "NEURON_SIM_TOPOLOGY",
    "LOCAL_RANK",
)


def configure() -> None:
    """Set up the devices as the environment asks. What is wrong with it, the first use of a device raises."""
    global _configured, _error
    environment = tuple(os.environ.get(name) for name in _VARIABLES)
    if _initialized or environment == _configured:
        return
    try:
        count, capacity, _error = len(cores.visible_cores()), cores.hbm_bytes(), None
    except ValueError as error:
        count, capacity, _error = 0, cores.DEFAULT_HBM_BYTES, str(error)
    local_rank = os.environ.get("LOCAL_RANK", "")
    initial = int(local_rank) if local_rank.isdecimal() and int(local_rank) < count else 0
    _C.configure_devices(count, capacity, initial)
    _configured = environment


def _lazy_init() -> None:
    """Called by torch before the first tensor on the device. Raises what is wrong with the environment."""
    global _initialized
    _C.check_not_forked()
    if _initialized:
        return
    configure()
    if _error:
        raise RuntimeError(_error)
    _initialized = True


def init() -> None:
    """Bring the devices into use now rather than with the first tensor."""
    _lazy_init()


def is_initialized() -> bool:
    """Whether the devices are in use in this process."""
    return _initialized and not _is_in_bad_fork()


def _is_in_bad_fork() -> bool:
    return _C.is_in_bad_fork()


def is_available() -> bool:
    """Whether there is a device to use. Never raises."""
    configure()
    return torch._C._accelerator_hooks_device_count() > 0


def device_count() -> int:
    """How many devices this process sees. Raises RuntimeError if the environment variables are malformed."""
    configure()
    if _error:
        raise RuntimeError(_error)
    return torch._C._accelerator_hooks_device_count()


def current_device() -> int:
    """Index of the calling thread's device; it starts at the launcher's LOCAL_RANK where that is visible."""
    device_count()
    return torch._C._accelerator_hooks_get_current_device()


def set_device(device: "torch.types.Device") -> None:
    """Make a device current for the calling thread. A negative index changes nothing."""
    index = device_index(device)
    if index >= 0:
        _lazy_init()
        torch._C._accelerator_hooks_set_current_device(index)


def synchronize(device: "torch.types.Device" = None) -> None:
    """Wait for all streams of a device: kernels have run by the time their call returns, so only check it."""
    _lazy_init()
    torch._C._accelerator_synchronizeDevice(device_index(device))


def device_index(device: "torch.types.Device") -> int:
    """Index of ``None`` (the current device), an int, "neuron:1" or a torch.device; else ValueError."""
    if device is None:
        return current_device()
    if isinstance(device, int):
        return device
    parsed = torch.device(device)
    if parsed.type != "neuron":
        raise ValueError(f"expected a neuron device, but got {device}")
    return current_device() if parsed.index is None else parsed.index


class device:
    """Context manager that makes a device current; ``None`` or a negative index changes nothing."""

    def __init__(self, device: Any) -> None:
        self.idx = -1 if device is None else device_index(device)
        self.prev_idx = -1

    def __enter__(self) -> None:
        if self.idx >= 0:
            _lazy_init()
        self.prev_idx = torch._C._accelerator_hooks_maybe_exchange_device(self.idx)

    def __exit__(self, *exception: object) -> None:
        if self.idx >= 0:
            torch._C._accelerator_hooks_maybe_exchange_device(self.prev_idx)


class device_of(device):
    """Context manager that makes the device of a neuron tensor current; other tensors change nothing."""

    def __init__(self, tensor: torch.Tensor) -> None:
        super().__init__(tensor.device if tensor.device.type == "neuron" else None)
