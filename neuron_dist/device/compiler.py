"""``torch.compile(backend="neuron")``: inductor's code for the CPU, on aliases of the device's tensors.

Tracing, decompositions, autograd and partitioning are inductor's. Each graph that comes out is moved to the CPU and
compiled there; when it runs, it sees the device's memory as the CPU's (``_C.call_on_aliases``), so nothing is copied.
"""

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._functorch._aot_autograd.utils import make_boxed_func
from torch._guards import detect_fake_mode
from torch._inductor.compile_fx import compile_fx, compile_fx_inner
from torch._inductor.exc import CppCompileError, InvalidCxxCompiler
from torch.fx.passes.fake_tensor_prop import FakeTensorProp

from neuron_dist import _C

# Of the CPU these would be other operators: a group has other backends there.
_COLLECTIVES = ("_c10d_functional", "c10d_functional", "c10d", "symm_mem")


def compile_graph(graph: torch.fx.GraphModule, example_inputs: list[Any], **options: Any) -> Any:
    """The dynamo backend "neuron". ``options``, which tune AWS's compiler, have nothing to tune here.

    Graphs with random operators, collectives, control flow or several devices run operator by operator.
    """
    # Random operators stay what they are: the device's numbers are counted by element.
    return compile_fx(
        graph, example_inputs, inner_compile=_compile_inner, config_patches={"fallback_random": True}
    )


def _compile_inner(graph: torch.fx.GraphModule, example_inputs: Sequence[Any], **kwargs: Any) -> Any:
    """What inductor calls for each forward, backward or inference graph. The result takes its arguments in a list."""
    device = _only_device(graph)
    if device is None or any(map(_runs_on_the_device, graph.graph.nodes)):
        return make_boxed_func(graph.forward)
    (output,) = graph.graph.find_nodes(op="output")
    adopted = [_on_device(value) for value in output.args[0]]
    moved, inputs = _to_cpu(graph, example_inputs)
    try:
        compiled: Callable[[list[Any]], Sequence[Any]] = compile_fx_inner(moved, inputs, **kwargs)
    except (InvalidCxxCompiler, CppCompileError) as error:
        warnings.warn(f"torch.compile runs operator by operator: {error}", stacklevel=2)
        return make_boxed_func(graph.forward)

    def run(arguments: list[Any]) -> list[Any]:
        return _C.call_on_aliases(compiled, arguments, device, adopted)

    run._boxed_call = True  # type: ignore[attr-defined]
    return run


def _only_device(graph: torch.fx.GraphModule) -> int | None:
    """The index of the device that the graph's tensors lie on; None if there are several or none."""
    found = {
        value.device.index
        for node in graph.graph.nodes
        if isinstance(value := node.meta.get("val"), torch.Tensor) and value.device.type == "neuron"
    }
    return found.pop() if len(found) == 1 else None


def _runs_on_the_device(node: torch.fx.Node) -> bool:
    if node.op == "get_attr":
        return isinstance(getattr(node.graph.owning_module, str(node.target), None), torch.nn.Module)
    target = node.target
    if not isinstance(target, torch._ops.OpOverload):
        return isinstance(target, torch._ops.HigherOrderOperator)
    return torch.Tag.nondeterministic_seeded in target.tags or target.namespace in _COLLECTIVES


def _on_device(value: Any) -> bool:
    tensor = value.meta.get("val") if isinstance(value, torch.fx.Node) else None
    return isinstance(tensor, torch.Tensor) and tensor.device.type == "neuron"


def _to_cpu(
    graph: torch.fx.GraphModule, example_inputs: Sequence[Any]
) -> tuple[torch.fx.GraphModule, list[Any]]:
    """A copy of the graph whose tensors lie on the CPU, and the same of its fake inputs."""
    mode = detect_fake_mode(example_inputs) or torch._subclasses.FakeTensorMode()
    moved = torch.fx.GraphModule(graph, torch.fx.Graph())
    moved.graph.output(moved.graph.graph_copy(graph.graph, {}))
    for node in moved.graph.nodes:
        node.args = torch.fx.node.map_aggregate(node.args, _cpu_for)
        node.kwargs = torch.fx.node.map_aggregate(node.kwargs, _cpu_for)
    moved.recompile()
    inputs = [_fake_on_cpu(value, mode) for value in example_inputs]
    FakeTensorProp(moved, mode).propagate_dont_convert_inputs(*inputs)
    return moved, inputs


def _cpu_for(argument: Any) -> Any:
    is_neuron = isinstance(argument, torch.device) and argument.type == "neuron"
    return torch.device("cpu") if is_neuron else argument


def _fake_on_cpu(value: Any, mode: torch._subclasses.FakeTensorMode) -> Any:
    if not isinstance(value, torch.Tensor) or value.device.type != "neuron":
        return value
    with mode:
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="cpu")
