"""DistributedDataParallel and composable replicate: every option trains what one process trains."""

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed._composable.replicate import replicate
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel as DDP

from tests.harness import run
from tests.training.models import Net, assert_state, batch, make, sgd, train, trained

OPTIONS = {
    "plain": {},
    "device_ids": {"device_ids": "own"},
    "find_unused": {"find_unused_parameters": True},
    "static_graph": {"static_graph": True},
    "bucket_view": {"gradient_as_bucket_view": True},
    "small_buckets": {"bucket_cap_mb": 0.001},
    "no_buffers": {"broadcast_buffers": False},
}


def ddp(rank, world_size, options):
    if options.get("device_ids") == "own":
        options = {**options, "device_ids": [rank]}
    model = make().to("neuron")
    with torch.no_grad():
        for parameter in model.parameters():  # DDP starts all ranks from rank 0's parameters
            parameter.mul_(1 + rank)
    train(DDP(model, **options), rank, world_size)
    assert_state(model.state_dict(), trained())


@pytest.mark.parametrize("nproc", [2, 4])
@pytest.mark.parametrize("option", OPTIONS)
def test_options(option, nproc):
    run(nproc, ddp, OPTIONS[option])


class Branches(nn.Module):
    """Uses one of its two branches a step, the same on all ranks or not."""

    def __init__(self):
        super().__init__()
        self.branches = nn.ModuleList(Net(1) for _ in range(2))

    def forward(self, x, choice):
        return self.branches[choice](x)


def unused_branches(rank, world_size, choices):
    def losses_of(model, step, parts):
        return [F.cross_entropy(model(x, choices[step][part]), y) for part, (x, y) in parts]

    expected = make(Branches)
    optimizer = sgd(expected)
    for step in range(len(choices)):
        optimizer.zero_grad(set_to_none=False)
        parts = [(part, batch(step, part, world_size)) for part in range(world_size)]
        (sum(losses_of(expected, step, parts)) / world_size).backward()
        optimizer.step()

    model = DDP(make(Branches).to("neuron"), find_unused_parameters=True)
    optimizer = sgd(model)
    for step in range(len(choices)):
        optimizer.zero_grad(set_to_none=False)
        own = [(rank, [tensor.to("neuron") for tensor in batch(step, rank, world_size)])]
        losses_of(model, step, own)[0].backward()
        optimizer.step()
    assert_state(model.module.state_dict(), expected.state_dict())


@pytest.mark.parametrize(
    "choices", [[(0, 0), (1, 1), (0, 0)], [(0, 1), (1, 0), (1, 1)]], ids=["same", "per-rank"]
)
def test_unused_parameters(choices):
    run(2, unused_branches, choices)


def no_sync(rank, world_size):
    model = DDP(make().to("neuron"))
    optimizer = sgd(model)
    for step in range(3):
        optimizer.zero_grad()
        inputs, classes = (tensor.to("neuron") for tensor in batch(step, rank, world_size))
        with model.no_sync():
            (F.cross_entropy(model(inputs[:1]), classes[:1]) / len(inputs)).backward()
        assert not same_on_all_ranks(model.module.head.weight.grad)
        (F.cross_entropy(model(inputs[1:]), classes[1:], reduction="sum") / len(inputs)).backward()
        assert same_on_all_ranks(model.module.head.weight.grad)
        optimizer.step()
    assert_state(model.module.state_dict(), trained())


def same_on_all_ranks(tensor):
    everyone = [torch.empty_like(tensor) for _ in range(dist.get_world_size())]
    dist.all_gather(everyone, tensor)
    return all(torch.equal(other, tensor) for other in everyone)


def test_no_sync_accumulates_on_the_rank():
    run(2, no_sync)


def join(rank, world_size):
    """Rank r has r + 1 batches; those that have run out contribute zeros, so that gradients divide by all."""
    expected = make()
    optimizer = sgd(expected)
    for step in range(world_size):
        optimizer.zero_grad()
        for active in range(step, world_size):
            inputs, classes = batch(step, active, world_size)
            (F.cross_entropy(expected(inputs), classes) / world_size).backward()
        optimizer.step()

    model = DDP(make().to("neuron"))
    with Join([model], divide_by_initial_world_size=True):
        train(model, rank, world_size, steps=range(rank + 1))
    assert_state(model.module.state_dict(), expected.state_dict())


def test_join_of_uneven_inputs():
    run(3, join)


def hooked(rank, world_size, hook):
    model = DDP(make().to("neuron"), bucket_cap_mb=0.002)
    if hook == "allreduce":
        model.register_comm_hook(None, default_hooks.allreduce_hook)
    elif hook == "fp16":
        model.register_comm_hook(None, default_hooks.fp16_compress_hook)
    elif hook == "bf16":
        model.register_comm_hook(None, in_bf16)
    elif hook == "python":
        model.register_comm_hook(None, mean_by_hand)
    elif hook == "builtin":
        model._register_builtin_comm_hook(dist.BuiltinCommHookType.FP16_COMPRESS)
    elif hook == "powersgd":  # full rank: nothing is lost
        state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=WIDE, start_powerSGD_iter=2)
        model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    train(model, rank, world_size)
    return {name: tensor.cpu() for name, tensor in model.module.state_dict().items()}


WIDE = 64
HOOKS = {
    "allreduce": 1e-5,
    "python": 1e-5,
    "fp16": 1e-3,
    "bf16": 1e-2,
    "builtin": 1e-3,
    "powersgd": 1e-4,
}


def in_bf16(state, bucket):  # torch refuses its own hook by its name
    return default_hooks.bf16_compress_hook(state, bucket)


def mean_by_hand(state, bucket):
    def mean(done):
        return done.value()[0] / dist.get_world_size()

    return dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(mean)


@pytest.mark.parametrize("hook", HOOKS)
def test_communication_hooks(hook):
    states = run(2, hooked, hook)
    for state in states:
        assert_state(state, trained(), atol=HOOKS[hook])
    assert_state(states[1], states[0], rtol=0, atol=0)


def replicated(rank, world_size):
    model = replicate(make().to("neuron"))
    train(model, rank, world_size)
    assert_state(model.state_dict(), trained())


def test_composable_replicate():
    run(2, replicated)


class Normed(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.head = nn.Conv1d(1, 4, 3), nn.BatchNorm1d(4), nn.Linear(4 * 14, 4)

    def forward(self, x):
        return self.head(self.norm(self.first(x[:, None])).relu().flatten(1))


def sync_batch_norm(rank, world_size):
    model = nn.SyncBatchNorm.convert_sync_batchnorm(make(Normed)).to("neuron")
    train(DDP(model), rank, world_size)
    assert_state(model.state_dict(), trained(Normed))


@pytest.mark.parametrize("nproc", [2, 4])
def test_sync_batch_norm(nproc):
    run(nproc, sync_batch_norm)


def tied_and_made_before(rank, world_size):
    """An optimizer made before `.to("neuron")` still steps the parameters, and tied weights stay tied."""
    model = make()
    model.blocks[1].up.weight = model.blocks[0].up.weight
    expected = make()
    expected.blocks[1].up.weight = expected.blocks[0].up.weight
    train(expected, device="cpu")
    optimizer = sgd(model)
    model.to("neuron")
    assert model.blocks[1].up.weight is model.blocks[0].up.weight
    train(DDP(model), rank, world_size, optimizer=optimizer)
    assert_state(model.state_dict(), expected.state_dict())


def test_optimizer_made_before_the_move():
    run(2, tied_and_made_before)
