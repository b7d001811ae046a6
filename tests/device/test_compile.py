"""torch.compile on the device."""

import pytest
import torch


@pytest.fixture(autouse=True)
def _fresh_compiler():
    torch._dynamo.reset()


def mlp() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 4))


@pytest.mark.parametrize("backend", ["neuron", "aot_eager"])
def test_a_compiled_module_trains_as_an_eager_one(backend):
    results = []
    for compiled in (False, True):
        model = mlp().to("neuron")
        run = torch.compile(model, backend=backend, fullgraph=True) if compiled else model
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        data = torch.arange(24.0, device="neuron").view(3, 8) / 24
        for _ in range(3):
            optimizer.zero_grad()
            run(data).square().mean().backward()
            optimizer.step()
        results.append([parameter.detach().cpu() for parameter in model.parameters()])
    torch.testing.assert_close(results[1], results[0])


def test_shapes_may_change_and_graphs_may_break():
    def function(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        torch._dynamo.graph_break()
        return y.sum(0) + 1

    compiled = torch.compile(function, backend="neuron")
    for rows in (2, 3, 5):
        x = torch.ones(rows, 4, device="neuron")
        assert torch.equal(compiled(x).cpu(), function(x).cpu())


def test_inputs_are_changed_in_place():
    compiled = torch.compile(lambda x: x.add_(1).mul(2), backend="neuron", fullgraph=True)
    x = torch.ones(3, device="neuron")
    assert compiled(x).tolist() == [4, 4, 4]
    assert x.tolist() == [2, 2, 2]


def test_inductor_names_the_backend_that_works():
    with pytest.raises(Exception, match='backend="neuron"'):
        torch.compile(lambda x: x * 2 + 1)(torch.ones(3, device="neuron"))


def test_inductor_still_serves_the_host():
    compiled = torch.compile(lambda x: x * 2 + 1)
    assert compiled(torch.ones(3)).tolist() == [3, 3, 3]
