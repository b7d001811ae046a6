"""Context parallelism: attention over a sequence cut among the ranks. Causal attention needs CUDA's kernel."""

import pytest
import torch
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.experimental import context_parallel
from torch.distributed.tensor.experimental._attention import context_parallel_unshard, set_rotate_method
from torch.nn.attention import SDPBackend, sdpa_kernel

from tests.harness import run

BATCH, HEADS, LENGTH, WIDTH = 2, 2, 32, 8


def attention(rank, world_size, rotate):
    mesh = init_device_mesh("neuron", (world_size,))
    set_rotate_method(rotate)
    generator = torch.Generator().manual_seed(0)
    qkv = [torch.randn(BATCH, HEADS, LENGTH, WIDTH, generator=generator).requires_grad_() for _ in range(3)]
    expected = F.scaled_dot_product_attention(*qkv)
    expected.square().sum().backward()

    parts = [tensor.detach().clone().to("neuron") for tensor in qkv]
    with (
        context_parallel(mesh, buffers=parts, buffer_seq_dims=[2] * 3),
        sdpa_kernel(SDPBackend.FLASH_ATTENTION),
    ):
        for part in parts:
            part.requires_grad_()
        out = F.scaled_dot_product_attention(*parts)
        out.square().sum().backward()
        whole = context_parallel_unshard(mesh, [out.detach(), *(part.grad for part in parts)], [2] * 4)
        for part in parts:
            part.requires_grad_(False)
    torch.testing.assert_close(whole[0].cpu(), expected.detach(), rtol=1e-4, atol=1e-4)
    for mine, tensor in zip(whole[1:], qkv, strict=True):
        torch.testing.assert_close(mine.cpu(), tensor.grad, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("rotate", ["allgather", "alltoall"])
def test_attention(rotate):
    run(2, attention, rotate)
