"""Ranks that do not come, for whatever reason: the timeout of the group, or of the call, and who is missing."""

import os
import signal
import threading
import time
from datetime import timedelta

import torch.distributed as dist

from tests.faults.judge import neuron, wrong

MISSING = r"reached its timeout of 1000 ms: still waiting for rank 1 \(pid \d+"


def late(says, **more):
    return wrong({0: says, 1: None}, group_timeout=1, within=4.5, **more)


@late(
    rf"collective #2 of group '0' \(ranks 0, 1\) {MISSING}, last call #1 all_reduce\(SUM, Float\[3\]\)\) to start it",
    quick=True,
)
def stuck_elsewhere(rank, size):
    dist.all_reduce(neuron(3))
    if rank == 1:
        time.sleep(3)
        return
    dist.all_reduce(neuron(3))


@late(rf"{MISSING}, no call yet\)")
def never_started(rank, size):
    if rank == 1:
        time.sleep(3)
        return
    dist.barrier()


@late(rf"{MISSING}, stopped by a signal, last call #1")
def stopped(rank, size):
    dist.all_reduce(neuron(3))
    if rank == 1:
        pid = os.getpid()
        if os.fork() == 0:  # who wakes it again
            time.sleep(3)
            os.kill(pid, signal.SIGCONT)
            os._exit(0)
        os.kill(pid, signal.SIGSTOP)
        return
    dist.all_reduce(neuron(3))


@late(r"recv.*timeout of 1000 ms|reached its timeout of 1000 ms")
def never_sent(rank, size):
    if rank == 1:
        time.sleep(3)
        return
    dist.recv(neuron(3), 1)


@late(r"reached its timeout of 1000 ms")
def never_received(rank, size):
    if rank == 1:
        time.sleep(3)
        return
    dist.send(neuron(4_000_000), 1)


@late(MISSING)
def async_work(rank, size):
    if rank == 1:
        time.sleep(3)
        return
    dist.all_reduce(neuron(3), async_op=True).wait()


@wrong(
    {0: r"timed out after 1000 ms while the group was made: rank\(s\) 1 of 2 did not come", 1: None},
    within=4.5,
)
def rendezvous(rank, size):
    if rank == 1:
        time.sleep(3)
        return
    dist.new_group(timeout=timedelta(seconds=1))


@wrong({0: None, 1: r"rank 1 heard nothing of rank 0 within 1000 ms while the group was made"}, within=4.5)
def rendezvous_without_rank_0(rank, size):
    if rank == 0:
        time.sleep(3)
        return
    dist.new_group(timeout=timedelta(seconds=1))


@wrong({0: rf"{MISSING}, .*, rank 2 \(pid \d+", 1: None, 2: None}, ranks=3, group_timeout=1, within=4.5)
def two_that_do_not_come(rank, size):
    if rank > 0:
        time.sleep(3)
        return
    dist.barrier()


@wrong({0: "rank 0 aborted group '0'", 1: "rank 0 aborted group '0'"}, within=2)
def aborted_by_a_thread(rank, size):
    backend = dist.distributed_c10d._get_default_group()._get_backend(neuron(1).device)
    if rank == 1:
        time.sleep(0.6)
    else:
        threading.Timer(0.3, backend.abort).start()
    dist.all_reduce(neuron(3))
