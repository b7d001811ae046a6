"""Entry point `torch.backends`: runs at the end of `import torch` and brings the device and the backend."""

import importlib.util
import multiprocessing
import os
import warnings

REBUILD = "pip install --no-build-isolation --force-reinstall --no-deps neuron-dist"


class NeuronUnavailableWarning(RuntimeWarning):
    """The neuron device is installed but was not registered with torch; the message says why."""


class _StepAside(Exception):
    """A reason, in one line, not to register anything."""


def autoload() -> None:
    """Register the device module and the backend. Never raises: that would break `import torch`."""
    try:
        _check_free()
        _check_native_module()
        _register()
    except Exception as reason:
        _warn(str(reason) if isinstance(reason, _StepAside) else f"{type(reason).__name__}: {reason}")


def _register() -> None:
    from neuron_dist.device.registration import register_device
    from neuron_dist.process_group import register_backend

    register_device()
    register_backend()


def _check_free() -> None:
    """Leave the device to whoever has it: PrivateUse1 has room for one."""
    import torch

    taken = torch._C._get_privateuse1_backend_name()
    if taken not in ("privateuseone", "neuron"):
        raise _StepAside(f"another package has registered its device {taken!r} and torch has room for one")
    neuron = getattr(torch, "neuron", None)
    if neuron is not None and neuron.__name__ != "neuron_dist.device":
        raise _StepAside(f"torch.neuron is already the module {neuron.__name__!r}")
    if neuron is None and importlib.util.find_spec("torch_neuronx") is not None:
        raise _StepAside("torch-neuronx, the package for real Trainium, is installed and comes first")


def _check_native_module() -> None:
    import torch

    try:
        from neuron_dist import _C
    except ImportError as error:
        raise _StepAside(
            f"its native module does not load in torch {torch.__version__} ({error}). Rebuild it: {REBUILD}"
        ) from error
    if _C.built_for_torch != torch.__version__:
        raise _StepAside(
            f"its native module was built for torch {_C.built_for_torch}, not {torch.__version__}. "
            f"Rebuild it: {REBUILD}"
        )


def _warn(reason: str) -> None:
    """Once per job: worker processes and the other ranks of a node have the same to say."""
    if multiprocessing.parent_process() is None and os.environ.get("LOCAL_RANK", "0") == "0":
        warnings.warn(f"neuron-dist: no neuron device: {reason}", NeuronUnavailableWarning, stacklevel=2)
