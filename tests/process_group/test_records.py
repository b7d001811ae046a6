import json
import pickle
import subprocess
import sys

import torch
import torch.distributed as dist

import neuron_dist
from neuron_dist.timeline import HOST, LINKS, SIMULATED, merge_traces
from tests.harness import run

TRN2 = {"NEURON_SIM_TOPOLOGY": "trn2.48xlarge"}


def dumped(rank, world_size, folder):
    dist.all_reduce(torch.ones(1000, device="neuron"))
    dist.broadcast(torch.ones(10, device="neuron"), 0)
    if rank == 0:
        dist.send(torch.ones(3), 1)
    elif rank == 1:
        dist.recv(torch.ones(3), 0)
    dump = neuron_dist.flight_recorder_dump()
    (folder / f"rank_{rank}").write_bytes(dump)
    return pickle.loads(dump)["entries"]


def test_flight_recorder_is_read_by_torchfrtrace(tmp_path):
    entries = run(2, dumped, tmp_path, env=TRN2)[0]
    names = [entry["profiling_name"] for entry in entries]
    assert names == ["hccl:all_reduce", "hccl:broadcast", "hccl:send 0->1"]
    reduced = entries[0]
    assert reduced["state"] == "completed"
    assert reduced["input_sizes"] == [[1000]]
    assert any("test_records.py" in frame["filename"] for frame in reduced["frames"])
    assert reduced["algorithm"]
    assert reduced["bytes"] == 4000
    # Two neighbours of one chip: each sends half of the sum, and half of the result.
    assert reduced["link_bytes"] == {"intra-chip": 8000}
    assert reduced["simulated_end_us"] > reduced["simulated_start_us"]
    command = [
        sys.executable,
        "-m",
        "torch.distributed.flight_recorder.fr_trace",
        "-p",
        "rank_",
        str(tmp_path),
    ]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert shown.returncode == 0, shown.stderr


def traced(rank, world_size, folder):
    with neuron_dist.trace(folder / f"rank-{rank}.json"):
        dist.all_reduce(torch.ones(1 << 20, device="neuron"))
    dist.all_reduce(torch.ones(1))  # outside


def test_traces_of_the_ranks_merge_into_one_with_two_clocks(tmp_path):
    run(4, traced, tmp_path, env=TRN2)
    merged = merge_traces(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["trace.json"]
    events = [event for event in json.loads(merged.read_text())["traceEvents"] if event["ph"] == "X"]
    for clock in (SIMULATED, HOST):
        mine = [event for event in events if event["pid"] == clock]
        assert sorted(event["tid"] for event in mine) == [0, 1, 2, 3]
        assert {event["name"] for event in mine} == {"all_reduce"}
    simulated = [event for event in events if event["pid"] == SIMULATED]
    assert all(sum(event["args"]["link_bytes"].values()) >= 4 << 20 for event in simulated)
    assert len({(event["ts"], event["dur"]) for event in simulated}) == 1, "the same on every rank"
    links = [event for event in events if event["pid"] == LINKS]
    assert links
    assert all(0 < event["dur"] <= simulated[0]["dur"] for event in links)
