"""Calls that are wrong on purpose, each with what it must say. None may hang, and a wrong call moves no data."""

import pytest
import torch
import torch.distributed as dist

from tests.harness import run

SECONDS = 20


def neuron(*shape, dtype=torch.float32):
    return torch.ones(*shape, dtype=dtype, device="neuron")


# What each rank calls, and what every rank must be told.
MISMATCHES = {
    "op": (
        lambda rank: dist.all_reduce(neuron(4)) if rank == 0 else dist.broadcast(neuron(4), 0),
        r"rank 0: all_reduce\(SUM, Float\[4\]\) at .*\n  ranks 1, 2: broadcast\(root 0, Float\[4\]\) at ",
    ),
    "size": (
        lambda rank: dist.all_reduce(neuron(4 + (rank == 2))),
        r"different sizes to all_reduce.*rank 0 4 elements, rank 2 5 elements",
    ),
    "large size": (
        lambda rank: dist.all_reduce(neuron(40_000 + 10 * (rank == 1))),
        r"rank 0 40000 elements, rank 1 40010 elements",
    ),
    "small and large": (
        lambda rank: dist.all_reduce(neuron(4 if rank == 1 else 40_000)),
        r"rank 0 40000 elements, rank 1 4 elements",
    ),
    "dtype": (
        lambda rank: dist.all_reduce(neuron(4, dtype=torch.int32 if rank == 1 else torch.float32)),
        r"ranks 0, 2: all_reduce\(SUM, Float\[4\]\) .*\n  rank 1: all_reduce\(SUM, Int\[4\]\)",
    ),
    "reduction": (
        lambda rank: dist.all_reduce(neuron(4), dist.ReduceOp.MAX if rank == 2 else dist.ReduceOp.SUM),
        r"rank 2: all_reduce\(MAX, Float\[4\]\)",
    ),
    "root": (
        lambda rank: dist.broadcast(neuron(4), 0 if rank == 0 else 1),
        r"rank 0: broadcast\(root 0, .*\n  ranks 1, 2: broadcast\(root 1, ",
    ),
    "broadcast size": (
        lambda rank: dist.broadcast(neuron(4 + rank), 0),
        r"rank 0 gives 4 elements, rank 1 expects 5 elements of it",
    ),
    "splits": (
        lambda rank: dist.all_to_all_single(
            neuron(6), neuron(6), [2, 2, 2], [1, 3, 2] if rank == 1 else [2, 2, 2]
        ),
        r"rank 1 gives 1 elements, rank 0 expects 2 elements of it",
    ),
    "uneven gather": (
        lambda rank: dist.all_gather([neuron(2), neuron(3), neuron(4)], neuron(2 if rank == 1 else rank + 2)),
        r"rank 1 gives 2 elements, rank 0 expects 3 elements of it",
    ),
    "barrier": (
        lambda rank: dist.barrier() if rank == 0 else dist.all_reduce(neuron(1)),
        r"rank 0: barrier at .*\n  ranks 1, 2: all_reduce",
    ),
    "invalid on one rank": (
        lambda rank: dist.all_reduce(neuron(4), dist.ReduceOp.BAND if rank == 1 else dist.ReduceOp.SUM),
        r"reduction BAND is not defined for Float",
    ),
}


def mismatch(rank, world_size, name):
    call, message = MISMATCHES[name]
    expected = (dist.DistBackendError, TypeError)
    with pytest.raises(expected, match=message):
        call(rank)
    with pytest.raises(dist.DistBackendError):  # the group is broken, on every rank
        dist.all_reduce(neuron(1))


@pytest.mark.parametrize("name", MISMATCHES)
def test_mismatch_is_told_to_every_rank(name):
    run(3, mismatch, name, timeout=SECONDS)


def async_mismatch(rank, world_size):
    work = dist.all_reduce(neuron(3 + rank), async_op=True)
    with pytest.raises(dist.DistBackendError, match="different sizes"):
        work.wait()
    assert not work.is_success()
    assert "different sizes" in str(work.exception())


def test_mismatch_of_async_calls_reaches_the_waiter():
    run(2, async_mismatch, timeout=SECONDS)


def group():
    return dist.distributed_c10d._get_default_group()


