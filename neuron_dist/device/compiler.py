"""``torch.compile(backend="neuron")``: AOT autograd, then the graphs run operator by operator."""

from typing import Any

import torch
from torch._dynamo.backends.common import aot_autograd
from torch._functorch._aot_autograd.utils import make_boxed_func
from torch._functorch.partitioners import min_cut_rematerialization_partition


def compile_graph(graph: torch.fx.GraphModule, example_inputs: list[Any], **options: Any) -> Any:
    """The dynamo backend "neuron". ``options``, which tune AWS's compiler, have nothing to tune here."""
    return _lower(graph, example_inputs)


def _run_eagerly(graph: torch.fx.GraphModule, example_inputs: list[Any]) -> Any:
    return make_boxed_func(graph.forward)


_lower = aot_autograd(
    fw_compiler=_run_eagerly,
    bw_compiler=_run_eagerly,
    partition_fn=min_cut_rematerialization_partition,
    keep_inference_input_mutations=True,
)
