"""DLPack of neuron tensors: others get their memory as an extension device's, or a copy on the host."""

import enum
from typing import Any

import torch
from torch.utils.dlpack import DLDeviceType

_torch_dlpack = torch.Tensor.__dlpack__
_torch_dlpack_device = torch.Tensor.__dlpack_device__


def teach_dlpack() -> None:
    """Let ``torch.Tensor``'s two methods of the protocol serve the device, which torch's refuse."""
    torch.Tensor.__dlpack__ = _dlpack  # type: ignore[assignment, method-assign]
    torch.Tensor.__dlpack_device__ = _dlpack_device  # type: ignore[assignment, method-assign]


def _dlpack_device(tensor: torch.Tensor) -> tuple[enum.IntEnum, int]:
    if tensor.device.type == "neuron":
        return DLDeviceType.kDLExtDev, tensor.device.index
    return _torch_dlpack_device(tensor)


def _dlpack(
    tensor: torch.Tensor,
    *,
    dl_device: tuple[enum.IntEnum, int] | None = None,
    copy: bool | None = None,
    **rest: Any,
) -> object:
    """``dl_device`` may ask for the host, as ``numpy.from_dlpack(tensor, device="cpu")`` does: a copy."""
    if tensor.device.type == "neuron" and dl_device is not None and dl_device[0] == DLDeviceType.kDLCPU:
        if copy is False:
            raise BufferError("a neuron tensor reaches the host only as a copy, and copy=False forbids one")
        return _torch_dlpack(tensor.cpu(), dl_device=dl_device, **rest)
    return _torch_dlpack(tensor, dl_device=dl_device, copy=copy, **rest)