# The same wrong call on every rank: refused before it begins, and the group goes on.
REFUSED = {
    "bitwise on floats": (
        lambda: dist.all_reduce(neuron(2), dist.ReduceOp.BXOR),
        "BXOR is not defined for Float",
    ),
    "average of integers": (
        lambda: dist.all_reduce(neuron(2, dtype=torch.int32), dist.ReduceOp.AVG),
        "AVG is not defined for Int; use SUM and divide",
    ),
    "order on complex": (
        lambda: group().allreduce([torch.ones(2, dtype=torch.complex64)], dist.ReduceOp.MAX),
        "MAX is not defined for ComplexFloat",
    ),
    "short list": (
        lambda: group().allgather([[neuron(2)]], [neuron(2)]),
        "list has 1 tensors for a group of 2",
    ),
    "list of another dtype": (
        lambda: group().allgather([[neuron(2), neuron(2).int()]], [neuron(2)]),
        r"output\[1\] has dtype Int, expected Float",
    ),
    "output too small": (
        lambda: dist.all_gather_into_tensor(neuron(3), neuron(2)),
        "output tensor has 3 elements, expected 2 ranks x 2",
    ),
    "input too small": (
        lambda: dist.reduce_scatter_tensor(neuron(2), neuron(3)),
        "input tensor has 3 elements, expected 2 ranks x 2",
    ),
    "splits that do not add up": (
        lambda: group().alltoall_base(neuron(4), neuron(4), [2, 2], [1, 2], dist.AllToAllOptions()),
        r"split sizes \[1, 2\] do not cut the 4 rows",
    ),
    "negative split": (
        lambda: group().alltoall_base(neuron(4), neuron(4), [2, 2], [5, -1], dist.AllToAllOptions()),
        r"split sizes \[5, -1\] do not cut the 4 rows",
    ),
    "two tensors": (
        lambda: group().allreduce([neuron(1), neuron(1)]),
        "expected a single all_reduce tensor, got 2",
    ),
    "sparse": (
        lambda: group().allreduce([torch.eye(2).to_sparse()]),
        "layout Sparse; the neuron backend carries dense tensors only",
    ),
}


def refused(rank, world_size):
    for name, (call, message) in REFUSED.items():
        with pytest.raises((ValueError, TypeError, RuntimeError), match=message):
            call()
        tensor = neuron(3)
        dist.all_reduce(tensor)
        assert tensor.tolist() == [2.0] * 3, name


def test_wrong_calls_are_refused_and_the_group_goes_on():
    run(2, refused, timeout=40)


def wrong_message(rank, world_size):
    small, large = (5, 6), (50_000, 60_000)
    for sent, expected in (small, large):
        if rank == 0:
            work = dist.isend(neuron(sent), 1)
            if sent == small[0]:
                work.wait()
            else:
                with pytest.raises(
                    dist.DistBackendError, match=r"send of 50000 elements .* expects another size"
                ):
                    work.wait()
        else:
            with pytest.raises(
                dist.DistBackendError, match=f"recv of {expected} elements.*rank 0 sent {sent} elem"
            ):
                dist.recv(neuron(expected), 0)
    tensor = neuron(2)
    dist.all_reduce(tensor)
    assert tensor.tolist() == [2.0, 2.0]


def test_receive_of_another_size():
    run(2, wrong_message, timeout=SECONDS)


def bad_ranks(rank, world_size):
    with pytest.raises(ValueError, match="rank"):
        dist.send(neuron(1), rank)
    backend = group()._get_backend(torch.device("neuron"))
    with pytest.raises(ValueError, match="send to rank 7 from rank"):
        backend.send([neuron(1)], 7, 0)
    with pytest.raises(ValueError, match="recv from rank -3 from rank"):
        backend.recv([neuron(1)], -3, 0)


def test_ranks_outside_the_group():
    run(2, bad_ranks, timeout=SECONDS)


def outsiders(rank, world_size):
    pair = dist.new_group([0, 1])
    if rank == 2:
        with pytest.warns(UserWarning, match="not part of|does not belong|non-member|group"):
            dist.all_reduce(neuron(1), group=pair)
    else:
        tensor = neuron(1)
        dist.all_reduce(tensor, group=pair)
        assert tensor.item() == 2


def test_a_rank_outside_the_group_is_told():
    run(3, outsiders, timeout=SECONDS)


def destroyed(rank, world_size):
    backend = group()._get_backend(torch.device("neuron"))
    dist.destroy_process_group()
    with pytest.raises(dist.DistBackendError, match="has been destroyed on this rank"):
        backend.allreduce([neuron(1)]).wait()
    with pytest.raises(dist.DistBackendError, match="destroyed"):
        backend.recv([neuron(1)], 1 - rank, 0)


def test_a_destroyed_group_says_so():
    run(2, destroyed, timeout=SECONDS)
