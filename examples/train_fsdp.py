"""FSDP2 in mixed precision with checkpoints: torchrun --nproc-per-node 4 --max-restarts 1 train_fsdp.py

Started again on the same directory, by torchrun or by hand, it goes on from the last checkpoint.
"""

import argparse
import os
import signal
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.nn.functional as F
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train a small MLP with FSDP2, saving as it goes.")
    parser.add_argument("--device", default=str(torch.accelerator.current_accelerator() or "cpu"))
    parser.add_argument("--backend", help="default: the device's own")
    parser.add_argument("--checkpoints", type=Path, default=Path("checkpoints"))
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--save-every", type=int, default=10)
    parser.add_argument("--batch", type=int, default=32, help="rows per rank")
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument(
        "--kill-at", type=int, help="the last rank kills itself at this step of the first attempt"
    )
    return parser.parse_args()


def build(width: int, device: str) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    layers = [nn.Sequential(nn.Linear(width, width), nn.GELU()) for _ in range(4)]
    model = nn.Sequential(*layers, nn.Linear(width, 1)).to(device)
    mesh = init_device_mesh(device, (dist.get_world_size(),))
    precision = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for layer in (*layers, model):
        fully_shard(layer, mesh=mesh, mp_policy=precision)
    return model, torch.optim.AdamW(model.parameters(), lr=3e-3)


def save(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    model_state, optimizer_state = get_state_dict(model, optimizer)
    dcp.save({"model": model_state, "optimizer": optimizer_state}, checkpoint_id=path)


def resume(directory: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """Load the newest complete checkpoint (metadata is written last) and return its step; 0 if there is none."""
    steps = [int(path.parent.name) for path in directory.glob("*/.metadata")]
    if not steps:
        return 0
    model_state, optimizer_state = get_state_dict(model, optimizer)
    state = {"model": model_state, "optimizer": optimizer_state}
    dcp.load(state, checkpoint_id=directory / str(max(steps)))
    set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
    return max(steps)


def batch(step: int, args: argparse.Namespace) -> tuple[torch.Tensor, torch.Tensor]:
    """What this rank reads at a step, the same whenever it is read: sums of sines of the inputs."""
    seed = torch.Generator().manual_seed(step * dist.get_world_size() + dist.get_rank())
    inputs = torch.randn(args.batch, args.width, generator=seed)
    return inputs.to(args.device), inputs.sin().mean(1, keepdim=True).to(args.device)


def main() -> None:
    args = parse_args()
    dist.init_process_group(args.backend or dist.get_default_backend_for_device(args.device))
    if args.device != "cpu":
        torch.accelerator.set_device_index(int(os.environ["LOCAL_RANK"]))
    last = dist.get_rank() == dist.get_world_size() - 1
    first_attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") == "0"

    model, optimizer = build(args.width, args.device)
    start = resume(args.checkpoints, model, optimizer)
    for step in range(start + 1, args.steps + 1):
        if step == args.kill_at and last and first_attempt:
            os.kill(os.getpid(), signal.SIGKILL)
        inputs, targets = batch(step, args)
        loss = F.mse_loss(model(inputs).float(), targets)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        dist.all_reduce(mean := loss.detach().clone())
        if dist.get_rank() == 0:
            print(f"step {step}/{args.steps} loss {mean.item() / dist.get_world_size():.6f}", flush=True)
        if step % args.save_every == 0:
            save(args.checkpoints / str(step), model, optimizer)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
