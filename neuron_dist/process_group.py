"""The torch.distributed backend ``neuron``: its options and its registration."""

import atexit
import os
import weakref
from functools import cache

import torch.distributed as dist
from torch._C._distributed_c10d import _DistributedBackendOptions as DistributedBackendOptions

from neuron_dist import _C
from neuron_dist._C import ProcessGroupNeuron
from neuron_dist.device.runtime import _lazy_init
from neuron_dist.timeline import trace_until_exit

Options = ProcessGroupNeuron.Options

_groups: "weakref.WeakSet[ProcessGroupNeuron]" = weakref.WeakSet()


def register_backend() -> None:
    """Make ``init_process_group("neuron")`` work. One backend object serves a group's neuron and CPU tensors."""
    _C.set_planner_factory(_make_planner)
    if folder := os.environ.get("NEURON_SIM_TRACE"):
        trace_until_exit(folder)
    dist.Backend.register_backend("neuron", _create, extended_api=True, devices=["neuron", "cpu"])
    # In "cpu:gloo,neuron:neuron" and "neuron:neuron" torch looks for its first plugin's name, which it keeps in upper
    # case, among names in lower case; unless it finds it, the group has no default backend: hooks, its name and rank.
    plugins = dist.Backend._plugins
    others = {name: plugin for name, plugin in plugins.items() if name != "neuron"}
    plugins.clear()
    plugins.update({"neuron": others["NEURON"], **others})
    # torch checks, for `new_group(backend="gloo")` beside a bound device, that gloo knows the device too. Its fake
    # backend registers itself, with a list of devices, when it is imported: now, so that it does not do so later.
    import torch.testing._internal.distributed.fake_pg  # noqa: F401

    for backend in ("gloo", "fake"):
        devices = dist.Backend.backend_capability.setdefault(backend, [])
        if "neuron" not in devices:
            devices.append("neuron")


def _create(request: "DistributedBackendOptions", options: Options | None) -> ProcessGroupNeuron:
    _lazy_init()  # the device that is current now is where the group works
    chosen = Options(request.timeout) if options is None else options
    chosen.group_name = request.group_id  # type: ignore[assignment]  # a NewType of str in the stubs alone
    chosen.global_ranks_in_group = request.global_ranks_in_group or list(range(request.group_size))
    if (check := os.environ.get("NEURON_SIM_CHECK", "")) not in ("", "0", "1"):
        raise ValueError(f"NEURON_SIM_CHECK={check!r}: expected 1 for the checking mode, or 0")
    if os.environ.get("NEURON_SIM_FAULTS"):
        _install_faults(chosen.topology, request)
    group = ProcessGroupNeuron(request.store, request.group_rank, request.group_size, chosen)
    _groups.add(group)
    if folder := os.environ.get("NEURON_SIM_REPORT"):
        _report_until_exit(folder)
    return group


def _install_faults(topology: str, request: "DistributedBackendOptions") -> None:
    from neuron_dist.faults import install_from_env

    world = (
        (dist.get_rank(), dist.get_world_size())
        if dist.is_initialized()
        else (request.group_rank, request.group_size)
    )
    install_from_env(topology, *world)


@cache
def _report_until_exit(folder: str) -> None:
    from neuron_dist.report import report_until_exit

    report_until_exit(folder)


def _make_planner(options: Options, ranks: list[int], rank: int) -> object:
    from neuron_dist.planner import make_planner  # when a group is made: `import torch` does not wait for it

    return make_planner(options, ranks, rank)


@atexit.register
def _leave_groups() -> None:
    """End what is under way while Python can still run its callbacks; peers that wait learn that this rank left."""
    for group in list(_groups):
        group.leave()
