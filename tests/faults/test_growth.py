"""What a long run must not grow: memory of the process, files open, memory of the device."""

import gc
from datetime import timedelta

import psutil
import pytest
import torch
import torch.distributed as dist

from tests.faults.judge import neuron
from tests.harness import run

STEPS = 36_000  # an hour's worth at ten a second
GROUPS = 300
MEGABYTE = 1 << 20


def usage():
    gc.collect()
    me = psutil.Process()
    return me.memory_info().rss, me.num_fds(), torch.neuron.memory_reserved(), me.num_threads()


def step(rank, world_size, number):
    gradient = neuron(1000 + number % 7)
    work = dist.all_reduce(gradient, async_op=True)
    dist.broadcast(neuron(50_000), 0)
    parts = neuron(2 * world_size)
    dist.all_gather_into_tensor(parts, neuron(2))
    work.wait()
    if number % 10 == 0:
        other = neuron(10_000)
        requests = [dist.isend(neuron(10_000), 1 - rank), dist.irecv(other, 1 - rank)]
        for request in requests:
            request.wait()


def many_steps(rank, world_size):
    for number in range(STEPS // 6):
        step(rank, world_size, number)
    before = usage()
    for number in range(STEPS):
        step(rank, world_size, number)
    return before, usage()


@pytest.mark.full
@pytest.mark.timeout(400)
def test_an_hour_of_steps_grows_nothing():
    for before, after in run(2, many_steps, timeout=360):
        assert after[0] - before[0] < 2 * MEGABYTE
        assert after[1:] == before[1:]


def many_groups(rank, world_size):
    def make_and_leave():
        group = dist.new_group(timeout=timedelta(seconds=30))
        dist.all_reduce(neuron(1000), group=group)
        if rank == 0:
            dist.send(neuron(5000), 1, group=group)
        else:
            dist.recv(neuron(5000), 0, group=group)
        dist.destroy_process_group(group)

    for _ in range(GROUPS // 3):
        make_and_leave()
    before = usage()
    for _ in range(GROUPS):
        make_and_leave()
    return before, usage()


@pytest.mark.full
@pytest.mark.timeout(200)
def test_groups_that_come_and_go_leave_nothing():
    for before, after in run(2, many_groups, timeout=180):
        assert after[0] - before[0] < 6 * MEGABYTE
        assert after[1:] == before[1:]
