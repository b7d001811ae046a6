"""fully_shard (FSDP2): meta-device init, mixed precision, offload, HSDP, gradient scaling and the rest."""

import copy

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.fsdp import CPUOffloadPolicy, FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Shard, distribute_tensor

from tests.harness import run
from tests.training.models import Net, assert_state, batch, make, sgd, train, trained


def shard(model, **options):
    for block in model.blocks:
        fully_shard(block, **options)
    return fully_shard(model, **options)


OPTIONS = {
    "cpu_model": {},
    "keep_after_forward": {"reshard_after_forward": False},
    "reshard_to_two": {"reshard_after_forward": 2},
    "offload": {"offload_policy": CPUOffloadPolicy(pin_memory=False)},
    "offload_pinned": {"offload_policy": CPUOffloadPolicy()},
    "other_dimension": {"shard_placement_fn": "last"},
}


def last_dimension(parameter):
    return Shard(parameter.ndim - 1)


def options(rank, world_size, name):
    options = dict(OPTIONS[name])
    if "shard_placement_fn" in options:
        options["shard_placement_fn"] = last_dimension
    model = shard(make(), mesh=dist.init_device_mesh("neuron", (world_size,)), **options)
    assert isinstance(model.head.weight, DTensor)
    assert isinstance(model, FSDPModule)
    train(model, rank, world_size)
    expected_device = "cpu" if "offload" in name else "neuron"
    assert model.head.weight.device.type == expected_device
    state = {name: tensor.to("neuron") for name, tensor in model.state_dict().items()}
    assert_state(state, trained())


@pytest.mark.parametrize("name", OPTIONS)
def test_options(name):
    run(4, options, name)


def uneven(rank, world_size):
    """3 ranks: no dimension divides."""
    inputs, classes = batch(0)
    parts = ((0, 3), (3, 6), (6, 8))
    expected = make()
    sum(F.cross_entropy(expected(inputs[a:b]), classes[a:b]) for a, b in parts).div(3).backward()
    model = shard(make().to("neuron"))
    a, b = parts[rank]
    F.cross_entropy(model(inputs[a:b].to("neuron")), classes[a:b].to("neuron")).backward()
    assert_state(
        {name: parameter.grad for name, parameter in model.named_parameters()},
        {name: parameter.grad for name, parameter in expected.named_parameters()},
    )


def test_sizes_that_do_not_divide():
    run(3, uneven)


def meta_init(rank, world_size):
    with torch.device("meta"):
        model = Net()
    shard(model)
    model.to_empty(device="neuron")
    for name, parameter in model.named_parameters():
        full = make().state_dict()[name].to("neuron")
        parameter.data.copy_(distribute_tensor(full, parameter.device_mesh, parameter.placements))
    train(model, rank, world_size)
    assert_state(model.state_dict(), trained())


def test_meta_device_init():
    run(2, meta_init)


def hybrid(rank, world_size):
    mesh = dist.init_device_mesh("neuron", (2, 2), mesh_dim_names=("replicate", "shard"))
    model = shard(make(), mesh=mesh)
    train(model, rank, world_size)
    assert_state(model.state_dict(), trained())


def test_hybrid_sharding():
    run(4, hybrid)


def mixed(rank, world_size, policy):
    model = shard(make().to("neuron"), mp_policy=policy)
    dtypes = []
    model.blocks[0].up.register_forward_hook(lambda module, args, out: dtypes.append(out.dtype))
    train(model, rank, world_size)
    assert set(dtypes) == {policy.param_dtype}
    assert model.head.weight.dtype == torch.float32
    assert_state(model.state_dict(), trained(), rtol=0.05, atol=0.02)


POLICIES = {
    "bf16": MixedPrecisionPolicy(param_dtype=torch.bfloat16),
    "bf16_reduce_fp32": MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32),
    "fp16_reduce_fp32": MixedPrecisionPolicy(param_dtype=torch.float16, reduce_dtype=torch.float32),
}


@pytest.mark.parametrize("policy", POLICIES)
def test_mixed_precision(policy):
    run(2, mixed, POLICIES[policy])


def clip(rank, world_size):
    model = shard(make().to("neuron"))
    train(model, rank, world_size, clip=0.1)
    assert_state(model.state_dict(), trained(clip=0.1))


def test_clip_grad_norm():
    run(2, clip)


def gradients(model, rank, world_size, device="neuron"):
    inputs, classes = (tensor.to(device) for tensor in batch(0, rank, world_size))
    F.cross_entropy(model(inputs), classes).backward()
    return {name: parameter.grad for name, parameter in model.named_parameters()}


def divide(rank, world_size, factor, force_sum):
    model = shard(make().to("neuron"))
    model.set_gradient_divide_factor(factor)
    for block in model.blocks:
        block.set_gradient_divide_factor(factor)
    if force_sum:
        for module in (model, *model.blocks):
            module.set_force_sum_reduction_for_comms(True)
    expected = gradients(make(), 0, 1, "cpu")
    scaled = {name: gradient * (world_size / factor) for name, gradient in expected.items()}
    assert_state(gradients(model, rank, world_size), scaled)


@pytest.mark.parametrize("force_sum", [False, True], ids=["", "force_sum"])
@pytest.mark.parametrize("factor", [1.0, 3.0])
def test_gradient_divide_factor(factor, force_sum):
    run(2, divide, factor, force_sum)


def accumulate(rank, world_size):
    model = shard(make().to("neuron"))
    optimizer = sgd(model)
    for step in range(3):
        optimizer.zero_grad()
        inputs, classes = (tensor.to("neuron") for tensor in batch(step, rank, world_size))
        model.set_requires_gradient_sync(False)
        (F.cross_entropy(model(inputs[:1]), classes[:1]) / len(inputs)).backward()
        model.set_requires_gradient_sync(True)
        (F.cross_entropy(model(inputs[1:]), classes[1:], reduction="sum") / len(inputs)).backward()
        optimizer.step()
    assert_state(model.state_dict(), trained())


def test_gradient_accumulation():
    run(2, accumulate)


def by_hand(rank, world_size):
    model = shard(make().to("neuron"))
    model.unshard(async_op=True).wait()
    assert not isinstance(model.head.weight, DTensor)
    model.reshard()
    model.blocks[0].set_modules_to_forward_prefetch([model.blocks[1]])
    model.blocks[1].set_modules_to_backward_prefetch([model.blocks[0]])
    train(model, rank, world_size)
    assert_state(model.state_dict(), trained())


def test_unshard_and_prefetch():
    run(2, by_hand)


def low_precision_and_adam(rank, world_size):
    """fused AdamW on DTensors, and a deep copy of the state that later steps do not change."""
    expected, model = make(), shard(make().to("neuron"))
    train(expected, optimizer=torch.optim.AdamW(expected.parameters(), 1e-3), device="cpu")
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3, fused=True)
    train(model, rank, world_size, optimizer=optimizer)
    before = copy.deepcopy(model.state_dict())
    assert_state(before, expected.state_dict(), rtol=1e-3, atol=1e-4)
    train(model, rank, world_size, optimizer=optimizer)
    assert_state(before, expected.state_dict(), rtol=1e-3, atol=1e-4)


def test_fused_adamw():
    run(2, low_precision_and_adam)
