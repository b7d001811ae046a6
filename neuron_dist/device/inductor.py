"""What inductor, torch.compile's default backend, finds for the device: which backend to use."""

from typing import Any, NoReturn

from torch._inductor.codegen.common import DeviceOpOverrides, register_device_op_overrides
from torch._inductor.codegen.wrapper import PythonWrapperCodegen


class CodeGeneration(PythonWrapperCodegen):
    """Stands for the scheduling and the wrappers of a device that inductor generates code for."""

    @staticmethod
    def create(*arguments: Any) -> NoReturn:
        """Called for each graph on the device."""
        raise NotImplementedError(
            'inductor generates no code for the neuron device: use torch.compile(..., backend="neuron")'
        )


# Asked for before the wrapper is, and missing ones are a KeyError.
register_device_op_overrides("neuron", DeviceOpOverrides())
