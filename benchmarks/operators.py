"""Time of an operator call on neuron beside the same call on CPU: `python -m benchmarks.operators`.

Tiny tensors show what a call costs beyond its kernel, large ones that nothing is copied. Both devices take
turns in each round, so that a busy machine slows both; the fastest round counts. One thread, microseconds.
"""

import argparse
import time
from collections.abc import Callable

import torch

Call = Callable[[], object]
SIZES = {"tiny": 8, "large": 1024}


def calls(n: int, device: str) -> dict[str, Call]:
    """One call of each operator on n x n tensors of a device."""
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.rand(n, n, generator=generator).to(device) for _ in range(2))
    out = torch.empty_like(a)
    index = torch.arange(n - 1, -1, -1).to(device)
    several = [a.clone() for _ in range(10)]
    return {
        "empty": lambda: torch.empty(n, n, device=device),
        "view": lambda: a.view(-1),
        "transpose": lambda: a.t(),
        "add": lambda: a + b,
        "add_": lambda: out.add_(b),
        "add out=": lambda: torch.add(a, b, out=out),
        "mul by scalar": lambda: a * 2.0,
        "copy_": lambda: out.copy_(a),
        "sum": lambda: a.sum(),
        "softmax": lambda: a.softmax(-1),
        "layer_norm": lambda: torch.nn.functional.layer_norm(a, (n,)),
        "matmul": lambda: a @ b,
        "linear": lambda: torch.nn.functional.linear(a, b),
        "cat": lambda: torch.cat([a, b]),
        "index": lambda: a[index],
        "embedding": lambda: torch.nn.functional.embedding(index, a),
        "_foreach_add_ x10": lambda: torch._foreach_add_(several, 1.0),
    }


def microseconds(call: Call, seconds: float) -> float:
    """Of one call, over as many calls as fit."""
    count, elapsed = 1, 0.0
    while elapsed < seconds:
        start = time.perf_counter()
        for _ in range(count):
            call()
        elapsed = time.perf_counter() - start
        if elapsed < seconds:
            count *= 2
    return elapsed / count * 1e6


def measure(rounds: int, seconds: float) -> None:
    """Print a row for each operator and size."""
    print(f"{'operator':20}{'size':>12}{'cpu (us)':>12}{'neuron (us)':>14}{'ratio':>8}")
    for label, n in SIZES.items():
        ours, theirs = calls(n, "neuron"), calls(n, "cpu")
        for name in theirs:
            times = [
                (microseconds(theirs[name], seconds), microseconds(ours[name], seconds))
                for _ in range(rounds)
            ]
            cpu, neuron = (min(column) for column in zip(*times, strict=True))
            print(
                f"{name:20}{label + f' {n}x{n}':>12}{cpu:12.2f}{neuron:14.2f}{neuron / cpu:8.2f}", flush=True
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=40, help="timings of each operator (default 40)")
    parser.add_argument("--seconds", type=float, default=0.002, help="shortest timing (default 0.002)")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    with torch.no_grad():
        measure(arguments.rounds, arguments.seconds)


if __name__ == "__main__":
    main()
