"""The harness itself, on gloo: what it returns, and that it reports and ends ranks that fail."""

import os
import signal
import time
from pathlib import Path

import psutil
import pytest
import torch
import torch.distributed as dist

from tests.harness import RanksFailed, run


def summed(rank: int, world_size: int, scale: int) -> torch.Tensor:
    tensor = torch.tensor([rank * scale])
    dist.all_reduce(tensor)
    assert dist.get_world_size() == world_size == int(os.environ["WORLD_SIZE"])
    return tensor


def test_results_come_in_rank_order():
    assert run(4, summed, 10, backend="gloo") == [torch.tensor([60])] * 4


def variable(rank: int, world_size: int) -> tuple[int, str, bool]:
    return rank, os.environ["NEURON_SIM_TEST"], dist.is_initialized()


def test_extra_variables_without_a_group():
    assert run(2, variable, backend=None, env={"NEURON_SIM_TEST": "x"}) == [(0, "x", False), (1, "x", False)]


def rank_1_raises(rank: int, world_size: int) -> int:
    if rank == 1:
        raise ValueError("the culprit")
    return rank


def test_an_exception_names_its_rank_and_keeps_the_other_results():
    with pytest.raises(RanksFailed, match=r"(?s)rank 1.*rank_1_raises.*ValueError: the culprit") as failed:
        run(3, rank_1_raises, backend="gloo")
    assert list(failed.value.errors) == [1]
    assert failed.value.results == {0: 0, 2: 2}


def rank_0_is_killed(rank: int, world_size: int) -> None:
    if rank == 0:
        os.kill(os.getpid(), signal.SIGKILL)


def test_a_killed_rank_is_named_with_its_signal():
    with pytest.raises(RanksFailed, match="rank 0 ---\ndied of SIGKILL"):
        run(2, rank_0_is_killed, backend=None)


def rank_1_hangs(rank: int, world_size: int, pid_file: Path) -> None:
    if rank == 1:
        pid_file.write_text(str(os.getpid()))
        time.sleep(600)


def test_a_hung_rank_is_killed_and_its_stack_shown(tmp_path):
    pid_file = tmp_path / "pid"
    with pytest.raises(RanksFailed, match=r"(?s)rank 1 ---\ndid not end in time.*in rank_1_hangs") as failed:
        run(2, rank_1_hangs, pid_file, backend=None, timeout=5)
    assert list(failed.value.errors) == [1]
    assert not psutil.pid_exists(int(pid_file.read_text()))
