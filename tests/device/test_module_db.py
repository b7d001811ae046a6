"""Every module and optimizer of torch's own databases on neuron against CPU."""

import copy
import functools
from typing import Any

import pytest
import torch
from torch.testing._internal.common_modules import ModuleInfo, module_db
from torch.testing._internal.common_optimizers import OptimizerInfo, optim_db
from torch.utils._pytree import tree_leaves

from tests.device.test_op_db import Outcome, gradients_of, on_neuron, same

MODULES = [info for info in module_db if torch.float32 in info.dtypes]

OPTIMIZERS = [info for info in optim_db if not info.only_supports_sparse_grads]  # which are sparse


def run(module: torch.nn.Module, args: Any, kwargs: Any) -> tuple[list[Any], list[Any]]:
    """Results, and gradients of the inputs and parameters for a gradient of ones."""
    results = tree_leaves(module(*args, **kwargs))
    wanted = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
    wanted = [leaf for leaf in [*wanted, *module.parameters()] if leaf.requires_grad]
    outputs = [result for result in results if isinstance(result, torch.Tensor) and result.requires_grad]
    return results, gradients_of(outputs, wanted)


@pytest.mark.full
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])
@pytest.mark.parametrize("info", MODULES, ids=[info.formatted_name for info in MODULES])
def test_a_module_agrees_with_cpu(info: ModuleInfo, training: bool):
    inputs = info.module_inputs_func(
        info, device="cpu", dtype=torch.float32, requires_grad=True, training=training
    )
    for sample in inputs:
        if sample.forward_input is None:
            continue
        made = sample.constructor_input
        module = info.module_cls(*made.args, **made.kwargs).train(training)
        twin = copy.deepcopy(module).to("neuron")
        args, kwargs = sample.forward_input.args, sample.forward_input.kwargs
        mine_args, mine_kwargs = on_neuron((args, kwargs))
        theirs = Outcome(functools.partial(run, module, args, kwargs), [], torch)
        ours = Outcome(functools.partial(run, twin, mine_args, mine_kwargs), [], torch.neuron)
        assert type(ours.error) is type(theirs.error), f"CPU: {theirs.error!r}, neuron: {ours.error!r}"
        for mine, expected in zip(ours.results, theirs.results, strict=True):
            if isinstance(expected, torch.Tensor):
                same(mine, expected, values=not theirs.random)


def steps(info: OptimizerInfo, params: Any, kwargs: dict[str, Any]) -> list[torch.Tensor]:
    """The parameters after three steps along gradients that follow from their values."""
    optimizer = info.optim_cls(params, **kwargs)
    leaves = [leaf for group in optimizer.param_groups for leaf in group["params"]]

    def closure() -> float:
        for index, leaf in enumerate(leaves):
            leaf.grad = (leaf.detach() - index) * 0.5
        return 1.0

    for _ in range(3):
        closure()
        optimizer.step(closure)
    return leaves


@pytest.mark.full
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("info", OPTIMIZERS, ids=[info.optim_cls.__name__ for info in OPTIMIZERS])
def test_an_optimizer_agrees_with_cpu(info: OptimizerInfo):
    modes: list[dict[str, bool]] = [{}]
    modes += [{name: True} for name in ("foreach", "fused") if name in info.supported_impls]
    for sample in info.optim_inputs_func(device="cpu"):
        for mode in modes:
            kwargs = {**sample.kwargs, **mode}
            start = [torch.linspace(-1, 1, 12).view(3, 4), torch.linspace(0, 2, 6).view(2, 3)]
            theirs = steps(info, [leaf.clone().requires_grad_() for leaf in start], kwargs)
            on_device = on_neuron(kwargs)
            ours = steps(info, [leaf.to("neuron").requires_grad_() for leaf in start], on_device)
            for mine, expected in zip(ours, theirs, strict=True):
                assert mine.device.type == "neuron"
                same(mine, expected)
