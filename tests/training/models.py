"""A small network and its data, and what one process on the CPU makes of them."""

import functools
from collections.abc import Callable, Iterable, Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

WIDTH = 16  # divides by every group size of the tests
BATCH = 8  # rows of the global batch
STEPS = 3
RTOL, ATOL = 1e-4, 1e-5  # fp32: only the order of additions differs


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(F.gelu(self.up(self.norm(x))))


class Net(nn.Module):
    def __init__(self, blocks: int = 2) -> None:
        super().__init__()
        self.blocks = nn.Sequential(*(Block() for _ in range(blocks)))
        self.head = nn.Linear(WIDTH, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.blocks(x))


def make(model: Callable[[], nn.Module] = Net) -> nn.Module:
    """The model on the CPU, with the same parameters in every process."""
    torch.manual_seed(0)
    return model()


def batch(step: int, rank: int = 0, world_size: int = 1) -> tuple[Tensor, Tensor]:
    """Inputs (rows, WIDTH) and classes (rows) of one step: the global batch, or a rank's part of it."""
    generator = torch.Generator().manual_seed(100 + step)
    inputs = torch.randn(BATCH, WIDTH, generator=generator)
    classes = torch.randint(4, (BATCH,), generator=generator)
    return inputs.chunk(world_size)[rank], classes.chunk(world_size)[rank]


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    """Not `foreach`, which refuses a mix of tensors and DTensors."""
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, foreach=False)


def train(
    model: nn.Module,
    rank: int = 0,
    world_size: int = 1,
    *,
    optimizer: torch.optim.Optimizer | None = None,
    steps: Iterable[int] = range(STEPS),
    device: str = "neuron",
    clip: float | None = None,
) -> list[float]:
    """Train on a rank's part of each batch and return its losses."""
    optimizer = optimizer or sgd(model)
    losses = []
    for step in steps:
        inputs, classes = (tensor.to(device) for tensor in batch(step, rank, world_size))
        loss = F.cross_entropy(model(inputs).float(), classes)
        optimizer.zero_grad()
        loss.backward()
        if clip is not None:
            torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        losses.append(loss.item())
    return losses


@functools.cache
def trained(model: Callable[[], nn.Module] = Net, clip: float | None = None) -> dict[str, Tensor]:
    """The state of the model after one process has trained it on the CPU with the whole batches."""
    alone = make(model)
    train(alone, device="cpu", clip=clip)
    return alone.state_dict()


def assert_state(
    actual: Mapping[str, Tensor], expected: Mapping[str, Tensor], rtol: float = RTOL, atol: float = ATOL
) -> None:
    """Compare all entries on the CPU; DTensors are gathered, which all ranks must join in."""
    actual = {name: getattr(tensor, "full_tensor", lambda t=tensor: t)() for name, tensor in actual.items()}
    assert actual.keys() == expected.keys()
    for name, tensor in expected.items():
        on_cpu = actual[name].detach().cpu().to(tensor.dtype)
        torch.testing.assert_close(on_cpu, tensor, rtol=rtol, atol=atol, msg=f"{name}: {{}}".format)
