"""Entry point `torch.backends`: runs at the end of `import torch` and brings the device and the backend."""

import importlib.util
import mmap
import multiprocessing
import os
import warnings

BUILD_MARK = b"neuron-dist built for torch "  # as in module.cpp
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
    from neuron_dist.stand_in import install
    from neuron_dist.symmetric_memory import register_operators

    register_device()
    register_backend()
    register_operators()
    install()


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

    built_for = _torch_of_native_module()
    if built_for != torch.__version__:
        raise _StepAside(
            f"its native module was built for torch {built_for}, not {torch.__version__}. "
            f"Rebuild it: {REBUILD}"
        )
    try:
        import neuron_dist._C  # noqa: F401
    except ImportError as error:
        raise _StepAside(
            f"its native module does not load in torch {torch.__version__} ({error}). Rebuild it: {REBUILD}"
        ) from error


def _torch_of_native_module() -> str:
    """The torch it was built for, by a mark in its file: loading it into another torch may crash."""
    spec = importlib.util.find_spec("neuron_dist._C")
    if spec is None or spec.origin is None:
        raise _StepAside(f"its native module is missing. Build it: {REBUILD}")
    with open(spec.origin, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        mark = content.find(BUILD_MARK)
        if mark < 0:
            return "an unknown version"
        return content[mark + len(BUILD_MARK) : content.find(b"\0", mark)].decode()


def _warn(reason: str) -> None:
    """Once per job: worker processes and the other ranks of a node have the same to say."""
    if multiprocessing.parent_process() is None and os.environ.get("LOCAL_RANK", "0") == "0":
        warnings.warn(f"neuron-dist: no neuron device: {reason}", NeuronUnavailableWarning, stacklevel=2)
