"""Neuron tensors that leave for other libraries (DLPack) and other processes (queues, DataLoader workers)."""

import numpy as np
import pytest
import torch
import torch.multiprocessing as mp


def test_torch_shares_the_memory_by_dlpack():
    tensor = torch.arange(4.0, device="neuron:1")
    twin = torch.from_dlpack(tensor)
    assert twin.device == tensor.device
    twin[0] = 9
    assert tensor.tolist() == [9, 1, 2, 3]
    capsule = torch.utils.dlpack.to_dlpack(tensor[1:])
    assert torch.from_dlpack(capsule).tolist() == [1, 2, 3]


def test_numpy_gets_a_copy_on_the_host():
    tensor = torch.arange(4.0, device="neuron")
    assert np.from_dlpack(tensor, device="cpu").tolist() == [0, 1, 2, 3]
    with pytest.raises(BufferError, match="copy=False"):
        np.from_dlpack(tensor, device="cpu", copy=False)
    with pytest.raises((BufferError, RuntimeError), match=r"[Dd]evice"):
        np.from_dlpack(tensor)


def test_numpy_arrays_come_to_the_device():
    tensor = torch.from_dlpack(np.arange(3.0), device="neuron:1")
    assert tensor.device == torch.device("neuron:1")
    assert tensor.tolist() == [0, 1, 2]


def test_host_tensors_keep_to_dlpack():
    host = torch.arange(3.0)
    assert torch.from_dlpack(host).data_ptr() == host.data_ptr()
    assert np.from_dlpack(host).tolist() == [0, 1, 2]


def double(requests: mp.Queue, answers: mp.Queue) -> None:
    torch.set_num_threads(1)
    received = requests.get(timeout=60)
    answers.put([value * 2 for value in received])
    answers.put(torch.ones(2, device="neuron", requires_grad=True) * 2)  # has a history
    requests.get(timeout=60)


def test_queues_carry_tensors_both_ways():
    context = mp.get_context("spawn")
    requests, answers = context.Queue(), context.Queue()
    process = context.Process(target=double, args=(requests, answers), daemon=True)
    process.start()
    tensor = torch.arange(6.0, device="neuron:1")
    parameter = torch.nn.Parameter(torch.ones(2, device="neuron"))
    requests.put([tensor[::2], parameter.detach(), torch.ones(1)])
    doubled = answers.get(timeout=60)
    assert [value.device for value in doubled] == [torch.device(d) for d in ("neuron:1", "neuron:0", "cpu")]
    assert [value.tolist() for value in doubled] == [[0, 4, 8], [2, 2], [2]]
    with pytest.raises(RuntimeError, match="detach"):
        answers.get(timeout=60)
    requests.put(None)
    process.join(timeout=60)
    assert process.exitcode == 0


class OnDevice(torch.utils.data.Dataset):
    """Makes its items on the device, in the worker."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((2,), float(index), device="neuron")


class Held(torch.utils.data.Dataset):
    """Holds its items on the device, made before the workers are."""

    def __init__(self) -> None:
        self.items = torch.arange(4.0, device="neuron")

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.items[index]


def test_workers_may_return_tensors_on_the_device():
    loader = torch.utils.data.DataLoader(
        OnDevice(), batch_size=2, num_workers=1, multiprocessing_context="spawn", timeout=60
    )
    batches = list(loader)
    assert [batch.device.type for batch in batches] == ["neuron", "neuron"]
    assert torch.cat(batches)[:, 0].tolist() == [0, 1, 2, 3]


def test_a_forked_worker_that_touches_the_device_is_an_error_and_no_hang():
    loader = torch.utils.data.DataLoader(
        Held(), batch_size=None, num_workers=1, multiprocessing_context="fork"
    )
    with pytest.raises(RuntimeError, match="forked subprocess"):
        list(loader)
