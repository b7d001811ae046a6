"""Collectives take the time that the schedule costs on the job's topology, the same on every rank."""

import pytest
import torch
import torch.distributed as dist
from neuron_dist.collectives import build, price
from neuron_dist.topology import Group, load

import neuron_dist
from neuron_dist import _C
from tests.harness import run

TRN2 = {"NEURON_SIM_TOPOLOGY": "trn2.48xlarge"}


def options(**fields):
    return _C.ProcessGroupNeuron.Options(**fields)


def priced(algorithm, size, ranks, op="all_reduce", topology="trn2.48xlarge"):
    group = Group(load(topology), range(ranks))
    return price(build(op, algorithm, group), group, size).time_us


def prices(rank, world_size):
    ring = dist.new_group(pg_options=options(algorithm="ring"))
    tensor = torch.zeros(1 << 18, device="neuron")
    start, end = (torch.neuron.Event(enable_timing=True) for _ in range(2))
    start.record()
    dist.all_reduce(tensor, group=ring)
    end.record()
    expected = priced("ring", 1 << 20, world_size)
    assert abs(start.elapsed_time(end) * 1e3 - expected) < 1e-6 * expected
    before = neuron_dist.simulated_time()
    dist.all_gather_into_tensor(
        torch.empty(world_size * 1000, device="neuron"), torch.empty(1000, device="neuron")
    )
    assert neuron_dist.simulated_time() > before
    return neuron_dist.simulated_time()


def test_every_rank_reports_the_price_of_the_schedule():
    times = run(4, prices, env=TRN2)
    assert len(set(times)) == 1, times


def late_arrival(rank, world_size):
    if rank == 1:
        lonely = torch.neuron.current_stream()
        dist.all_reduce(torch.zeros(1 << 20, device="neuron"), group=dist.new_group([1, 2]))
        assert lonely == torch.neuron.current_stream()
    elif rank == 2:
        dist.all_reduce(torch.zeros(1 << 20, device="neuron"), group=dist.new_group([1, 2]))
    else:
        dist.new_group([1, 2])
    ahead = neuron_dist.simulated_time()
    dist.all_reduce(torch.zeros(1, device="neuron"))
    return ahead, neuron_dist.simulated_time()


def test_a_collective_starts_at_its_last_arrival():
    results = run(3, late_arrival, env=TRN2)
    assert results[0][0] == 0
    assert results[1][0] > 0
    ends = {end for _, end in results}
    assert len(ends) == 1
    assert ends.pop() > results[1][0]


def asynchronous(rank, world_size):
    begin = neuron_dist.simulated_time()
    works = [dist.all_reduce(torch.zeros(1 << 16, device="neuron"), async_op=True) for _ in range(2)]
    assert neuron_dist.simulated_time() == begin, "the issuing stream goes on"
    works[0].wait()
    first = neuron_dist.simulated_time()
    works[1].wait()
    second = neuron_dist.simulated_time()
    assert begin < first < second, "collectives of one group follow each other"
    assert abs((second - begin) - 2 * (first - begin)) < 1e-9


def test_async_works_hold_only_who_waits():
    run(2, asynchronous, env=TRN2)


def point_to_point(rank, world_size):
    for count in (10, 100_000):
        tensor = torch.zeros(count, device="neuron")
        if rank == 0:
            dist.send(tensor, 1)
        else:
            dist.recv(tensor, 0)
    return neuron_dist.simulated_time()


def test_send_and_recv_take_time():
    sender, receiver = run(2, point_to_point, env=TRN2)
    assert 0 < sender == receiver


def estimates(rank, world_size):
    tensor = torch.ones(1 << 18, device="neuron")
    before = neuron_dist.simulated_time()
    with dist._time_estimator() as estimator:
        dist.all_reduce(tensor)
        dist.all_reduce(tensor)
    assert tensor.unique().tolist() == [1.0], "nothing runs"
    assert neuron_dist.simulated_time() == before
    dist.all_reduce(tensor)
    once = (neuron_dist.simulated_time() - before) * 1e6
    assert abs(estimator.estimated_time - 2 * once) < 1e-6 * once


def test_time_estimator():
    run(2, estimates, env=TRN2)


def topology_matters(rank, world_size):
    times = []
    for spec in ("ring:4@128", "ring:4@32"):
        group = dist.new_group(pg_options=options(topology=spec, algorithm="ring"))
        before = neuron_dist.simulated_time()
        dist.all_reduce(torch.zeros(1 << 20, device="neuron"), group=group)
        times.append(neuron_dist.simulated_time() - before)
    assert times[1] > 2 * times[0]


def test_slower_links_take_longer():
    run(4, topology_matters)


def by_size(rank, world_size):
    algorithm = "all_reduce=mesh:0-64K;ring:64K-"
    group = dist.new_group(pg_options=options(algorithm=algorithm))
    for count, name in ((256, "mesh"), (1 << 18, "ring")):
        dist.all_reduce(torch.zeros(count, device="neuron"), group=group)
        assert _C.records()[-1].algorithm == name


def test_selection_string_chooses_by_size():
    run(4, by_size, env=TRN2)


def unknown_algorithm(rank, world_size):
    for fields, message in (
        ({"algorithm": "quicksort"}, "quicksort"),
        ({"topology": "trn9.huge"}, "trn9.huge"),
        ({"reduction": "sloppy"}, "reduction='sloppy': expected one of schedule, exact"),
        ({"topology": "ring:2"}, "has 2 cores, too few for a job of 3 ranks"),
    ):
        with pytest.raises(ValueError, match=message):
            dist.new_group(pg_options=options(**fields))


def test_options_that_make_no_sense_are_refused():
    run(3, unknown_algorithm, timeout=30)
