"""Faults stated by NEURON_SIM_FAULTS or injected: what the ranks see, the same at every run."""

import itertools
import re
import time
import warnings

import pytest
import torch
import torch.distributed as dist

import neuron_dist
from neuron_dist.faults import FaultError, FaultWarning, inject, stated
from tests.harness import RanksFailed, run

SPEC = {"NEURON_SIM_TOPOLOGY": "torus:2x2"}  # a core per chip
MEGABYTE = 262144  # floats


def faulted(text, **more):
    return {**SPEC, "NEURON_SIM_FAULTS": text, **more}


def all_reduce(elements=8):
    tensor = torch.ones(elements, device="neuron")
    dist.all_reduce(tensor)
    return tensor


def times_and_warnings(rank, world_size, calls, elements):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        times = [0.0]
        for _ in range(calls):
            assert torch.equal(all_reduce(elements).cpu(), torch.full((elements,), float(world_size)))
            times.append(neuron_dist.simulated_time())
    said = [str(warning.message) for warning in caught if issubclass(warning.category, FaultWarning)]
    return [b - a for a, b in itertools.pairwise(times)], said


@pytest.mark.parametrize("change", ["down", "slow=0.25", "late=50"])
def test_a_link_fault_replans_and_says_so_once(change):
    results = run(4, times_and_warnings, 4, MEGABYTE, env=faulted(f"link:0-1:{change}@call=3"))
    times = [result[0] for result in results]
    assert times == [times[0]] * 4
    a, b, c, d = times[0]
    assert a == pytest.approx(b)
    assert c == pytest.approx(d)
    assert c > b
    (said,) = results[0][1]
    assert re.fullmatch(
        rf"link:0-1:{change}: all_reduce of 1048576 bytes now takes \S+ in [\d.]+ us, link bound [\d.]+ us; "
        r"before, \S+ in [\d.]+ us, link bound [\d.]+ us",
        said,
    ), said
    assert [result[1] for result in results[1:]] == [[]] * 3


def out_of_step(rank, world_size):
    """Ranks 0 and 1 meet the fault one collective of the world before the others."""
    pair = dist.new_group([0, 1])
    if rank < 2:
        dist.all_reduce(torch.ones(8, device="neuron"), group=pair)
    ends = []
    for _ in range(3):
        all_reduce(MEGABYTE)
        ends.append(neuron_dist.simulated_time())
    return ends


def test_ranks_that_meet_a_fault_apart_agree_on_time():
    results = run(4, out_of_step, env=faulted("link:0-1:slow=0.1@call=3"))
    assert results == [results[0]] * 4


def at_a_time(rank, world_size):
    for _ in range(20):
        all_reduce(MEGABYTE)
    return neuron_dist.simulated_time()


def test_faults_by_simulated_time():
    sound = run(4, at_a_time, env=SPEC)[0]
    late, early = (
        run(4, at_a_time, env=faulted(f"link:0-1:down@time={sound * part}"))[0] for part in (0.8, 0.2)
    )
    assert sound < late < early


def test_a_chip_down_fails_the_ranks_on_it():
    with pytest.raises(RanksFailed) as failed:
        run(4, times_and_warnings, 4, 8, env=faulted("chip:2:down@call=2"))
    assert set(failed.value.errors) == {0, 1, 2, 3}
    for error in failed.value.errors.values():
        assert re.search(
            r"DistBackendError: rank 2 \(pid \d+\) lost the chip under it \(fault 'chip:2:down", error
        )


def beside_a_dead_chip(rank, world_size):
    left = dist.new_group([0, 1])
    right = dist.new_group([2, 3])
    all_reduce()
    if rank >= 2:
        with pytest.raises(dist.DistBackendError, match=r"rank 2 .* lost the chip"):
            dist.all_reduce(torch.ones(2, device="neuron"), group=right)
    if rank < 2:
        tensor = torch.ones(2, device="neuron")
        dist.all_reduce(tensor, group=left)
        assert tensor.tolist() == [2, 2]
        dist.barrier(left)


