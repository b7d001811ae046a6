"""Ranks whose calls do not fit together. All raise at that call; no byte has moved."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from tests.faults.judge import neuron, wrong

HERE = r"mismatches\.py:\d+ in "


@wrong(
    rf"DistBackendError: collective #1 of group '0' \(ranks 0, 1\): the ranks made different calls\n"
    rf"  rank 0: all_reduce\(SUM, Float\[4\]\) at \S*{HERE}other_op\n"
    rf"  rank 1: broadcast\(root 0, Float\[4\]\) at \S*{HERE}other_op",
    quick=True,
)
def other_op(rank, size):
    if rank == 0:
        dist.all_reduce(neuron(4))
    else:
        dist.broadcast(neuron(4), 0)


@wrong(r"ranks 0, 2: all_reduce\(SUM, Float\[4\]\).*rank 1: all_reduce\(SUM, Int\[4\]\)", ranks=3)
def other_dtype(rank, size):
    dist.all_reduce(neuron(4, dtype=torch.int32 if rank == 1 else torch.float32))


@wrong(r"different sizes to all_reduce.*rank 0 4 elements, rank 2 5 elements", ranks=3)
def other_count(rank, size):
    dist.all_reduce(neuron(4 + rank // 2))


@wrong(r"different sizes to all_reduce.*rank 0 1000000 elements, rank 1 1 elements")
def other_count_by_far(rank, size):
    dist.all_reduce(neuron(1 if rank else 1_000_000))


@wrong(rf"rank 0: all_reduce\(SUM.*rank 1: all_reduce\(MAX, Float\[4\]\) at \S*{HERE}other_reduction")
def other_reduction(rank, size):
    dist.all_reduce(neuron(4), dist.ReduceOp.MAX if rank else dist.ReduceOp.SUM)


@wrong(r"rank 0: broadcast\(root 0, .*ranks 1, 2: broadcast\(root 1, ", ranks=3)
def other_root(rank, size):
    dist.broadcast(neuron(4), min(rank, 1))


@wrong(r"rank 1 gives 1 elements, rank 0 expects 2 elements of it", ranks=3, quick=True)
def other_split_sizes(rank, size):
    dist.all_to_all_single(neuron(6), neuron(6), [2, 2, 2], [1, 3, 2] if rank == 1 else [2, 2, 2])


@wrong(r"rank 1 gives 3 elements, rank 0 expects 2 elements of it")
def other_gathered_size(rank, size):
    dist.all_gather([neuron(2), neuron(2 + rank)], neuron(2 + rank))


@wrong(r"rank 0 gives 4 elements, rank 1 expects 3 elements of it")
def other_scattered_size(rank, size):
    dist.scatter(neuron(4 - rank), [neuron(4), neuron(4)] if rank == 0 else None, src=0)


@wrong(r"different sizes to reduce_scatter.*rank 0 4 elements, rank 1 6 elements for rank 0")
def other_reduce_scatter_size(rank, size):
    dist.reduce_scatter_tensor(neuron(4 + 2 * rank), neuron(8 + 4 * rank))


@wrong(r"rank 0: barrier at .*rank 1: all_reduce\(SUM, Float\[1\]\)")
def barrier_against_all_reduce(rank, size):
    if rank == 0:
        dist.barrier()
    else:
        dist.all_reduce(neuron(1))


@wrong(r"collective #3 of group.*rank 0: all_reduce\(SUM, Float\[8\]\).*rank 1: barrier", quick=True)
def one_step_more(rank, size):
    for _ in range(3 - rank):
        dist.all_reduce(neuron(8))
    dist.barrier()


@wrong(r"rank 0: all_reduce\(.*rank 1: all_gather\(")
def swapped_order(rank, size):
    calls = [lambda: dist.all_reduce(neuron(4)), lambda: dist.all_gather_into_tensor(neuron(8), neuron(4))]
    for call in calls if rank == 0 else reversed(calls):
        call()


@wrong(r"different sizes to all_reduce.*rank 0 3 elements, rank 1 4 elements")
def async_call(rank, size):
    dist.all_reduce(neuron(3 + rank), async_op=True).wait()


@wrong(
    rf"collective #2 .*rank 0: all_reduce\(SUM, Float\[4\]\) at \S*{HERE}.*"
    rf"rank 1: all_reduce\(SUM, Float\[8\]\) at \S*{HERE}"
)
def other_number_of_coalesced(rank, size):
    with dist._coalescing_manager(device=torch.device("neuron")):
        for _ in range(2 - rank):
            dist.all_reduce(neuron(4))
    dist.all_reduce(neuron(8))


@wrong(
    {
        0: r"ValueError|TypeError|RuntimeError",
        1: r"rank 0 made an invalid call: .*BAND is not defined for Float",
    }
)
def invalid_on_one_rank(rank, size):
    dist.all_reduce(neuron(4), dist.ReduceOp.SUM if rank else dist.ReduceOp.BAND)


@wrong(
    {
        0: "the receiver expects another size or dtype",
        1: "recv of 1000000 .*: rank 0 sent 2000000 elements of Float",
    }
)
def received_into_another_size(rank, size):
    if rank == 0:
        dist.send(neuron(2_000_000), 1)
    else:
        dist.recv(neuron(1_000_000), 0)


@wrong(
    {0: r"rank 1 \(pid \d+\) (has|exited)", 1: r"appears not to match sizes of the same param in process 0"}
)
def other_models_under_ddp(rank, size):
    DistributedDataParallel(torch.nn.Linear(4, 4 + rank).to("neuron"))


@wrong(r"rank 0: all_reduce\(SUM, Float\[6\]\).*rank 1: all_gather\(")
def functional_collectives(rank, size):
    from torch.distributed import _functional_collectives as functional

    if rank == 0:
        functional.wait_tensor(functional.all_reduce(neuron(6), "sum", dist.group.WORLD))
    else:
        functional.wait_tensor(functional.all_gather_tensor(neuron(6), 0, dist.group.WORLD))


@wrong({0: "group '1'.*different sizes", 1: "group '1'.*different sizes", 2: None}, ranks=3)
def in_a_subgroup(rank, size):
    group = dist.new_group([0, 1])
    if rank < 2:
        dist.all_reduce(neuron(2 + rank), group=group)
