"""Operators run torch's CPU kernels in place: same values, results on the device, arguments checked."""

import pytest
import torch


def both(*shape: int) -> tuple[torch.Tensor, torch.Tensor]:
    cpu = torch.randn(*shape, generator=torch.Generator().manual_seed(0))
    return cpu, cpu.to("neuron")


def test_in_place_returns_its_argument():
    tensor = torch.ones(3, device="neuron")
    assert tensor.add_(1) is tensor
    assert tensor.tolist() == [2, 2, 2]


def test_out_is_written_and_returned():
    cpu, tensor = both(4)
    out = torch.empty(4, device="neuron")
    address = out.data_ptr()
    assert torch.add(tensor, 1, out=out) is out
    assert out.data_ptr() == address
    assert torch.equal(out.cpu(), cpu + 1)


def test_out_grows_with_its_storage():
    cpu, tensor = both(100, 100)
    out = torch.empty(0, device="neuron")
    torch.mul(tensor, 2, out=out)
    assert out.shape == (100, 100)
    assert out.untyped_storage().nbytes() == 40000
    assert out.untyped_storage().device.type == "neuron"
    assert torch.equal(out.cpu(), cpu * 2)


def test_out_of_several_results():
    cpu, tensor = both(5, 6)
    values, indices = torch.empty(0, device="neuron"), torch.empty(0, dtype=torch.long, device="neuron")
    torch.max(tensor, 1, out=(values, indices))
    expected = torch.max(cpu, 1)
    assert torch.equal(values.cpu(), expected.values)
    assert torch.equal(indices.cpu(), expected.indices)


def test_resize_keeps_contents_and_shares_storage():
    tensor = torch.arange(6.0, device="neuron")
    view = tensor[:2]
    tensor.resize_(1000)
    assert tensor[:6].tolist() == [0, 1, 2, 3, 4, 5]
    assert view.untyped_storage().data_ptr() == tensor.untyped_storage().data_ptr()
    assert view.tolist() == [0, 1]


def test_set_shares_the_storage_of_another():
    source, tensor = torch.arange(6.0, device="neuron"), torch.empty(0, device="neuron")
    tensor.set_(source)
    tensor[0] = 9
    assert source[0] == 9
    tensor.set_(source.untyped_storage(), 2, (2,), (1,))
    assert tensor.tolist() == [2, 3]
    tensor.set_()
    assert tensor.numel() == 0
    assert tensor.device.type == "neuron"


def test_storage_resizes_to_nothing_and_back():
    tensor = torch.ones(1024, device="neuron")
    before = torch.neuron.memory_allocated()
    tensor.untyped_storage().resize_(0)
    assert before - torch.neuron.memory_allocated() == 4096
    tensor.untyped_storage().resize_(4096)
    tensor.fill_(3)
    assert tensor.sum().item() == 3072


def test_the_same_tensor_twice():
    cpu, tensor = both(4, 4)
    assert torch.equal((tensor @ tensor).cpu(), cpu @ cpu)
    tensor.add_(tensor)
    assert torch.equal(tensor.cpu(), cpu + cpu)


def test_overlap_with_out_is_refused_as_on_cpu():
    tensor = torch.arange(6.0, device="neuron")
    with pytest.raises(RuntimeError, match="unsupported operation"):
        torch.add(tensor[:5], 1, out=tensor[1:])


def test_lists_of_tensors():
    cpu, tensor = both(3, 2)
    assert torch.equal(torch.cat([tensor, tensor]).cpu(), torch.cat([cpu, cpu]))
    mine, theirs = [tensor.clone(), tensor.clone()], [cpu.clone(), cpu.clone()]
    torch._foreach_mul_(mine, 2)
    torch._foreach_mul_(theirs, 2)
    assert all(torch.equal(a.cpu(), b) for a, b in zip(mine, theirs, strict=True))
    assert all(t.device.type == "neuron" for t in torch._foreach_add(mine, 1))


def test_scalars_of_the_host_join_in():
    cpu, tensor = both(3)
    assert torch.equal((tensor * torch.tensor(2.0)).cpu(), cpu * 2)
    assert (tensor.half() * 2.0).dtype == torch.float16
    assert torch.equal((1 - tensor).cpu(), 1 - cpu)


