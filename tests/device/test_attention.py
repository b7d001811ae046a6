"""Attention takes the implementation that it takes on CPU, forward and backward, with the same bits."""

import pytest
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel


def attend(device: str, dtype: torch.dtype, **options) -> tuple[torch.Tensor, ...]:
    """The output and the gradients of query, key and value."""
    generator = torch.Generator().manual_seed(0)
    inputs = [torch.randn(2, 4, length, 8, generator=generator).to(dtype) for length in (3, 6, 6)]
    leaves = [tensor.to(device).requires_grad_() for tensor in inputs]
    output = F.scaled_dot_product_attention(*leaves, **options)
    return output, *torch.autograd.grad(output, leaves, torch.ones_like(output))


@pytest.mark.parametrize("options", [{}, {"is_causal": True}], ids=["full", "causal"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_it_follows_cpu(dtype, options):
    theirs, ours = attend("cpu", dtype, **options), attend("neuron", dtype, **options)
    assert ours[0].grad_fn.name() == theirs[0].grad_fn.name()
    for mine, expected in zip(ours, theirs, strict=True):
        assert mine.stride() == expected.stride()
        assert torch.equal(mine.cpu(), expected)


@pytest.mark.parametrize("backend", [SDPBackend.MATH, SDPBackend.FLASH_ATTENTION])
def test_it_obeys_sdpa_kernel(backend):
    with sdpa_kernel(backend):
        theirs, ours = attend("cpu", torch.bfloat16), attend("neuron", torch.bfloat16)
    assert ours[0].grad_fn.name() == theirs[0].grad_fn.name()
    assert torch.equal(ours[0].cpu(), theirs[0])
