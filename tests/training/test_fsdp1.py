"""FullyShardedDataParallel (FSDP1): every strategy, option and kind of state dict."""

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.fsdp import (
    BackwardPrefetch,
    CPUOffload,
    FullOptimStateDictConfig,
    FullStateDictConfig,
    MixedPrecision,
    ShardingStrategy,
    StateDictType,
)
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

from tests.harness import run
from tests.training.models import Block, assert_state, batch, make, sgd, train, trained

WRAP = ModuleWrapPolicy({Block})
OPTIONS = {
    "original_parameters": {"use_orig_params": True},
    "forward_prefetch": {"forward_prefetch": True, "backward_prefetch": BackwardPrefetch.BACKWARD_POST},
    "unlimited": {"limit_all_gathers": False, "backward_prefetch": None},
    "offload": {"cpu_offload": CPUOffload(offload_params=True)},
}


def full_state(model):
    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, FullStateDictConfig(offload_to_cpu=True)):
        return model.state_dict()


def wrapped(**options):
    return FSDP(make(), auto_wrap_policy=WRAP, device_id=torch.neuron.current_device(), **options)


def strategy(rank, world_size, strategy):
    group = None
    if "HYBRID" in strategy.name:
        halves = [dist.new_group(ranks) for ranks in ([0, 1], [2, 3])]
        across = [dist.new_group(ranks) for ranks in ([0, 2], [1, 3])]
        group = (halves[rank // 2], across[rank % 2])
    model = wrapped(sharding_strategy=strategy, process_group=group)
    train(model, rank, world_size)
    assert_state(full_state(model), trained())


@pytest.mark.parametrize("kind", ShardingStrategy, ids=lambda kind: kind.name)
def test_sharding_strategies(kind):
    run(4, strategy, kind)


def options(rank, world_size, name):
    model = wrapped(**OPTIONS[name])
    train(model, rank, world_size)
    assert_state(full_state(model), trained())


@pytest.mark.parametrize("name", OPTIONS)
def test_options(name):
    run(2, options, name)


def hybrid_mesh(rank, world_size):
    mesh = dist.init_device_mesh("neuron", (2, 2), mesh_dim_names=("replicate", "shard"))
    model = FSDP(
        make(), auto_wrap_policy=WRAP, device_mesh=mesh, sharding_strategy=ShardingStrategy.HYBRID_SHARD,
        device_id=rank, use_orig_params=True,
    )  # fmt: skip
    train(model, rank, world_size)
    assert_state(full_state(model), trained())


def test_hybrid_sharding_on_a_mesh():
    run(4, hybrid_mesh)


def mixed(rank, world_size, dtype):
    model = wrapped(mixed_precision=MixedPrecision(param_dtype=dtype, reduce_dtype=torch.float32))
    train(model, rank, world_size)
    state = full_state(model)
    assert all(tensor.dtype == torch.float32 for tensor in state.values())
    assert_state(state, trained(), rtol=0.05, atol=0.02)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_mixed_precision(dtype):
    run(2, mixed, dtype)


def grad_scaler(rank, world_size):
    model = wrapped(use_orig_params=True)
    optimizer, scaler = sgd(model), ShardedGradScaler(device="neuron", init_scale=1024.0)
    for step in range(3):
        inputs, classes = (tensor.to("neuron") for tensor in batch(step, rank, world_size))
        optimizer.zero_grad()
        scaler.scale(F.cross_entropy(model(inputs), classes)).backward()
        scaler.step(optimizer)
        scaler.update()
    assert_state(full_state(model), trained())


def test_sharded_grad_scaler():
    run(2, grad_scaler)


def clip(rank, world_size):
    model = wrapped()
    optimizer = sgd(model)
    for step in range(3):
        inputs, classes = (tensor.to("neuron") for tensor in batch(step, rank, world_size))
        optimizer.zero_grad()
        F.cross_entropy(model(inputs), classes).backward()
        model.clip_grad_norm_(0.1)
        optimizer.step()
    assert_state(full_state(model), trained(clip=0.1))


def test_clip_grad_norm():
    run(2, clip)


def accumulate(rank, world_size):
    model = wrapped()
    optimizer = sgd(model)
    for step in range(3):
        inputs, classes = (tensor.to("neuron") for tensor in batch(step, rank, world_size))
        optimizer.zero_grad()
        with model.no_sync():
            (F.cross_entropy(model(inputs[:1]), classes[:1]) / len(inputs)).backward()
        rest = F.cross_entropy(model(inputs[1:]), classes[1:], reduction="sum") / len(inputs)
        rest.backward()
        optimizer.step()
    assert_state(full_state(model), trained())


def test_no_sync():
    run(2, accumulate)


def summon(rank, world_size):
    model = wrapped()
    with FSDP.summon_full_params(model, writeback=True), torch.no_grad():
        assert_state({"head.weight": model.head.weight}, {"head.weight": make().head.weight.detach()})
        model.head.weight.zero_()
    assert not full_state(model)["head.weight"].any()


def test_summon_full_params():
    run(2, summon)


def resume(rank, world_size, kind):
    """Two steps, state dicts into another model and optimizer, one more step."""

    def sharded_state(model):
        config = FullOptimStateDictConfig(rank0_only=False) if kind is StateDictType.FULL_STATE_DICT else None
        return FSDP.state_dict_type(model, kind, optim_state_dict_config=config)

    original = kind is not StateDictType.LOCAL_STATE_DICT  # which knows flat parameters alone
    first = wrapped(use_orig_params=original)
    optimizer = sgd(first)
    train(first, rank, world_size, optimizer=optimizer, steps=range(2))
    with sharded_state(first):
        state, optimizer_state = first.state_dict(), FSDP.optim_state_dict(first, optimizer)

    second = wrapped(use_orig_params=original)
    with torch.no_grad():
        for parameter in second.parameters():
            parameter.zero_()
    optimizer = sgd(second)
    with sharded_state(second):
        second.load_state_dict(state)
        optimizer.load_state_dict(FSDP.optim_state_dict_to_load(second, optimizer, optimizer_state))
    train(second, rank, world_size, optimizer=optimizer, steps=[2])
    assert_state(full_state(second), trained())


@pytest.mark.parametrize("kind", StateDictType, ids=lambda kind: kind.name)
def test_state_dicts(kind):
    run(2, resume, kind)
