"""Distributed checkpoints: save, load into another layout or number of ranks, save in the background."""

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_state_dict,
    set_model_state_dict,
    set_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.nn.parallel import DistributedDataParallel as DDP

from tests.harness import run
from tests.training.models import assert_state, make, train, trained

WHOLE = torch.arange(60.0).view(10, 6)


def sharded_model(mesh=None):
    model = make().to("neuron")
    for module in (*model.blocks, model):
        fully_shard(module, mesh=mesh or init_device_mesh("neuron", (dist.get_world_size(),)))
    return model


def adam(model):
    return torch.optim.AdamW(model.parameters(), lr=1e-2)


def blank(model):
    """The model and an optimizer, with nothing of what was saved."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    return model, adam(model)


def save_and_resume(rank, world_size, path, wrap):
    model = wrap()
    optimizer = adam(model)
    train(model, rank, world_size, optimizer=optimizer, steps=range(2))
    model_state, optimizer_state = get_state_dict(model, optimizer)
    dcp.save({"model": model_state, "optimizer": optimizer_state, "step": 2}, checkpoint_id=path)
    losses = train(model, rank, world_size, optimizer=optimizer, steps=[2, 3])

    model, optimizer = blank(wrap())
    model_state, optimizer_state = get_state_dict(model, optimizer)
    state = {"model": model_state, "optimizer": optimizer_state, "step": 0}
    dcp.load(state, checkpoint_id=path)
    assert state["step"] == 2
    set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
    assert train(model, rank, world_size, optimizer=optimizer, steps=[2, 3]) == losses


def data_parallel():
    return DDP(make().to("neuron"))


@pytest.mark.parametrize("wrap", [sharded_model, data_parallel])
def test_training_resumes_where_it_was_saved(wrap, tmp_path):
    run(2, save_and_resume, str(tmp_path), wrap)


def save_layout(rank, world_size, path, shape, placements):
    mesh = init_device_mesh("neuron", shape)
    dcp.save({"t": distribute_tensor(WHOLE.to("neuron"), mesh, placements)}, checkpoint_id=path)


def load_layout(rank, world_size, path, shape, placements):
    mesh = init_device_mesh("neuron", shape)
    tensor = distribute_tensor(torch.zeros_like(WHOLE, device="neuron"), mesh, placements)
    dcp.load({"t": tensor}, checkpoint_id=path)
    assert torch.equal(tensor.full_tensor().cpu(), WHOLE)


LAYOUTS = {
    "rows": ((2,), [Shard(0)]),
    "columns": ((4,), [Shard(1)]),
    "replicated": ((3,), [Replicate()]),
    "blocks": ((2, 2), [Shard(0), Shard(1)]),
}


@pytest.mark.parametrize("saved", LAYOUTS)
def test_resharding(saved, tmp_path):
    shape, placements = LAYOUTS[saved]
    run(torch.Size(shape).numel(), save_layout, str(tmp_path), shape, placements)
    for shape, placements in LAYOUTS.values():
        run(torch.Size(shape).numel(), load_layout, str(tmp_path), shape, placements)


def save_in_background(rank, world_size, path):
    model = sharded_model()
    train(model, rank, world_size)
    state = {"model": get_model_state_dict(model)}
    own_group = dist.new_group()  # the thread that saves and the one that trains must not share a group
    saving = dcp.async_save(state, checkpoint_id=path, process_group=own_group)
    train(model, rank, world_size)  # changes what is being saved
    saving.result()
    dcp.load(state, checkpoint_id=path)
    set_model_state_dict(model, state["model"])
    assert_state(model.state_dict(), trained())


def test_async_save_keeps_what_it_was_given(tmp_path):
    run(2, save_in_background, str(tmp_path), timeout=90)


def full_state(rank, world_size):
    model = sharded_model()
    train(model, rank, world_size)
    full = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    assert bool(full) == (rank == 0)  # the others need no memory for it
    other, _ = blank(sharded_model())
    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
    set_model_state_dict(other, dict(full), options=options)
    assert_state(other.state_dict(), trained())
    return full


def test_full_state_dict_from_rank_0():
    assert_state(run(2, full_state)[0], trained())


def save_plain(rank, world_size, path):
    if rank == 0:
        torch.save({"t": WHOLE.to("neuron"), "model": make().to("neuron").state_dict()}, path)
    dist.barrier()
    loaded = torch.load(path, map_location=f"neuron:{rank}")
    assert loaded["t"].device.index == rank
    assert torch.equal(loaded["t"].cpu(), WHOLE)
    assert_state(torch.load(path, map_location="cpu")["model"], make().state_dict(), 0, 0)


def test_torch_save_and_load(tmp_path):
    run(2, save_plain, str(tmp_path / "state.pt"))
