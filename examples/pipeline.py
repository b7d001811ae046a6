"""A pipeline with one stage per rank: torchrun --nproc-per-node 4 pipeline.py --schedule 1F1B"""

import argparse
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

SCHEDULES = {"GPipe": ScheduleGPipe, "1F1B": Schedule1F1B}


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train a residual MLP, cut into one stage per rank.")
    parser.add_argument("--device", default=str(torch.accelerator.current_accelerator() or "cpu"))
    parser.add_argument("--backend", help="default: the device's own")
    parser.add_argument("--schedule", choices=SCHEDULES, default="1F1B")
    parser.add_argument("--microbatches", type=int, default=8)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--width", type=int, default=64)
    return parser.parse_args()


class Stage(nn.Module):
    def __init__(self, width: int, layers: int = 2) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = x + F.gelu(layer(x))
        return x


def main() -> None:
    args = parse_args()
    dist.init_process_group(args.backend or dist.get_default_backend_for_device(args.device))
    rank, stages = dist.get_rank(), dist.get_world_size()
    device = torch.device("cpu")
    if args.device != "cpu":
        device = torch.device(args.device, int(os.environ["LOCAL_RANK"]))
        torch.accelerator.set_device_index(device.index)

    torch.manual_seed(0)  # every rank draws all the stages and keeps its own
    module = [Stage(args.width) for _ in range(stages)][rank].to(device)
    teacher = torch.randn(args.width, args.width) / args.width**0.5
    stage = PipelineStage(module, rank, stages, device)
    schedule = SCHEDULES[args.schedule](stage, args.microbatches, loss_fn=F.mse_loss)
    optimizer = torch.optim.AdamW(module.parameters(), lr=3e-3)

    for step in range(1, args.steps + 1):
        inputs = torch.randn(args.batch, args.width)
        optimizer.zero_grad()
        losses: list[Tensor] = []
        last = {}
        if rank == stages - 1:
            last = {"target": torch.tanh(inputs @ teacher).to(device), "losses": losses}
        schedule.step(*([inputs.to(device)] if rank == 0 else []), **last)
        optimizer.step()
        if losses and (step % max(1, args.steps // 6) == 0 or step == 1):
            print(f"step {step}/{args.steps} loss {torch.stack(losses).mean().item():.6f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
