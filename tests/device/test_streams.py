"""Streams and events: identity, order, the current stream, and simulated time."""

import threading

import pytest
import torch


def test_streams_are_distinct_and_belong_to_a_device():
    first, second = torch.neuron.Stream(), torch.neuron.Stream("neuron:1")
    assert first != second
    assert second.device == torch.device("neuron:1")
    assert isinstance(first, torch.Stream)
    assert isinstance(torch.Stream(device="neuron"), torch.neuron.Stream)
    assert isinstance(first.record_event(), torch.neuron.Event)
    assert torch.Stream(device="neuron:1").device.index == 1


def test_the_current_stream_is_the_default_until_another_is_chosen():
    assert torch.neuron.current_stream() == torch.neuron.default_stream()
    stream = torch.neuron.Stream()
    with torch.neuron.stream(stream) as entered:
        assert entered is stream
        assert torch.neuron.current_stream() == stream
        assert torch.accelerator.current_stream() == stream
        with torch.neuron.stream(None):
            assert torch.neuron.current_stream() == stream
    assert torch.neuron.current_stream() == torch.neuron.default_stream()


def test_a_stream_of_another_device_brings_its_device():
    with torch.neuron.stream(torch.neuron.Stream("neuron:2")):
        assert torch.neuron.current_device() == 2
    assert torch.neuron.current_device() == 0


def test_the_current_stream_and_device_are_per_thread():
    seen = []
    with torch.neuron.device(1), torch.neuron.stream(torch.neuron.Stream(1)):
        thread = threading.Thread(
            target=lambda: seen.append(
                (torch.neuron.current_device(), torch.neuron.current_stream(1).stream_id)
            )
        )
        thread.start()
        thread.join()
    assert seen == [(0, 0)]


def test_events_record_wait_and_complete():
    producer, consumer, event = torch.neuron.Stream(), torch.neuron.Stream(), torch.neuron.Event()
    assert event.query()
    event.record(producer)
    consumer.wait_event(event)
    consumer.wait_stream(producer)
    event.synchronize()
    assert event.query()
    assert producer.query()
    producer.synchronize()
    assert producer.record_event().query()
    torch.neuron.synchronize()


def test_elapsed_time_needs_timing_and_a_recording():
    start, end = torch.neuron.Event(enable_timing=True), torch.neuron.Event(enable_timing=True)
    with pytest.raises(ValueError, match="must be recorded"):
        start.elapsed_time(end)
    start.record()
    end.record()
    assert start.elapsed_time(end) >= 0
    plain = torch.neuron.Event()
    plain.record()
    with pytest.raises(ValueError, match="enable_timing=True"):
        plain.elapsed_time(end)


def test_record_stream_takes_only_its_own_kind():
    tensor = torch.ones(3, device="neuron")
    tensor.record_stream(torch.neuron.Stream())
    torch.accelerator.current_stream()


def test_devices_are_checked():
    with pytest.raises(RuntimeError, match="neuron:64 does not exist: this process sees 64 devices"):
        torch.empty(1, device="neuron:64")
    with pytest.raises(RuntimeError, match="neuron:99 does not exist"):
        torch.neuron.set_device(99)
    with pytest.raises(ValueError, match="expected a neuron device, but got cpu"):
        torch.neuron.set_device("cpu")


def test_accelerator_api():
    assert torch.accelerator.current_accelerator() == torch.device("neuron")
    assert torch.accelerator.device_count() == torch.neuron.device_count() == 64
    torch.accelerator.set_device_index(5)
    assert torch.neuron.current_device() == 5
    torch.neuron.set_device(0)
    assert torch.float32 in torch.accelerator.get_device_capability()["supported_dtypes"]
    assert torch.neuron.get_device_properties(3).total_memory == 24 << 30
