"""Tensor and sequence parallelism, alone and with FSDP2 on a 2-D mesh."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)

from tests.harness import run
from tests.training.models import assert_state, batch, make, sgd, train, trained


def parallelize(model, mesh, sequence):
    for block in model.blocks:
        if sequence:
            plan = {
                "norm": SequenceParallel(sequence_dim=0),
                "up": ColwiseParallel(input_layouts=Shard(0)),
                "down": RowwiseParallel(output_layouts=Shard(0), use_local_output=False),
            }
        else:
            plan = {"up": ColwiseParallel(), "down": RowwiseParallel()}
        parallelize_module(block, mesh, plan)
    if sequence:
        rows = PrepareModuleInput(
            input_layouts=Replicate(), desired_input_layouts=Shard(0), use_local_output=False
        )
        parallelize_module(model.blocks, mesh, rows)
        parallelize_module(
            model, mesh, {"head": ColwiseParallel(input_layouts=Shard(0), output_layouts=Replicate())}
        )
    else:
        parallelize_module(model, mesh, {"head": ColwiseParallel(output_layouts=Replicate())})
    return model


def tensor_parallel(rank, world_size, sequence):
    mesh = init_device_mesh("neuron", (world_size,))
    model = parallelize(make().to("neuron"), mesh, sequence)
    assert model.blocks[0].up.weight.to_local().shape[0] == model.blocks[0].up.weight.shape[0] // world_size
    train(model)  # every rank sees the whole batch
    assert_state(model.state_dict(), trained())


@pytest.mark.parametrize("sequence", [False, True], ids=["tensor", "sequence"])
@pytest.mark.parametrize("nproc", [2, 4])
def test_tensor_and_sequence_parallel(nproc, sequence):
    run(nproc, tensor_parallel, sequence)


def two_dimensions(rank, world_size, sequence):
    mesh = init_device_mesh("neuron", (2, world_size // 2), mesh_dim_names=("dp", "tp"))
    model = parallelize(make().to("neuron"), mesh["tp"], sequence)
    for block in model.blocks:
        fully_shard(block, mesh=mesh["dp"])
    fully_shard(model, mesh=mesh["dp"])
    clip = 0.5 if sequence else None  # torch cannot take the norm over parameters on different meshes
    train(model, mesh["dp"].get_local_rank(), 2, clip=clip)
    assert_state(model.state_dict(), trained(clip=clip))


@pytest.mark.parametrize("sequence", [False, True], ids=["tensor", "sequence"])
def test_fsdp_on_tensor_parallel(sequence):
    run(4, two_dimensions, sequence)


def hybrid_with_tensor_parallel(rank, world_size):
    mesh = init_device_mesh("neuron", (2, 2, 2), mesh_dim_names=("replicate", "shard", "tp"))
    model = parallelize(make().to("neuron"), mesh["tp"], sequence=False)
    for module in (*model.blocks, model):
        fully_shard(module, mesh=mesh["replicate", "shard"])
    train(model, mesh["replicate"].get_local_rank() * 2 + mesh["shard"].get_local_rank(), 4)
    assert_state(model.state_dict(), trained())


def test_hybrid_sharding_on_tensor_parallel():
    run(8, hybrid_with_tensor_parallel)


def parallel_loss(rank, world_size):
    mesh = init_device_mesh("neuron", (world_size,))
    model = parallelize_module(
        make().to("neuron"), mesh, {"head": ColwiseParallel(output_layouts=Shard(-1), use_local_output=False)}
    )
    optimizer = sgd(model)
    for step in range(3):
        inputs, classes = (tensor.to("neuron") for tensor in batch(step))
        optimizer.zero_grad()
        with loss_parallel():
            F.cross_entropy(model(inputs), classes).backward()
        optimizer.step()
    assert_state(model.state_dict(), trained())


def test_loss_parallel():
    run(2, parallel_loss)


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.head = nn.Embedding(16, 8), nn.Linear(8, 4)

    def forward(self, x):
        return self.head(self.words(x).mean(1))


def embedding(rank, world_size, style):
    tokens = torch.arange(24).view(6, 4) % 16
    expected = make(Words)
    expected(tokens).square().sum().backward()
    model = parallelize_module(
        make(Words).to("neuron"), init_device_mesh("neuron", (world_size,)), {"words": style}
    )
    model(tokens.to("neuron")).square().sum().backward()
    assert_state({"words": model.words.weight.grad}, {"words": expected.words.weight.grad})


@pytest.mark.parametrize(
    "style", [ColwiseParallel(output_layouts=Replicate()), RowwiseParallel(input_layouts=Replicate())],
    ids=["columns", "rows"],
)  # fmt: skip
def test_embedding(style):
    run(2, embedding, style)


def dropout(rank, world_size, sharded):
    """Masks of one seed. Under TP the mask of a sharded activation is the mask of one device, cut."""
    mesh = init_device_mesh("neuron", (world_size,))
    torch.manual_seed(3)
    ones = DTensor.from_local(torch.ones(4, 8, device="neuron"), mesh, [Replicate()])
    if sharded:
        ones = ones.redistribute(mesh, [Shard(0)])
    return [F.dropout(ones, 0.5).full_tensor().cpu() for _ in range(2)]


def test_dropout_under_tensor_parallelism_equals_one_device():
    alone = run(1, dropout, False)[0]
    assert not torch.equal(*alone)
    for sharded in (False, True):
        for masks in run(2, dropout, sharded):
            assert all(torch.equal(mask, single) for mask, single in zip(masks, alone, strict=True))
