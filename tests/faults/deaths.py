"""Ranks that die. The others learn who, which process and how, within a second."""

import ctypes
import os
import signal
import sys
import threading
import time

import torch
import torch.distributed as dist

from tests.faults.judge import neuron, wrong

LARGE = 4_000_000  # floats
SOON = 0.3  # when the rank dies; its death must be told a second later
WITHIN = SOON + 1.0


def die(how):
    time.sleep(SOON)
    if isinstance(how, signal.Signals):
        os.kill(os.getpid(), how)
        time.sleep(5)
    how()


def killed(death, **more):
    return wrong(
        rf"DistBackendError: .*rank 1 \(pid \d+\) {death}", dead=(1,), within=WITHIN, ranks=3, **more
    )


@killed("was killed by SIGKILL during collective #1", quick=True)
def before_a_collective(rank, size):
    if rank == 1:
        die(signal.SIGKILL)
    dist.all_reduce(neuron(3))


@killed("was killed by SIGSEGV")
def of_a_bad_pointer(rank, size):
    if rank == 1:
        die(lambda: ctypes.string_at(0))
    dist.all_reduce(neuron(3))


@killed("was killed by SIGABRT")
def of_an_abort(rank, size):
    if rank == 1:
        die(os.abort)
    dist.all_reduce(neuron(3))


@killed("(has exited|exited with code 0)")
def leaving_quietly(rank, size):
    if rank == 1:
        die(lambda: os._exit(0))
    dist.all_reduce(neuron(3))


@killed("(has exited|exited with code 3)")
def leaving_with_a_code(rank, size):
    if rank == 1:
        die(lambda: os._exit(3))
    dist.barrier()


@wrong(
    r"rank 1 \(pid \d+\) (has destroyed the group|has exited|exited with code [01])",
    dead=(1,),
    within=WITHIN,
    ranks=3,
)
def of_sys_exit(rank, size):
    if rank == 1:
        die(sys.exit)
    dist.all_reduce(neuron(3))


@wrong(
    {0: "rank 1 .* (has|exited)", 1: "ZeroDivisionError", 2: "rank 1 "},
    ranks=3,
    within=WITHIN,
)
def of_an_exception(rank, size):
    if rank == 1:
        time.sleep(SOON)
        try:
            1 / 0  # noqa: B018
        finally:
            dist.destroy_process_group()
    dist.all_reduce(neuron(3))


@killed(
    "was killed by SIGKILL during collective #1 ",
    env={"NEURON_SIM_FAULTS": "rank:1:kill@inside=1"},
    quick=True,
)
def inside_a_collective(rank, size):
    dist.all_reduce(neuron(LARGE))


@killed("was killed by SIGKILL during collective #2 ", env={"NEURON_SIM_FAULTS": "rank:1:kill@after=1"})
def after_a_collective(rank, size):
    dist.all_reduce(neuron(LARGE))
    dist.all_reduce(neuron(LARGE))


@killed("was killed by SIGKILL")
def while_others_wait_for_works(rank, size):
    works = [dist.all_reduce(neuron(3), async_op=True) for _ in range(3)]
    if rank == 1:
        die(signal.SIGKILL)
    works.append(dist.all_reduce(neuron(3), async_op=True))
    for work in works:
        work.wait()


@killed("was killed by SIGKILL")
def while_others_receive(rank, size):
    if rank == 1:
        die(signal.SIGKILL)
    dist.recv(neuron(3), 1)


@killed("was killed by SIGKILL")
def inside_a_send(rank, size):
    if rank == 1:
        threading.Timer(SOON, os.kill, (os.getpid(), signal.SIGKILL)).start()
        dist.send(neuron(LARGE), 0)  # nobody takes it
    time.sleep(SOON)
    dist.all_reduce(neuron(3))


@killed("was killed by SIGKILL")
def while_others_send(rank, size):
    if rank == 1:
        die(signal.SIGKILL)
    dist.send(neuron(LARGE), 1)


@killed("was killed by SIGKILL while group '1' was made", quick=True)
def while_a_group_is_made(rank, size):
    if rank == 1:
        die(signal.SIGKILL)
    dist.new_group()


@wrong({0: None, 2: None}, ranks=3, dead=(1,), within=WITHIN + 1)
def while_groups_are_destroyed(rank, size):
    dist.all_reduce(neuron(LARGE), async_op=True).wait()
    if rank == 1:
        threading.Timer(0.001, os.kill, (os.getpid(), signal.SIGKILL)).start()
    dist.destroy_process_group()
    time.sleep(SOON)


@killed("was killed by SIGKILL")
def in_a_subgroup_of_two(rank, size):
    pair = dist.new_group([0, 1])
    other = dist.new_group([1, 2])
    if rank == 1:
        die(signal.SIGKILL)
    dist.all_reduce(neuron(3), group=pair if rank == 0 else other)


@wrong(
    r"waited for a signal of rank 1, whose process \d+ was killed by SIGKILL",
    dead=(1,),
    within=WITHIN,
    ranks=3,
)
def in_a_symmetric_memory(rank, size):
    import torch.distributed._symmetric_memory as symm_mem

    tensor = symm_mem.empty(1024, device="neuron")
    handle = symm_mem.rendezvous(tensor, dist.group.WORLD)
    if rank == 1:
        die(signal.SIGKILL)
    handle.barrier()
    torch.neuron.synchronize()
