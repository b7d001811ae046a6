"""Snapshots of device memory and its history, and torch's own readers of them."""

import pickle

import pytest
import torch
from torch.cuda import _memory_viz

from tests.device.helpers import output_of

MIB = 1 << 20
DEVICE = 6


def empty(size: int) -> torch.Tensor:
    return torch.empty(size, dtype=torch.uint8, device=f"neuron:{DEVICE}")


@pytest.fixture(autouse=True)
def _fresh():
    torch.neuron.empty_cache()
    yield
    torch.neuron.memory._record_memory_history(None, clear_history=True)


def events() -> list[dict]:
    return torch.neuron.memory._snapshot()["device_traces"][DEVICE]


def functions(entry: dict) -> list[str]:
    return [frame["name"] for frame in entry["frames"]]


def segments() -> list[dict]:
    return [segment for segment in torch.neuron.memory_snapshot() if segment["device"] == DEVICE]


def test_segments_hold_what_the_statistics_say():
    held = [empty(size) for size in (100, 3 * MIB, 30 * MIB)]
    del held[1]
    total = {
        key: sum(segment[key] for segment in segments()) for key in segments()[0] if key.endswith("_size")
    }
    statistics = torch.neuron.memory_stats(DEVICE)
    assert total == {
        "total_size": torch.neuron.memory_reserved(DEVICE),
        "allocated_size": torch.neuron.memory_allocated(DEVICE),
        "active_size": torch.neuron.memory_allocated(DEVICE),
        "requested_size": statistics["requested_bytes.all.current"],
    }
    assert sorted(segment["segment_type"] for segment in segments()) == ["large", "large", "small"]
    for segment in segments():
        address = segment["address"]
        for block in segment["blocks"]:
            assert block["address"] == address
            address += block["size"]
        assert address == segment["address"] + segment["total_size"]


def test_a_tensors_life_is_recorded_with_where_it_happened():
    torch.neuron.memory._record_memory_history()

    def make() -> torch.Tensor:
        return empty(3 * MIB)

    tensor = make()
    address = tensor.data_ptr()
    block = next(b for segment in segments() for b in segment["blocks"] if b["address"] == address)
    assert block["state"] == "active_allocated"
    assert "make" in functions(block)

    def drop() -> None:
        nonlocal tensor
        del tensor

    drop()
    torch.neuron.empty_cache()
    recorded = events()
    assert [event["action"] for event in recorded] == [
        "segment_alloc", "alloc", "free_requested", "free_completed", "segment_free",
    ]  # fmt: skip
    assert [event["size"] for event in recorded] == [20 * MIB, 3 * MIB, 3 * MIB, 3 * MIB, 20 * MIB]
    assert all(event["addr"] == address for event in recorded)
    times = [event["time_us"] for event in recorded]
    assert times == sorted(times)
    assert "make" in functions(recorded[1])
    assert "drop" in functions(recorded[2])
    assert recorded[1]["frames"][0]["filename"] == __file__


def test_outputs_of_operators_name_the_caller():
    tensor = empty(100)
    torch.neuron.memory._record_memory_history()

    def double() -> torch.Tensor:
        return tensor + tensor

    double()
    assert ["double" in functions(event) for event in events() if event["action"] == "alloc"] == [True]


@pytest.mark.parametrize(
    ("context", "with_stacks"),
    [(None, []), ("state", []), ("alloc", ["alloc"]), ("all", ["alloc", "free_requested", "free_completed"])],
)
def test_context_says_whose_stacks_are_kept(context, with_stacks):
    kept = empty(100)  # so that the segment is there
    torch.neuron.memory._record_memory_history(context=context)
    tensor = empty(100)
    blocks = [block for segment in segments() for block in segment["blocks"]]
    assert any(block["frames"] for block in blocks) == (context is not None)
    del tensor
    assert [event["action"] for event in events() if event["frames"]] == with_stacks
    del kept


def test_only_the_newest_events_are_kept_and_only_while_recording():
    torch.neuron.memory._record_memory_history(context=None, max_entries=3)
    for size in (1000, 2000, 3000):
        empty(size)
    assert [event["size"] for event in events()] == [3072] * 3
    torch.neuron.memory._record_memory_history(None)
    empty(4000)
    assert [event["size"] for event in events()] == [3072] * 3
    torch.neuron.memory._record_memory_history("state", clear_history=True)
    empty(5000)
    assert events() == []


def test_running_out_is_an_event():
    torch.neuron.memory._record_memory_history(context=None)
    with pytest.raises(torch.OutOfMemoryError):
        empty(1 << 40)
    event = events()[-1]
    assert (event["action"], event["size"]) == ("oom", 1 << 40)
    assert event["device_free"] == torch.neuron.mem_get_info(DEVICE)[0]


def test_cpp_frames_can_be_asked_for():
    code = """
        import torch
        torch.neuron.memory._record_memory_history(stacks="all")
        tensor = torch.ones(4, device="neuron")
        entry = torch.neuron.memory._snapshot()["device_traces"][0][-1]
        names = [frame["name"] for frame in entry["frames"]]
        print("neuron::Heap::allocate(unsigned long)" in names, "<module>" in names)
    """
    assert output_of(code, TORCH_SYMBOLIZE_MODE="fast") == "True True"


@pytest.mark.parametrize(
    "wrong", [{"enabled": "some"}, {"context": "none"}, {"stacks": "cpp"}, {"max_entries": -1}]
)
def test_wrong_settings_are_refused(wrong):
    with pytest.raises(ValueError, match=repr(next(iter(wrong.values())))):
        torch.neuron.memory._record_memory_history(**wrong)


def test_torchs_viewer_reads_a_dumped_snapshot(tmp_path):
    torch.neuron.memory._record_memory_history()
    held = [empty(2 * MIB), empty(30 * MIB)]
    empty(100)
    with pytest.raises(torch.OutOfMemoryError):
        empty(1 << 40)
    torch.neuron.memory._dump_snapshot(str(tmp_path / "memory.pickle"))
    snapshot = pickle.loads((tmp_path / "memory.pickle").read_bytes())
    assert "30.0MiB allocated, 0.0B free" in _memory_viz.segsum(snapshot)
    assert "OutOfMemoryError # 1.0TiB" in _memory_viz.trace(snapshot)
    lines = _memory_viz.memory(snapshot, format_flamegraph=lambda text: text).splitlines()
    assert any(
        "test_torchs_viewer_reads_a_dumped_snapshot" in line and line.endswith(str(30 * MIB))
        for line in lines
    )
    for plot in (_memory_viz.trace_plot, _memory_viz.segment_plot):
        assert "MemoryViz.js" in plot(snapshot)
    del held
