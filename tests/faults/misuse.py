"""Programs that use works, tensors, groups and processes in ways they do not bear."""

import gc
import os
import signal
import threading
import time
import warnings

import pytest
import torch
import torch.distributed as dist

from tests.faults.judge import neuron, wrong

LARGE = 50_000_000  # floats, long under way


@wrong(
    {
        0: r"rank 1 made an invalid call: a tensor changed its shape after all_reduce was called",
        1: r"ValueError: a tensor changed its shape after all_reduce was called with it and before it ran, "
        r"from 4000 bytes to \[10\]; wait\(\) for the collective first",
    },
    quick=True,
)
def tensor_resized_in_flight(rank, size):
    first = dist.all_reduce(neuron(LARGE), async_op=True)
    tensor = neuron(1000)
    second = dist.all_reduce(tensor, async_op=True)
    if rank == 1:
        tensor.resize_(10)
    first.wait()
    second.wait()


@wrong(
    {
        0: None,
        1: r"ValueError: all_reduce: an output tensor .* got other memory while the collective was under way",
    }
)
def tensor_moved_in_flight(rank, size):
    tensor = neuron(LARGE)
    work = dist.all_reduce(tensor, async_op=True)
    if rank == 1:
        time.sleep(0.001)  # under way
        tensor.set_(neuron(5))
    work.wait()


@wrong(
    r"UserWarning: rank \d destroyed group '0' \(ranks 0, 1\) without ever waiting for 2 of its works, the first",
    quick=True,
)
def works_never_waited_for(rank, size):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dist.all_reduce(neuron(3), async_op=True)
        kept = dist.all_reduce(neuron(3), async_op=True)
        dist.barrier()
        gc.collect()
        dist.destroy_process_group()
        del kept


@wrong(r"has been destroyed on this rank|destroyed")
def collective_on_a_destroyed_group(rank, size):
    group = dist.new_group()
    backend = group._get_backend(torch.device("neuron"))
    dist.all_reduce(neuron(3), group=group)
    dist.destroy_process_group(group)
    backend.allreduce([neuron(3)], dist.AllreduceOptions()).wait()


@wrong(r"rank 1 \(pid \d+\) has destroyed the group during collective #1", ranks=2)
def destroyed_on_one_rank(rank, size):
    group = dist.new_group()
    if rank == 1:
        dist.destroy_process_group(group)
        time.sleep(0.5)
        dist.all_reduce(neuron(3))  # the world is broken by nobody
        raise dist.DistBackendError("rank 1 (pid 0) has destroyed the group during collective #1")
    try:
        dist.all_reduce(neuron(3), group=group)
    finally:
        dist.all_reduce(neuron(3))


@wrong(r"the ranks gave different sizes to all_reduce\(SUM, Float\[2\]\): rank 0 2 elements")
def used_after_an_error(rank, size):
    with pytest.raises(dist.DistBackendError, match="different sizes"):
        dist.all_reduce(neuron(2 + rank))
    dist.barrier()


@wrong({0: None, 1: None}, quick=True)
def new_group_after_an_error(rank, size):
    with pytest.raises(dist.DistBackendError, match="different sizes"):
        dist.all_reduce(neuron(2 + rank))
    fresh = dist.new_group()
    tensor = neuron(3)
    dist.all_reduce(tensor, group=fresh)
    assert tensor.tolist() == [2, 2, 2]


@wrong({0: None, 2: None, 3: None}, ranks=4, dead=(1,), within=5)
def survivors_form_a_new_world(rank, size):
    """As torchft does: the ranks that are left give up the broken world and make another."""
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    with pytest.raises(dist.DistBackendError, match=r"rank 1 \(pid \d+\) was killed by SIGKILL"):
        dist.all_reduce(neuron(3))
    store = dist.PrefixStore("again", dist.distributed_c10d._get_default_store())
    dist.destroy_process_group()
    dist.init_process_group("neuron", store=store, rank=[0, 2, 3].index(rank), world_size=3)
    tensor = neuron(3)
    dist.all_reduce(tensor)
    assert tensor.tolist() == [3, 3, 3]


@wrong({0: "rank 0 was interrupted in a collective of group '0'", 1: "rank 0 was interrupted"}, within=3)
def interrupted(rank, size):
    if rank == 1:
        time.sleep(1)
    else:
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            dist.all_reduce(neuron(3))
    dist.all_reduce(neuron(3))


@wrong({0: None, 1: None}, within=4)
def interrupted_while_it_waits_for_a_work(rank, size):
    if rank == 1:
        time.sleep(1)
    work = dist.all_reduce(neuron(3), async_op=True)
    if rank == 0:
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            work.wait()
    work.wait()  # it goes on


@wrong({0: None, 1: None}, within=4)
def signals_are_handled_meanwhile(rank, size):
    handled = []
    signal.signal(signal.SIGUSR2, lambda *_: handled.append(time.monotonic()))
    if rank == 1:
        time.sleep(1)
    else:
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGUSR2)).start()
    dist.all_reduce(neuron(3))
    ended = time.monotonic()
    assert rank == 1 or handled[0] < ended - 0.4


@wrong({0: None, 1: None}, within=5)
def forked_in_the_middle(rank, size):
    work = dist.all_reduce(neuron(1_000_000), async_op=True)
    pid = os.fork()
    if pid == 0:
        try:
            neuron(3)
        except RuntimeError as error:
            os._exit(0 if "fork" in str(error) else 2)
        os._exit(1)
    work.wait()
    dist.barrier()
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


@wrong(r"ValueError: .*(rank 5|group of 2)")
def sent_to_nobody(rank, size):
    dist.distributed_c10d._get_default_group().send([neuron(3)], 5, 0)


@wrong(r"(ValueError|TypeError|RuntimeError|NotImplementedError): ")
def sparse_broadcast(rank, size):
    dist.broadcast(torch.eye(3).to_sparse(), 0)
