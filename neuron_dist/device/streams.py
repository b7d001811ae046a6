"""Streams and events: kernels run at once on the host, streams order work and carry simulated time."""

from typing import Any

import torch

from neuron_dist import _C
from neuron_dist.device.runtime import _lazy_init, device_index


class _OfDevice(type):
    """torch's C++ takes no subclass of ``torch.Event`` for an event. So the classes here make plain torch
    objects of the device, and count every such object as an instance."""

    base: Any

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, cls.base) and instance.device.type == "neuron"


class Stream(metaclass=_OfDevice):
    """A ``torch.Stream``: a queue of work on one device."""

    base = torch.Stream

    def __new__(cls, device: Any = None, priority: int = 0, **ids: int) -> torch.Stream:  # type: ignore[misc]
        _lazy_init()
        if ids:  # an existing stream, by stream_id, device_index and device_type
            return torch.Stream(**ids)
        return torch.Stream(device=torch.device("neuron", device_index(device)), priority=priority)


class Event(metaclass=_OfDevice):
    """A ``torch.Event``: a point in a stream. With ``enable_timing``, ``elapsed_time`` gives the simulated
    milliseconds between two."""

    base = torch.Event

    def __new__(  # type: ignore[misc]
        cls, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False
    ) -> torch.Event:
        _lazy_init()
        return torch.Event(
            device="neuron", enable_timing=enable_timing, blocking=blocking, interprocess=interprocess
        )


def current_stream(device: "torch.types.Device" = None) -> torch.Stream:
    """The stream that the calling thread's work on a device goes to."""
    _lazy_init()
    return torch._C._accelerator_getStream(device_index(device))


def default_stream(device: "torch.types.Device" = None) -> torch.Stream:
    """The stream that work on a device goes to unless another was chosen."""
    _lazy_init()
    return _C.default_stream(device_index(device))


def set_stream(stream: torch.Stream | None) -> None:
    """Make a stream current for the calling thread, and its device with it."""
    if stream is not None:
        torch._C._accelerator_setStream(stream)


class StreamContext:
    """Context manager that makes a stream and its device current; ``None`` changes nothing."""

    def __init__(self, stream: torch.Stream | None) -> None:
        self.stream = stream

    def __enter__(self) -> torch.Stream | None:
        if self.stream is not None:
            self.stream.__enter__()
        return self.stream

    def __exit__(self, *exception: Any) -> None:
        if self.stream is not None:
            self.stream.__exit__(*exception)


def stream(stream: torch.Stream | None) -> StreamContext:
    """``with torch.neuron.stream(s):`` runs the body's work on ``s``."""
    return StreamContext(stream)
