"""Models train as on CPU: parameters after some steps, whatever the modules."""

import copy

import pytest
import torch
from torch import nn


class Recurrent(nn.Module):
    def __init__(self, kind: type[nn.RNNBase]) -> None:
        super().__init__()
        self.rnn = kind(6, 5, num_layers=2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(10, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.rnn(x)[0])


MODELS = {
    "mlp": (lambda: nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 3)), (4, 6)),
    "transformer": (lambda: nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True), (3, 5, 8)),
    "convolutions": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 4, 3, padding=1),
            nn.BatchNorm2d(4),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.ConvTranspose2d(4, 2, 2),
        ),
        (2, 3, 8, 8),
    ),
    "lstm": (lambda: Recurrent(nn.LSTM), (2, 4, 6)),
    "gru": (lambda: Recurrent(nn.GRU), (2, 4, 6)),
    "rnn": (lambda: Recurrent(nn.RNN), (2, 4, 6)),
}


def train(model: nn.Module, inputs: torch.Tensor, optimizer: str) -> None:
    # SGD compares gradients; Adam would magnify rounding where they vanish.
    steps = getattr(torch.optim, optimizer)(
        model.parameters(), lr=0.1, **({"eps": 1e-2} if "Adam" in optimizer else {})
    )
    for _ in range(3):
        steps.zero_grad()
        model(inputs).square().mean().backward()
        steps.step()


@pytest.mark.parametrize("optimizer", ["SGD", "AdamW"])
@pytest.mark.parametrize("name", MODELS)
def test_training_equals_cpu(name, optimizer):
    make, shape = MODELS[name]
    torch.manual_seed(0)
    on_cpu = make()
    on_neuron = copy.deepcopy(on_cpu).to("neuron")
    inputs = torch.randn(shape)
    train(on_cpu, inputs, optimizer)
    train(on_neuron, inputs.to("neuron"), optimizer)
    for ours, theirs in zip(on_neuron.state_dict().values(), on_cpu.state_dict().values(), strict=True):
        assert ours.device.type == "neuron"
        torch.testing.assert_close(ours.cpu(), theirs, rtol=1e-4, atol=1e-5)


def test_moving_a_module_keeps_its_parameters():
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    model[1].weight = model[0].weight
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    parameters = list(model.parameters())
    model.neuron()
    assert all(a is b for a, b in zip(parameters, model.parameters(), strict=True))
    assert model[1].weight is model[0].weight
    before = model[0].weight.detach().clone()
    model(torch.ones(2, 3, device="neuron")).sum().backward()
    optimizer.step()
    assert not torch.equal(model[0].weight, before)
    model.cpu()
    assert model[0].weight.device.type == "cpu"


def test_backward_runs_for_several_devices():
    tensor = torch.ones(3, device="neuron:1", requires_grad=True)
    (tensor.to("neuron:2") * 3).cpu().sum().backward()
    assert tensor.grad.device.index == 1
    assert tensor.grad.tolist() == [3, 3, 3]


def test_gradients_check_numerically():
    tensor = torch.randn(4, 3, dtype=torch.float64, device="neuron", requires_grad=True)
    assert torch.autograd.gradcheck(lambda t: torch.softmax(t @ t.t(), -1).logsumexp(0), tensor)


def test_synchronised_batch_norm_statistics_equal_plain_ones():
    torch.manual_seed(0)
    inputs, weight = torch.randn(6, 4, 5), torch.rand(4)
    parts = [part.to("neuron") for part in inputs.split([2, 4])]
    stats = [torch.batch_norm_stats(part, 1e-5) for part in parts]
    counts = torch.tensor([[10.0], [20.0]], device="neuron")
    mean, invstd = torch.batch_norm_gather_stats_with_counts(
        parts[0],
        torch.stack([s[0] for s in stats]),
        torch.stack([s[1] for s in stats]),
        None,
        None,
        0.1,
        1e-5,
        counts.view(-1),
    )
    outputs = [torch.batch_norm_elemt(p, weight.to("neuron"), None, mean, invstd, 1e-5) for p in parts]
    leaf = inputs.clone().requires_grad_()
    expected = nn.functional.batch_norm(leaf, None, None, weight, None, training=True)
    torch.testing.assert_close(torch.cat(outputs).cpu(), expected.detach())

    upstream = torch.randn(6, 4, 5)
    expected.backward(upstream)
    grads = [part.to("neuron") for part in upstream.split([2, 4])]
    sums = [
        torch.batch_norm_backward_reduce(g, p, mean, invstd, weight.to("neuron"), True, True, True)
        for g, p in zip(grads, parts, strict=True)
    ]
    sum_dy, sum_dy_xmu = sum(s[0] for s in sums), sum(s[1] for s in sums)
    dx = [
        torch.batch_norm_backward_elemt(
            g, p, mean, invstd, weight.to("neuron"), sum_dy, sum_dy_xmu, counts.view(-1).int()
        )
        for g, p in zip(grads, parts, strict=True)
    ]
    torch.testing.assert_close(torch.cat(dx).cpu(), leaf.grad)
