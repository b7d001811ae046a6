"""The checking mode, NEURON_SIM_CHECK=1: what it finds, and that it changes no result."""

import time

import pytest
import torch
import torch.distributed as dist

from neuron_dist import _C
from tests.faults.judge import neuron
from tests.faults.soak import play
from tests.harness import RanksFailed, run

CHECK = {"NEURON_SIM_CHECK": "1"}


def gives_nan(rank, world_size, call):
    tensor = neuron(4, 5)
    if rank == 1:
        tensor[2, 3] = tensor[3, 0] = float("nan")
    calls = {
        "all_reduce": lambda: dist.all_reduce(tensor),
        "all_gather": lambda: dist.all_gather_into_tensor(neuron(8, 5), tensor),
        "send": lambda: dist.send(tensor, 0) if rank == 1 else dist.recv(tensor, 1),
    }
    calls[call]()


@pytest.mark.parametrize("call", ["all_reduce", "all_gather", "send"])
def test_nan_is_named_by_rank_tensor_and_index(call):
    with pytest.raises(RanksFailed) as failed:
        run(2, gives_nan, call, env=CHECK, timeout=30)
    own = failed.value.errors[1]
    assert "ValueError: " in own
    assert "of rank 1 (Float [4, 5]) has a NaN at index [2, 3], the first of 2" in own
    if call != "send":
        assert "rank 1 made an invalid call: " in failed.value.errors[0]


def reads_too_early(rank, world_size):
    output = torch.zeros(2_000, device="neuron")
    work = dist.all_gather_into_tensor(output, neuron(1_000), async_op=True)
    early = output.clone()
    work.wait()
    return early.isnan().all().item(), output.cpu()


def test_who_reads_before_wait_reads_nan():
    for early, output in run(2, reads_too_early, env=CHECK, timeout=30):
        assert early
        assert torch.equal(output, torch.ones(2_000))


def nobody_waits(rank, world_size):
    tensor = neuron(3)
    work = dist.all_reduce(tensor, async_op=True)
    time.sleep(0.5)
    return work.is_completed()


def test_what_nobody_waits_for_still_runs():
    assert run(2, nobody_waits, env=CHECK, timeout=30) == [True, True]


def overlapping(rank, world_size, call):
    tensor = neuron(8)
    calls = {
        "all_to_all": lambda: dist.all_to_all_single(tensor, tensor),
        "all_gather": lambda: dist.all_gather_into_tensor(tensor, tensor[4 - 4 * rank : 8 - 4 * rank]),
        "shifted": lambda: dist.all_gather_into_tensor(tensor, tensor[2:6]),
    }
    with pytest.raises(ValueError, match=r"of this rank overlaps its input \d, which other ranks may read"):
        calls[call]()


@pytest.mark.parametrize("call", ["all_to_all", "all_gather", "shifted"])
def test_overlapping_buffers(call):
    run(2, overlapping, call, env=CHECK, timeout=30)


def in_place(rank, world_size):
    everything = torch.arange(8.0, device="neuron")
    own = everything[4 * rank : 4 * rank + 4]
    own += rank
    dist.all_gather_into_tensor(everything, own)
    dist.reduce_scatter_tensor(own, everything)
    dist.all_reduce(everything)
    return everything.cpu()


def test_in_place_is_allowed_and_nothing_changes():
    checked, plain = run(2, in_place, env=CHECK, timeout=30), run(2, in_place, timeout=30)
    assert torch.equal(torch.stack(checked), torch.stack(plain))


def refused(rank, world_size):
    dist.init_process_group("neuron")


def test_other_values_are_refused():
    with pytest.raises(RanksFailed) as failed:
        run(1, refused, backend=None, env={"NEURON_SIM_CHECK": "yes"}, timeout=30)
    assert "NEURON_SIM_CHECK='yes': expected 1" in failed.value.errors[0]


@pytest.mark.timeout(150)
def test_random_jobs():
    """A few of `make soak`'s."""
    total = play(3) + play(7) + play(11)
    assert total["jobs"] == 3
    assert total["collectives"] > 100


# An all_reduce of 16 bytes on two ranks: each sums its half of the bytes and writes it to both.
def halves(sources=((0, 0), (1, 0)), begin=8, width=8, to=((0, 0), (1, 0))):
    first = [(8, [(0, 0, 0), (1, 0, 0)], [(0, 0, 0), (1, 0, 0)])]
    second = [(width, [(r, s, begin) for r, s in sources], [(r, s, begin) for r, s in to])]
    return [first, second]


def check(programs):
    _C.check_programs(_C.Op.all_reduce, [16], [16], programs)


def test_a_right_program_passes():
    check(halves())


@pytest.mark.parametrize(
    ("programs", "said"),
    [
        (halves(width=16), "reads bytes 8 to 24 of segment 0 of rank 0, outside of it"),
        (halves(to=((0, 1), (1, 0))), "writes bytes 8 to 16 of segment 1 of rank 0, outside of it"),
        (halves(begin=4), "writes byte 4 of segment 0 of rank 0 twice, on ranks 0 and 1"),
        (halves(to=((0, 0),)), "writes 24 of 32 bytes of output"),
        ([[(16, [(0, 0, 0), (1, 0, 0)], [(0, 0, 0)])], [(16, [(0, 0, 0), (1, 0, 0)], [(1, 0, 0)])]],
         "on rank 0 reads byte 0 of rank 1, which rank 1 writes"),
    ],
    ids=["read out of bounds", "no such segment", "written twice", "not all written", "race"],
)  # fmt: skip
def test_wrong_programs_are_refused(programs, said):
    with pytest.raises(RuntimeError, match=said):
        check(programs)
