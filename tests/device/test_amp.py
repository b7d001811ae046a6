"""Autocast follows CUDA's lists."""

import pytest
import torch


def test_operators_run_in_the_type_that_cuda_gives_them():
    tensor = torch.randn(4, 4, device="neuron")
    with torch.autocast("neuron", dtype=torch.bfloat16):
        assert (tensor @ tensor).dtype == torch.bfloat16
        assert torch.nn.functional.linear(tensor, tensor).dtype == torch.bfloat16
        assert (tensor.bfloat16()).softmax(-1).dtype == torch.float32
        assert tensor.bfloat16().pow(2).dtype == torch.float32
        assert torch.cat([tensor, tensor.bfloat16()]).dtype == torch.float32
        assert tensor.bfloat16().relu().dtype == torch.bfloat16
        with torch.autocast("neuron", enabled=False):
            assert (tensor @ tensor).dtype == torch.float32
    assert (tensor @ tensor).dtype == torch.float32


def test_host_autocast_leaves_the_device_alone():
    tensor = torch.randn(4, 4, device="neuron")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert (tensor @ tensor).dtype == torch.float32


def test_unsafe_loss_is_refused():
    chance = torch.rand(3, device="neuron")
    with torch.autocast("neuron"), pytest.raises(RuntimeError, match="unsafe to autocast"):
        torch.nn.functional.binary_cross_entropy(chance, chance)


def test_training_with_a_scaler():
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 4).to("neuron")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("neuron", init_scale=1024.0)
    losses = []
    for _ in range(5):
        with torch.autocast("neuron", dtype=torch.float16):
            loss = model(torch.ones(2, 4, device="neuron")).float().square().mean()
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 2
    assert model.weight.dtype == torch.float32


def test_a_scaler_skips_a_step_that_overflowed():
    parameter = torch.nn.Parameter(torch.ones(2, device="neuron"))
    optimizer = torch.optim.SGD([parameter], lr=1.0)
    scaler = torch.amp.GradScaler("neuron", init_scale=4.0)
    scaler.scale((parameter * float("inf")).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert parameter.tolist() == [1, 1]
    assert scaler.get_scale() == 2.0
