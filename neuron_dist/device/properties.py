"""What a device is: its name, memory and the types that mixed precision may use."""

from dataclasses import dataclass

import torch

from neuron_dist import cores
from neuron_dist.device.runtime import _lazy_init, device_index


@dataclass(frozen=True)
class DeviceProperties:
    """One logical NeuronCore."""

    name: str
    core: int  # id of the core in the machine, as NEURON_RT_VISIBLE_CORES counts
    total_memory: int  # bytes of HBM


def get_device_properties(device: "torch.types.Device" = None) -> DeviceProperties:
    """Properties of a device. Raises ValueError if there is no such device."""
    _lazy_init()
    index = device_index(device)
    visible = cores.visible_cores()
    if not 0 <= index < len(visible):
        raise ValueError(f"neuron:{index} does not exist: this process sees {len(visible)} devices")
    return DeviceProperties(
        get_device_name(index), visible[index], torch.accelerator.get_memory_info(index)[1]
    )


def get_device_name(device: "torch.types.Device" = None) -> str:
    """Name of a device."""
    return "Trainium2 logical NeuronCore (simulated)"


def get_device_capability(device: "torch.types.Device" = None) -> dict[str, object]:
    """What ``torch.accelerator.get_device_capability`` says: the dtypes the device computes in."""
    _lazy_init()
    return torch.accelerator.get_device_capability(device_index(device))


def get_amp_supported_dtype() -> list[torch.dtype]:
    """The types that ``torch.autocast("neuron")`` accepts."""
    return [torch.bfloat16, torch.float16]


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Always: the cores compute in bfloat16 natively."""
    return True