@pytest.mark.parametrize(
    "call",
    [
        lambda cpu, neuron: cpu + neuron,
        lambda cpu, neuron: neuron + cpu,
        lambda cpu, neuron: neuron @ cpu,
        lambda cpu, neuron: neuron.add_(cpu),
        lambda cpu, neuron: cpu.add_(neuron),
        lambda cpu, neuron: torch.cat([neuron, cpu]),
        lambda cpu, neuron: torch.add(neuron, 1, out=torch.empty(4, 4)),
        lambda cpu, neuron: torch.nn.functional.linear(neuron, cpu),
    ],
)
def test_tensors_of_host_and_device_do_not_mix(call):
    with pytest.raises(RuntimeError, match="found at least two devices, neuron:0 and cpu!"):
        call(*both(4, 4))


def test_tensors_of_two_devices_do_not_mix():
    with pytest.raises(RuntimeError, match="found at least two devices, neuron:0 and neuron:1!"):
        torch.ones(2, device="neuron:0") + torch.ones(2, device="neuron:1")


def test_indices_may_lie_on_the_host():
    cpu, tensor = both(5, 5)
    index = torch.tensor([0, 3])
    assert torch.equal(tensor[index].cpu(), cpu[index])
    tensor[index] = 0
    cpu[index] = 0
    assert torch.equal(tensor.cpu(), cpu)


def test_results_stay_on_the_device_of_the_arguments():
    tensor = torch.ones(3, device="neuron:2")
    for result in (
        tensor + 1,
        tensor.sum(),
        tensor.to(torch.int64),
        torch.zeros_like(tensor),
        tensor.nonzero(),
    ):
        assert result.device == torch.device("neuron:2")


def test_factories_take_the_current_device():
    with torch.neuron.device(3):
        assert torch.arange(4, device="neuron").device.index == 3
        assert torch.tril_indices(3, 3, device="neuron").device.index == 3
    assert torch.randperm(4, device="neuron:1").device.index == 1


def test_copies_between_host_and_devices():
    cpu, tensor = both(3, 4)
    assert torch.equal(tensor.to("neuron:1").to("cpu"), cpu)
    assert torch.equal(tensor.t().cpu(), cpu.t())
    assert torch.equal(tensor.to(torch.float64).cpu(), cpu.double())
    assert torch.equal(torch.empty(2, 3, 4, device="neuron").copy_(cpu).cpu(), cpu.expand(2, 3, 4))


def test_a_missing_kernel_is_named():
    with pytest.raises(
        NotImplementedError, match="aten::_fused_dropout is not implemented for the neuron device"
    ):
        torch._fused_dropout(torch.ones(3, device="neuron"), 0.5)


def test_sparse_tensors_are_refused():
    with pytest.raises(NotImplementedError, match="the neuron device has dense tensors only"):
        torch.ones(3, device="neuron").to_sparse()


def test_a_python_kernel_may_keep_its_argument():
    kept = []
    library = torch.library.Library("neuron_test", "FRAGMENT")
    library.define("keep(Tensor x) -> Tensor")
    library.impl("keep", lambda x: (kept.append(x), x + 1)[1], "CPU")
    result = torch.ops.neuron_test.keep(torch.full((4,), 5.0, device="neuron"))
    torch.full((4,), -1.0, device="neuron")
    assert result.device.type == "neuron"
    assert kept[0].tolist() == [5, 5, 5, 5]


def test_kernels_of_several_threads_land_on_the_device():
    cpu, tensor = both(512, 512)
    torch.testing.assert_close((tensor @ tensor).cpu(), cpu @ cpu)
    torch.testing.assert_close(torch.fft.fft2(tensor).cpu(), torch.fft.fft2(cpu))


def test_host_memory_stays_on_the_host():
    before = torch.neuron.memory_allocated()
    held = torch.ones(1 << 20) + 1
    assert torch.neuron.memory_allocated() == before
    assert held.device.type == "cpu"
