"""Saving, loading, copying and pinning."""

import copy
import io
import pickle

import pytest
import torch


def save_and_load(value: object, **options: object) -> object:
    buffer = io.BytesIO()
    torch.save(value, buffer)
    buffer.seek(0)
    return torch.load(buffer, **options)


@pytest.mark.parametrize("where", [None, "cpu", "neuron:2"])
def test_load_puts_tensors_where_they_were_or_are_wanted(where):
    tensor = torch.arange(5.0, device="neuron:1")
    loaded = save_and_load({"t": tensor}, map_location=where)["t"]
    assert loaded.device == torch.device(where or "neuron:1")
    assert torch.equal(loaded.cpu(), tensor.cpu())


def test_host_tensors_load_onto_the_device():
    assert save_and_load(torch.ones(3), map_location="neuron").device == torch.device("neuron:0")


def test_views_share_after_loading():
    base = torch.zeros(4, device="neuron")
    loaded, view = save_and_load([base, base[:2]])
    view.fill_(1)
    assert loaded.tolist() == [1, 1, 0, 0]


def test_deepcopy_and_pickle():
    parameter = torch.nn.Parameter(torch.ones(3, device="neuron"))
    for twin in (copy.deepcopy(parameter), pickle.loads(pickle.dumps(parameter))):
        assert twin.device == parameter.device
        assert torch.equal(twin, parameter)
        assert twin.data_ptr() != parameter.data_ptr()


def test_methods_named_after_the_device():
    tensor = torch.ones(3).neuron()
    assert tensor.is_neuron
    assert not tensor.cpu().is_neuron
    assert torch.ones(3).neuron(2).device.index == 2
    assert tensor.untyped_storage().is_neuron


def test_pinned_memory():
    plain = torch.arange(8.0)
    assert not plain.is_pinned()
    pinned = plain.pin_memory()
    assert pinned.is_pinned()
    assert pinned[3:].is_pinned()
    assert torch.equal(pinned.to("neuron", non_blocking=True).cpu(), plain)
    assert torch.empty(3, pin_memory=True).is_pinned()


def test_pinned_memory_is_host_memory_that_nothing_caches():
    before = torch.neuron.memory_allocated()
    held = torch.empty(1 << 20, pin_memory=True)
    assert torch.neuron.memory_allocated() == before
    torch.accelerator.empty_host_cache()
    assert held.is_pinned()


def test_a_data_loader_pins_and_its_workers_stay_on_the_host():
    data = torch.utils.data.TensorDataset(torch.arange(12.0))
    loader = torch.utils.data.DataLoader(data, batch_size=4, num_workers=2, pin_memory=True)
    batches = [batch for (batch,) in loader]
    assert all(batch.is_pinned() for batch in batches)
    assert torch.cat([batch.to("neuron") for batch in batches]).tolist() == list(range(12))


def test_numpy_needs_the_host():
    with pytest.raises(TypeError, match="can't convert neuron:0 device type tensor to numpy"):
        torch.ones(3, device="neuron").numpy()
