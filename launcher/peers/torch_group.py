"""One call of each collective on a process group of torch's."""

import torch
import torch.distributed as dist

from . import Call


def call_on(group: "dist.ProcessGroup | None", op: str, given: torch.Tensor, output: torch.Tensor) -> Call:
    """``given`` and ``output`` on the group's device; "send_recv" sends around the ring of ranks."""
    # The names of torch 2.13 and later, where there are such.
    all_gather = getattr(dist, "all_gather_single", dist.all_gather_into_tensor)
    reduce_scatter = getattr(dist, "reduce_scatter_single", dist.reduce_scatter_tensor)
    rank, ranks = dist.get_rank(group), dist.get_world_size(group)
    following, previous = (rank + 1) % ranks, (rank - 1) % ranks

    def send_recv() -> None:
        works = [dist.isend(given, following, group), dist.irecv(output, previous, group)]
        for work in works:
            if work is not None:  # None is for ranks outside the group
                work.wait()

    calls: dict[str, Call] = {
        "all_reduce": lambda: dist.all_reduce(given, group=group),
        "all_gather": lambda: all_gather(output, given, group=group),
        "reduce_scatter": lambda: reduce_scatter(output, given, group=group),
        "all_to_all": lambda: dist.all_to_all_single(output, given, group=group),
        "broadcast": lambda: dist.broadcast(given, 0, group=group),
        "send_recv": send_recv,
    }
    return calls[op]
