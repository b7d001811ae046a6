"""Memory of the devices. The figures are ``torch.accelerator``'s, kept by the caching allocator."""

import pickle
import sys
from collections import OrderedDict
from pathlib import Path
from typing import Any, Literal

import torch

from neuron_dist import _C
from neuron_dist.device.runtime import _lazy_init, device_index

Device = torch.types.Device


def memory_stats(device: Device = None) -> "OrderedDict[str, Any]":
    """All statistics of a device's allocator, by CUDA's names ("allocated_bytes.all.peak", "num_ooms")."""
    _lazy_init()
    return torch.accelerator.memory_stats(device_index(device))


def memory_allocated(device: Device = None) -> int:
    """Bytes in use by tensors."""
    return memory_stats(device).get("allocated_bytes.all.current", 0)


def max_memory_allocated(device: Device = None) -> int:
    """Most bytes in use by tensors since the start or ``reset_peak_memory_stats``."""
    return memory_stats(device).get("allocated_bytes.all.peak", 0)


def memory_reserved(device: Device = None) -> int:
    """Bytes held by the caching allocator, in use or cached."""
    return memory_stats(device).get("reserved_bytes.all.current", 0)


def max_memory_reserved(device: Device = None) -> int:
    """Most bytes held by the caching allocator since the start or ``reset_peak_memory_stats``."""
    return memory_stats(device).get("reserved_bytes.all.peak", 0)


def reset_peak_memory_stats(device: Device = None) -> None:
    """Start the peaks again from the current values."""
    _lazy_init()
    torch.accelerator.reset_peak_memory_stats(device_index(device))


def reset_accumulated_memory_stats(device: Device = None) -> None:
    """Start the totals ("allocated", "freed", counters) again from 0."""
    _lazy_init()
    torch.accelerator.reset_accumulated_memory_stats(device_index(device))


def empty_cache() -> None:
    """Give cached memory that no tensor uses back to the host."""
    torch.accelerator.empty_cache()


def mem_get_info(device: Device = None) -> tuple[int, int]:
    """Free and total HBM of a device in bytes; what the allocator caches counts as taken."""
    _lazy_init()
    return torch.accelerator.get_memory_info(device_index(device))


def set_per_process_memory_fraction(fraction: float, device: Device = None) -> None:
    """Let the allocator take at most this share (0 to 1) of a device's HBM."""
    _lazy_init()
    _C.set_memory_fraction(device_index(device), fraction)


def memory_summary(device: Device = None, abbreviated: bool = False) -> str:
    """A table of the allocator's statistics; ``abbreviated`` leaves out the two pools."""
    stats = memory_stats(device)
    pools = {"all": "", "large_pool": " (large)", "small_pool": " (small)"}
    if abbreviated:
        pools = {"all": ""}
    metrics = {
        "Allocated memory": "allocated_bytes",
        "Active memory": "active_bytes",
        "Requested memory": "requested_bytes",
        "Reserved memory": "reserved_bytes",
        "Non-releasable memory": "inactive_split_bytes",
        "Allocations": "allocation",
        "Active allocations": "active",
        "Segments": "segment",
        "Non-releasable blocks": "inactive_split",
    }
    lines = [
        f"neuron:{device_index(device)} memory summary",
        f"OOMs: {stats.get('num_ooms', 0)}, retries: {stats.get('num_alloc_retries', 0)}",
        f"{'':32}{'current':>14}{'peak':>14}{'allocated':>16}{'freed':>16}",
    ]
    for label, metric in metrics.items():
        form = _readable if metric.endswith("bytes") else str
        for pool, suffix in pools.items():
            current, peak, allocated, freed = (
                form(stats.get(f"{metric}.{pool}.{kind}", 0))
                for kind in ("current", "peak", "allocated", "freed")
            )
            lines.append(f"{label + suffix:32}{current:>14}{peak:>14}{allocated:>16}{freed:>16}")
    return "\n".join(lines)


def memory_snapshot() -> list[dict[str, Any]]:
    """The segments of all devices' allocators with their blocks, as ``torch.cuda.memory_snapshot`` gives them."""
    _lazy_init()
    return _C.memory_snapshot()["segments"]


def _record_memory_history(
    enabled: Literal["state", "all"] | None = "all",
    context: Literal["state", "alloc", "all"] | None = "all",
    stacks: Literal["python", "all"] = "python",
    max_entries: int = sys.maxsize,
    clear_history: bool = False,
) -> None:
    """Record who allocates, for ``_snapshot``; as in ``torch.cuda.memory``, except that ``stacks="all"``, which
    adds C++ frames, is not the default: ``_snapshot`` then takes minutes to find their names, unless the environment
    has TORCH_SYMBOLIZE_MODE=fast.

    ``enabled``: None (stop), "state" (who holds what memory) or "all" (also every event). ``context``: keep stacks of
    nothing (None), of memory in use, also of the events of allocating, or also of those of freeing.
    ``max_entries``: events kept for each device, the newest."""
    levels = [None, "state", "alloc", "all"]
    if enabled not in (None, "state", "all") or context not in levels or stacks not in ("python", "all"):
        raise ValueError(
            'expected enabled of None, "state" or "all", context of None, "state", "alloc" or "all" and stacks of '
            f'"python" or "all", but got {enabled!r}, {context!r}, {stacks!r}'
        )
    if max_entries < 0:
        raise ValueError(f"expected max_entries of 0 or more, but got {max_entries!r}")
    _lazy_init()
    level = levels.index(context) if enabled else 0
    _C.record_memory_history(enabled == "all", level, stacks == "all", max_entries, clear_history)


def _snapshot(device: Device = None) -> dict[str, Any]:
    """What all devices' memory holds and the events recorded, for ``torch.cuda._memory_viz`` and
    https://pytorch.org/memory_viz: "segments" and, by device, "device_traces". ``device`` is not used, as in CUDA."""
    _lazy_init()
    return _C.memory_snapshot()


def _dump_snapshot(filename: str = "dump_snapshot.pickle") -> None:
    """Write ``_snapshot()`` to a file that https://pytorch.org/memory_viz opens."""
    Path(filename).write_bytes(pickle.dumps(_snapshot()))


def _readable(size: int) -> str:
    value = float(size)
    for unit in ("B", "KiB", "MiB"):
        if value < 10240:
            return f"{value:.0f} {unit}"
        value /= 1024
    return f"{value:.0f} GiB"
