"""Names PrivateUse1 ``neuron`` and hangs ``torch.neuron`` and the tensor methods on torch."""

import importlib
import sys

import torch
from torch.utils.backend_registration import (
    generate_methods_for_privateuse1_backend,
    rename_privateuse1_backend,
)

from neuron_dist.device import runtime
from neuron_dist.device.dlpack import teach_dlpack
from neuron_dist.device.sharing import teach_pickler


def register_device() -> None:
    """Idempotent, and safe while ``neuron_dist.device`` itself is still being imported."""
    runtime.configure()
    if torch._C._get_privateuse1_backend_name() == "neuron":
        return
    rename_privateuse1_backend("neuron")
    torch._register_device_module("neuron", sys.modules["neuron_dist.device"])
    generate_methods_for_privateuse1_backend(
        for_tensor=True, for_module=True, for_packed_sequence=True, for_storage=True
    )
    teach_dlpack()
    teach_pickler()
    importlib.import_module("neuron_dist.device")
