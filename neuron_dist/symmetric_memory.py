"""torch.distributed._symmetric_memory's operators that are Python, for neuron tensors.

torch registers them for CUDA alone, with kernels on CUDA's streams. Here each is the plain collective that it stands
for, before or after the matrix product. What reads and writes HBM itself is in ``csrc/symmetric_memory``.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

# What serves any device in torch's module, by operator.
FALLBACKS = {
    "get_remote_tensors": "_get_remote_tensors_default",
    "fused_all_gather_matmul": "_fused_all_gather_matmul_fallback",
    "fused_matmul_reduce_scatter": "_fused_matmul_reduce_scatter_fallback",
}

_library = torch.library.Library("symm_mem", "IMPL")


def register_operators() -> None:
    """Tell the dispatcher of the operators; torch's module is imported when one is called."""
    for operator, fallback in FALLBACKS.items():
        _library.impl(operator, _from_torch(fallback), "PrivateUse1")
    _library.impl("_low_contention_all_gather", _all_gather, "PrivateUse1")
    _library.impl("_low_contention_reduce_scatter", _reduce_scatter, "PrivateUse1")


def _from_torch(name: str) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        import torch.distributed._symmetric_memory as symmetric_memory

        return getattr(symmetric_memory, name)(*args, **kwargs)

    return call


def _all_gather(tensor: Tensor, group_name: str) -> Tensor:
    from torch.distributed._functional_collectives import all_gather_tensor, wait_tensor

    return wait_tensor(all_gather_tensor(tensor, 0, group_name))


def _reduce_scatter(tensor: Tensor, reduce_op: str, group_name: str) -> Tensor:
    from torch.distributed._functional_collectives import reduce_scatter_tensor, wait_tensor

    return wait_tensor(reduce_scatter_tensor(tensor, reduce_op, 0, group_name))
