"""Pipeline schedules: losses, gradients and outputs of one process."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch.distributed.pipelining import (
    PipelineStage,
    Schedule1F1B,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
    ScheduleInterleavedZeroBubble,
    ScheduleLoopedBFS,
    SplitPoint,
    pipeline,
)

from tests.harness import run
from tests.training.models import Net, assert_state, batch, make, sgd

MICROBATCHES = 4
STAGES = 4  # of one block each; the last one has the head
SINGLE = (ScheduleGPipe, Schedule1F1B)
LOOPED = (ScheduleInterleaved1F1B, ScheduleLoopedBFS, ScheduleInterleavedZeroBubble)


def deep():
    return Net(STAGES)


def stages(model, count):
    """The model cut into ``count`` modules."""
    blocks = list(model.blocks)
    size = len(blocks) // count
    parts = [torch.nn.Sequential(*blocks[i * size : (i + 1) * size]) for i in range(count)]
    parts[-1].append(model.head)
    return parts


def scheduled(rank, world_size, schedule):
    per_rank = 1 if schedule in SINGLE else STAGES // world_size
    expected = make(deep)
    model = copy.deepcopy(expected).to("neuron")
    parts = stages(model, world_size * per_rank)
    mine = [
        PipelineStage(parts[index], index, len(parts), torch.device("neuron", rank))
        for index in range(rank, len(parts), world_size)
    ]
    run_step = schedule(mine[0] if per_rank == 1 else mine, MICROBATCHES, loss_fn=F.cross_entropy).step
    optimizers = [sgd(stage.submod) for stage in mine]
    optimizer = sgd(expected)
    for step in range(3):
        inputs, classes = batch(step)
        optimizer.zero_grad()
        loss = F.cross_entropy(expected(inputs), classes)
        loss.backward()
        optimizer.step()

        for own in optimizers:
            own.zero_grad()
        losses = []
        last = {"target": classes.to("neuron"), "losses": losses} if rank == world_size - 1 else {}
        run_step(*([inputs.to("neuron")] if rank == 0 else []), **last)
        for own in optimizers:
            own.step()
        if last:
            torch.testing.assert_close(torch.stack(losses).mean().cpu(), loss.detach(), rtol=1e-4, atol=1e-5)
    reference = stages(expected, len(parts))
    for stage in mine:
        assert_state(stage.submod.state_dict(), reference[stage.stage_index].state_dict())


@pytest.mark.parametrize("nproc", [2, 4])
@pytest.mark.parametrize("schedule", SINGLE, ids=lambda schedule: schedule.__name__)
def test_one_stage_per_rank(schedule, nproc):
    run(nproc, scheduled, schedule)


@pytest.mark.parametrize("schedule", LOOPED, ids=lambda schedule: schedule.__name__)
def test_two_stages_per_rank(schedule):
    run(2, scheduled, schedule)


def traced(rank, world_size):
    """A model that `pipeline` cuts by itself, forward only."""
    model = make(deep)
    inputs, _ = batch(0)
    expected = model(inputs)
    pipe = pipeline(model, (inputs.chunk(MICROBATCHES)[0],), split_spec={"blocks.2": SplitPoint.BEGINNING})
    stage = pipe.build_stage(rank, torch.device("neuron", rank))
    stage.submod.to("neuron")
    schedule = ScheduleGPipe(stage, MICROBATCHES)
    output = schedule.step(*([inputs.to("neuron")] if rank == 0 else []))
    if rank == world_size - 1:
        torch.testing.assert_close(output.cpu(), expected)


def test_traced_pipeline():
    run(2, traced)
