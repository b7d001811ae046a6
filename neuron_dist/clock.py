"""The simulated clock of this process's devices."""

import torch

from neuron_dist import _C
from neuron_dist.device.runtime import _lazy_init, device_index


def simulated_time(device: "torch.types.Device" = None) -> float:
    """Simulated seconds at which the device's current stream has got to; 0 when the process began.

    Collectives that the stream has waited for move it: from the latest arrival among their ranks, by their price.
    """
    _lazy_init()
    return _C.simulated_time(device_index(device))