def test_groups_elsewhere_go_on_without_the_chip():
    run(4, beside_a_dead_chip, env=faulted("chip:2:down@call=2"))


def delayed(rank, world_size):
    began = time.monotonic()
    all_reduce()
    return time.monotonic() - began, neuron_dist.simulated_time()


def test_a_delay_takes_host_and_simulated_time():
    for host, simulated in run(2, delayed, env=faulted("rank:1:delay=0.4")):
        assert host > 0.3
        assert simulated > 0.4


@pytest.mark.parametrize("point", ["call=2", "inside=2", "after=2"])
def test_a_killed_rank_is_named(point):
    with pytest.raises(RanksFailed) as failed:
        run(3, times_and_warnings, 4, MEGABYTE, env=faulted(f"rank:1:kill@{point}"), timeout=30)
    errors = failed.value.errors
    assert errors.pop(1) == "died of SIGKILL"
    assert set(errors) == {0, 2}
    collective = 3 if point == "after=2" else 2
    for error in errors.values():
        assert re.search(
            rf"rank 1 \(pid \d+\) was killed by SIGKILL during collective #{collective}", error
        ), error


def stopped(rank, world_size):
    import datetime

    dist.init_process_group("neuron", timeout=datetime.timedelta(seconds=1))
    all_reduce()
    if rank == 1:
        all_reduce()
    with pytest.raises(
        dist.DistBackendError, match=r"still waiting for rank 1 \(pid \d+, stopped by a signal"
    ):
        all_reduce()


def test_a_stopped_rank_runs_into_the_timeout():
    with pytest.raises(RanksFailed) as failed:
        run(2, stopped, backend=None, env=faulted("rank:1:stop@call=2"), timeout=30)
    assert set(failed.value.errors) == {1}
    assert "did not end in time" in failed.value.errors[1]


def corrupted(rank, world_size):
    first, second, third = all_reduce(1000).cpu(), all_reduce(1000).cpu(), all_reduce(1000).cpu()
    assert torch.equal(first, third)
    changed = (first.view(torch.int32) ^ second.view(torch.int32)).nonzero()
    return [(int(i), int(first.view(torch.int32)[i] ^ second.view(torch.int32)[i])) for i in changed]


def test_one_bit_is_corrupted_and_the_seed_says_which():
    found = [run(2, corrupted, env=faulted(f"rank:1:corrupt@call=2; seed={seed}")) for seed in (1, 1, 2)]
    for clean, flips in found:
        assert clean == []
        ((_, bits),) = flips
        assert bin(bits & 0xFFFFFFFF).count("1") == 1
    assert found[0] == found[1] != found[2]


def injected(rank, world_size):
    all_reduce(MEGABYTE)
    before = neuron_dist.simulated_time()
    all_reduce(MEGABYTE)
    sound = neuron_dist.simulated_time() - before
    (event,) = inject("link:any:slow=0.1; seed=3")
    assert event in stated()
    times = [neuron_dist.simulated_time()]
    for _ in range(2):
        all_reduce(MEGABYTE)
        times.append(neuron_dist.simulated_time())
    with pytest.raises(FaultError, match="no link between chips 0 and 3"):
        inject("link:0-1:down; link:0-3:down")
    assert len(stated()) == 1
    return times[1] - times[0] > sound, times[2] - times[1] > sound


def test_faults_injected_in_a_running_job_count_from_there():
    assert run(4, injected, env=SPEC) == [(True, True)] * 4


def restarted(rank, world_size):
    all_reduce()
    all_reduce()


def test_rank_faults_strike_the_first_attempt_alone():
    run(2, restarted, env=faulted("rank:1:kill@call=2", TORCHELASTIC_RESTART_COUNT="1"))


def cut_off(rank, world_size):
    all_reduce()
    with pytest.raises(ValueError, match="link:0-"):
        all_reduce()


def test_a_fabric_that_falls_apart_is_an_error_on_all_ranks():
    run(4, cut_off, env=faulted("link:0-1:down@call=2; link:0-2:down@call=2"), timeout=30)
