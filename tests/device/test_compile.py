"""torch.compile on the device."""

import pytest
import torch
import torch._inductor.utils
import torch.distributed as dist
from torch._inductor.exc import InvalidCxxCompiler
from torch.distributed import _functional_collectives as functional

from tests.harness import run


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


def generated_code(function, *args):
    """What inductor wrote for the graphs of one call."""
    with torch._inductor.config.patch(force_disable_caches=True), torch.no_grad():
        _, (code, *_) = torch._inductor.utils.run_and_get_code(
            torch.compile(function, backend="neuron"), *args
        )
    return code


def test_operators_are_fused_into_code_for_the_cpu_that_copies_nothing():
    x = torch.ones(64, 64, device="neuron")
    code = generated_code(lambda x: (x.sin() * 2 + x.cos()).tanh(), x)
    assert code.count("at::vec::Vectorized<float>::loadu") == 1
    assert "neuron" not in code.split("async_compile.cpp")[1]
    before = torch.neuron.memory_allocated()
    compiled = torch.compile(lambda x: (x.sin() * 2 + x.cos()).tanh(), backend="neuron")
    y = compiled(x)
    assert y.device == x.device
    assert torch.neuron.memory_allocated() - before == y.nbytes


def test_outputs_may_be_inputs_and_views_of_them():
    def function(x, y):
        y.add_(x.sum())
        return x, y.t(), y[1], x + 1

    for compiled in (function, torch.compile(function, backend="neuron", fullgraph=True)):
        x, y = torch.ones(2, 3, device="neuron"), torch.zeros(2, 3, device="neuron")
        same, turned, row, more = compiled(x, y)
        turned[0, 0] = 9
        assert same.data_ptr() == x.data_ptr()
        assert y.tolist() == [[9, 6, 6], [6, 6, 6]]
        assert row.tolist() == [6, 6, 6]
        assert more.tolist() == [[2, 2, 2]] * 2


def test_random_numbers_are_those_of_eager_mode():
    def function(x):
        return torch.nn.functional.dropout(x * 2, 0.5) + torch.rand_like(x)

    results = []
    for compiled in (function, torch.compile(function, backend="neuron", fullgraph=True)):
        torch.manual_seed(3)
        results.append(compiled(torch.ones(50, device="neuron")).cpu())
    assert torch.equal(*results)


def test_sizes_may_be_symbols():
    def function(x):
        return (x.softmax(-1) @ x.t()).sum(0) * x.shape[0]

    compiled = torch.compile(function, backend="neuron", dynamic=True, fullgraph=True)
    for rows in (2, 3, 17):
        x = torch.arange(rows * 4.0, device="neuron").view(rows, 4) / 7
        torch.testing.assert_close(compiled(x).cpu(), function(x).cpu())


def test_host_and_other_devices():
    compiled = torch.compile(lambda x, y: (x * 2, y + 1), backend="neuron", fullgraph=True)
    for device in ("cpu", "neuron:0", "neuron:1"):
        x, y = compiled(torch.ones(3, device="neuron:1"), torch.ones(3, device=device))
        assert (x.device.index, x.tolist()) == (1, [2, 2, 2])
        assert (y.device, y.tolist()) == (torch.device(device), [2, 2, 2])


def collectives(rank, world_size):
    def function(x):
        summed = functional.all_reduce(x * 2, "sum", dist.group.WORLD)
        gathered = functional.all_gather_tensor(summed.tanh(), 0, dist.group.WORLD)
        return gathered.sin() + 1

    x = torch.full((4,), 0.1 * (rank + 1), device="neuron")
    compiled = torch.compile(function, backend="neuron", fullgraph=True)
    torch.testing.assert_close(compiled(x).cpu(), function(x).cpu())


def test_functional_collectives_inside():
    run(2, collectives, timeout=100)


def test_without_a_compiler_graphs_run_operator_by_operator(monkeypatch):
    def missing(*args, **kwargs):
        raise InvalidCxxCompiler

    monkeypatch.setattr("neuron_dist.device.compiler.compile_fx_inner", missing)
    compiled = torch.compile(lambda x: x * 3 - 1, backend="neuron")
    with pytest.warns(UserWarning, match="operator by operator"):
        assert compiled(torch.ones(2, device="neuron")).tolist() == [2, 2]


def test_inductor_names_the_backend_that_works():
    with pytest.raises(Exception, match='backend="neuron"'):
        torch.compile(lambda x: x * 2 + 1)(torch.ones(3, device="neuron"))


def test_inductor_still_serves_the_host():
    compiled = torch.compile(lambda x: x * 2 + 1)
    assert compiled(torch.ones(3)).tolist() == [3, 3, 3]
