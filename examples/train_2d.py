"""FSDP2 x tensor parallelism on a 2-D mesh: torchrun --nproc-per-node 4 train_2d.py --tensor-parallel 2"""

import argparse
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Train a residual MLP, sharded by FSDP2 and tensor parallelism."
    )
    parser.add_argument("--device", default=str(torch.accelerator.current_accelerator() or "cpu"))
    parser.add_argument("--backend", help="default: the device's own")
    parser.add_argument("--tensor-parallel", type=int, default=2, help="ranks that share each layer")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--batch", type=int, default=64, help="global batch")
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--layers", type=int, default=4)
    return parser.parse_args()


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(F.gelu(self.up(self.norm(x))))


def parallelize(blocks: nn.Sequential, mesh: DeviceMesh) -> nn.Sequential:
    """Tensor parallelism inside a layer, activations between layers cut by rows, FSDP2 over the rest."""
    for block in blocks:
        plan = {
            "norm": SequenceParallel(sequence_dim=0),
            "up": ColwiseParallel(input_layouts=Shard(0)),
            "down": RowwiseParallel(output_layouts=Shard(0), use_local_output=False),
        }
        parallelize_module(block, mesh["tp"], plan)
        fully_shard(block, mesh=mesh["dp"])
    rows = PrepareModuleInput(
        input_layouts=Replicate(), desired_input_layouts=Shard(0), use_local_output=False
    )
    return fully_shard(parallelize_module(blocks, mesh["tp"], rows), mesh=mesh["dp"])


def main() -> None:
    args = parse_args()
    dist.init_process_group(args.backend or dist.get_default_backend_for_device(args.device))
    if args.device != "cpu":
        torch.accelerator.set_device_index(int(os.environ["LOCAL_RANK"]))
    replicas = dist.get_world_size() // args.tensor_parallel
    mesh = init_device_mesh(args.device, (replicas, args.tensor_parallel), mesh_dim_names=("dp", "tp"))
    replica = mesh["dp"].get_local_rank()

    torch.manual_seed(0)  # the same model and teacher on every rank
    blocks = parallelize(
        nn.Sequential(*(Block(args.width) for _ in range(args.layers))).to(args.device), mesh
    )
    teacher = torch.randn(args.width, args.width) / args.width**0.5
    optimizer = torch.optim.AdamW(blocks.parameters(), lr=3e-3)

    for step in range(1, args.steps + 1):
        inputs = torch.randn(args.batch, args.width).chunk(replicas)[replica]
        outputs = blocks(inputs.to(args.device)).redistribute(mesh["tp"], [Replicate()]).to_local()
        loss = F.mse_loss(outputs, torch.tanh(inputs @ teacher).to(args.device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        dist.all_reduce(mean := loss.detach().clone())
        if dist.get_rank() == 0 and (step % max(1, args.steps // 6) == 0 or step == 1):
            print(f"step {step}/{args.steps} loss {mean.item() / dist.get_world_size():.6f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
