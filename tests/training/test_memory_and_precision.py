"""What a training script does around the model: recomputation, mixed precision, data loading, ZeRO."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from tests.harness import run
from tests.training.models import BATCH, Net, assert_state, batch, make, sgd, train, trained


class Dropping(Net):
    """Drops half of what each block gives, with or without recomputing it in the backward pass."""

    recompute: bool | None = None  # None: keep the activations; else recompute, whether reentrant

    def forward(self, x):
        for block in self.blocks:
            x = self.step(block, x) if self.recompute is None else self.recomputed(block, x)
        return self.head(x)

    def step(self, block, x):
        return F.dropout(block(x), 0.5)

    def recomputed(self, block, x):
        if self.recompute and not x.requires_grad:  # the reentrant kind sees no gradient to compute otherwise
            x = x.detach().requires_grad_()
        return checkpoint(self.step, block, x, use_reentrant=self.recompute)


def recompute(rank, world_size, recompute):
    models = make(Dropping).to("neuron"), make(Dropping).to("neuron")
    models[1].recompute = recompute
    losses = []
    for model in models:
        torch.manual_seed(5 + rank)
        losses.append(train(DDP(model), rank, world_size))
    assert losses[0] == losses[1]
    assert_state(models[1].state_dict(), {name: t.cpu() for name, t in models[0].state_dict().items()}, 0, 0)


@pytest.mark.parametrize("reentrant", [False, True], ids=["", "reentrant"])
def test_recomputation_drops_the_same_elements(reentrant):
    run(2, recompute, reentrant)


def autocast(rank, world_size, dtype):
    model = DDP(make().to("neuron"))
    optimizer, scaler = (
        sgd(model),
        torch.amp.GradScaler("neuron", init_scale=2.0**10, enabled=dtype == torch.float16),
    )
    for step in range(3):
        inputs, classes = (tensor.to("neuron") for tensor in batch(step, rank, world_size))
        optimizer.zero_grad()
        with torch.autocast("neuron", dtype):
            logits = model(inputs)
            assert logits.dtype == dtype
            loss = F.cross_entropy(logits, classes)
            assert loss.dtype == torch.float32
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 100.0)
        scaler.step(optimizer)
        scaler.update()
    assert_state(model.module.state_dict(), trained(), rtol=0.05, atol=0.02)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_and_grad_scaler(dtype):
    run(2, autocast, dtype)


def skipped_step(rank, world_size):
    """One rank's overflow reaches the gradients of all, so that all skip the step and halve the scale."""
    model = DDP(make().to("neuron"))
    optimizer, scaler = sgd(model), torch.amp.GradScaler("neuron", init_scale=1024.0)
    inputs, classes = (tensor.to("neuron") for tensor in batch(0, rank, world_size))
    loss = F.cross_entropy(model(inputs), classes) * (float("inf") if rank == 1 else 1.0)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    assert scaler.get_scale() == 512.0
    assert_state(model.module.state_dict(), make().state_dict(), 0, 0)


def test_overflow_skips_the_step_on_all_ranks():
    run(2, skipped_step)


def loaded(rank, world_size):
    """Workers fork before and after the device is in use; pinned batches arrive whole."""
    data = TensorDataset(*batch(0))
    sampler = DistributedSampler(data, world_size, rank, shuffle=False)
    torch.ones(1, device="neuron")
    loader = DataLoader(
        data, BATCH // 4, sampler=sampler, num_workers=2, pin_memory=True, persistent_workers=True
    )
    for _ in range(2):
        batches = list(loader)
        assert all(tensor.is_pinned() for pair in batches for tensor in pair)
        inputs = torch.cat([pair[0].to("neuron", non_blocking=True) for pair in batches])
        assert torch.equal(inputs.cpu(), batch(0)[0][rank::world_size])


def test_data_loader_with_workers_and_pinned_memory():
    run(2, loaded)


def zero(rank, world_size):
    model = DDP(make().to("neuron"))
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD, lr=0.1, momentum=0.9)
    train(model, rank, world_size, optimizer=optimizer)
    assert_state(model.module.state_dict(), trained())
    optimizer.consolidate_state_dict(to=0)
    if rank == 0:
        state = optimizer.state_dict()["state"]
        assert len(state) == len(list(model.parameters()))
        assert all(entry["momentum_buffer"].abs().sum() > 0 for entry in state.values())


@pytest.mark.parametrize("nproc", [2, 4])
def test_zero_redundancy_optimizer(nproc):
    run(nproc, zero)


def averaged(rank, world_size):
    """Local steps, averaged at every second: what the mean of the ranks' own models is."""
    expected = [make() for _ in range(world_size)]
    optimizers = [sgd(model) for model in expected]
    for step in range(4):
        for r in range(world_size):
            train(expected[r], r, world_size, optimizer=optimizers[r], steps=[step], device="cpu")
        if step % 2 == 0:
            for group in zip(*(model.parameters() for model in expected), strict=True):
                mean = torch.stack([parameter.data for parameter in group]).mean(0)
                for parameter in group:
                    parameter.data.copy_(mean)

    model, averager = make().to("neuron"), PeriodicModelAverager(period=2)
    optimizer = sgd(model)
    for step in range(4):
        train(model, rank, world_size, optimizer=optimizer, steps=[step])
        averager.average_parameters(model.parameters())
    assert_state(model.state_dict(), expected[rank].state_dict())


def test_local_sgd_averaging():
    run(2, averaged)


def compiled(rank, world_size):
    model = DDP(make().to("neuron"))
    train(torch.compile(model, backend="aot_eager"), rank, world_size)
    assert_state(model.module.state_dict(), trained())


@pytest.mark.full
def test_compiled_ddp():
    run(2, compiled, timeout=110)
