"""Train a small GPT on the Python standard library's own sources: torchrun --nproc-per-node 4 train_gpt.py"""

import argparse
import json
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train a small GPT, data-parallel over all ranks.")
    parser.add_argument("--device", default=str(torch.accelerator.current_accelerator() or "cpu"))
    parser.add_argument("--backend", help="default: the device's own")
    parser.add_argument("--steps", type=int, default=250)
    parser.add_argument("--batch", type=int, default=8, help="sequences per rank")
    parser.add_argument("--context", type=int, default=64, help="bytes per sequence")
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--losses", type=Path, help="write the loss of every step to this JSON file")
    return parser.parse_args()


class Block(nn.Module):
    def __init__(self, width: int, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        heads = self.qkv(self.norm_1(x)).unflatten(-1, (3, self.heads, -1))
        q, k, v = heads.permute(2, 0, 3, 1, 4)  # each batch x heads x context x width / heads
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.project(attended.transpose(1, 2).flatten(2))
        return x + self.mlp(self.norm_2(x))


class GPT(nn.Module):
    def __init__(self, context: int, width: int, layers: int, vocabulary: int = 256) -> None:
        super().__init__()
        self.token, self.position = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.blocks = nn.Sequential(*(Block(width) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        x = self.token(tokens) + self.position.weight[: tokens.shape[1]]
        return F.cross_entropy(self.head(self.norm(self.blocks(x))).flatten(0, 1), targets.flatten())


def load_text() -> tuple[Tensor, Tensor]:
    """Training and held-out bytes: the standard library's modules by name, every tenth of them held out."""
    paths = sorted(Path(os.__file__).parent.glob("*.py"))
    train = b"".join(path.read_bytes() for i, path in enumerate(paths) if i % 10)
    held_out = b"".join(path.read_bytes() for path in paths[::10])
    return tuple(torch.frombuffer(bytearray(text), dtype=torch.uint8) for text in (train, held_out))


def batch(text: Tensor, size: int, context: int, seed: torch.Generator, device: str) -> tuple[Tensor, Tensor]:
    starts = torch.randint(len(text) - context, (size, 1), generator=seed)
    tokens = text[starts + torch.arange(context + 1)].long().to(device)
    return tokens[:, :-1], tokens[:, 1:]


def mean_over_ranks(loss: Tensor) -> float:
    dist.all_reduce(total := loss.detach().clone())
    return total.item() / dist.get_world_size()


def show_progress(step: int, steps: int, loss: float, started: float) -> None:
    """One line that redraws itself on a terminal; into a file or a pipe, a line at every tenth of the way."""
    rate = step / (time.perf_counter() - started)
    line = f"step {step}/{steps} [{'#' * (30 * step // steps):30}] loss {loss:.3f}  {rate:.1f} steps/s"
    redraw = sys.stdout.isatty() and step < steps
    if redraw or step == steps or step % max(1, steps // 10) == 0:
        print(line, end="\r" if redraw else "\n", flush=True)


def main() -> None:
    args = parse_args()
    dist.init_process_group(args.backend or dist.get_default_backend_for_device(args.device))
    if args.device != "cpu":
        torch.accelerator.set_device_index(int(os.environ["LOCAL_RANK"]))

    train, held_out = load_text()
    torch.manual_seed(0)  # the model starts on the CPU, so that it is the same whatever the device
    model = nn.parallel.DistributedDataParallel(GPT(args.context, args.width, args.layers).to(args.device))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    data = torch.Generator().manual_seed(1 + dist.get_rank())  # every rank reads other parts of the text

    losses, started = [], time.perf_counter()
    for step in range(1, args.steps + 1):
        loss = model(*batch(train, args.batch, args.context, data, args.device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(mean_over_ranks(loss))
        if dist.get_rank() == 0:
            show_progress(step, args.steps, losses[-1], started)

    with torch.no_grad():
        final = mean_over_ranks(model(*batch(held_out, 64, args.context, data, args.device)))
    if dist.get_rank() == 0:
        print(f"held-out loss {final:.3f} (uniform: 5.545) on {dist.get_world_size()} x {args.device}")
        if args.losses:
            args.losses.write_text(json.dumps(losses))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
