"""Ranks that die, stop or leave. The others learn who and how, soon, and nothing stays behind."""

import os
import signal
import time

import pytest
import torch
import torch.distributed as dist

from tests.harness import RanksFailed, run

ENDINGS = {
    "SIGKILL": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "SIGSEGV": lambda: os.kill(os.getpid(), signal.SIGSEGV),
    "exit": lambda: os._exit(3),
}
WAITS = {
    "all_reduce": lambda: dist.all_reduce(torch.ones(3, device="neuron")),
    "large all_reduce": lambda: dist.all_reduce(torch.ones(300_000, device="neuron")),
    "async all_reduce": lambda: dist.all_reduce(torch.ones(3, device="neuron"), async_op=True).wait(),
    "recv": lambda: dist.recv(torch.ones(3, device="neuron"), 2),
    "large send": lambda: dist.send(torch.ones(300_000, device="neuron"), 2),
    "barrier": lambda: dist.barrier(),
}


def survive(rank, world_size, ending, waiting):
    dist.all_reduce(torch.ones(1))
    if rank == 2:
        time.sleep(0.3)
        ENDINGS[ending]()
    began = time.monotonic()
    with pytest.raises(
        dist.DistBackendError, match=r"rank 2 \(pid \d+\) (has exited|exited with|was killed by)"
    ):
        WAITS[waiting]()
    return time.monotonic() - began


@pytest.mark.parametrize("waiting", WAITS)
@pytest.mark.parametrize("ending", ENDINGS)
def test_survivors_learn_who_died(ending, waiting):
    with pytest.raises(RanksFailed) as failed:
        run(3, survive, ending, waiting, timeout=30)
    assert list(failed.value.errors) == [2], failed.value
    assert set(failed.value.results) == {0, 1}


def unfinished(rank, world_size):
    if rank == 2:
        time.sleep(3)
        return
    with pytest.raises(
        dist.DistBackendError,
        match=r"reached its timeout of 1000 ms: "
        r"still waiting for rank 2 \(pid \d+, last call #1 all_reduce\(SUM, Float\[1\]\)\)",
    ):
        dist.all_reduce(torch.ones(3, device="neuron"))


def with_short_timeout(rank, world_size):
    import datetime

    dist.init_process_group("neuron", timeout=datetime.timedelta(seconds=1))
    dist.all_reduce(torch.ones(1))
    unfinished(rank, world_size)


def test_timeout_names_who_is_missing():
    run(3, with_short_timeout, backend=None, timeout=30)


def nobody_comes(rank, world_size):
    import datetime

    if rank == 2:
        time.sleep(4)
        return
    with pytest.raises(dist.DistBackendError, match="while the group was made"):
        dist.init_process_group("neuron", timeout=datetime.timedelta(seconds=2))


def test_rendezvous_has_a_deadline():
    run(3, nobody_comes, backend=None, timeout=30)


def left(rank, world_size):
    if rank == 1:
        dist.destroy_process_group()
        time.sleep(2)
        return
    with pytest.raises(dist.DistBackendError, match=r"rank 1 .* has destroyed the group"):
        dist.all_reduce(torch.ones(3, device="neuron"))


def test_a_rank_that_destroyed_its_group_is_named():
    run(2, left, timeout=30)


def aborted(rank, world_size):
    import threading

    backend = dist.distributed_c10d._get_default_group()._get_backend(torch.device("neuron"))
    if rank == 0:
        threading.Timer(0.3, backend.abort).start()
        with pytest.raises(dist.DistBackendError, match="rank 0 aborted"):
            dist.all_reduce(torch.ones(3, device="neuron"))
    else:
        time.sleep(0.6)
        with pytest.raises(dist.DistBackendError, match="rank 0 aborted"):
            dist.all_reduce(torch.ones(3, device="neuron"))


def test_abort_frees_a_waiter_and_breaks_the_group():
    run(2, aborted, timeout=30)


def exit_in_flight(rank, world_size):
    works = [dist.all_reduce(torch.ones(300_000, device="neuron"), async_op=True) for _ in range(3)]
    if rank == 0:
        works.append(dist.irecv(torch.ones(3), 1))  # never sent
    dist.barrier()


def test_works_in_flight_do_not_hold_up_the_end():
    run(2, exit_in_flight, timeout=30)
