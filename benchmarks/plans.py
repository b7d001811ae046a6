"""What planning a collective costs, which its group has not made yet: ``python -m benchmarks.plans``.

Host time of one process, in ms: the first call of the op in the group (which builds and prices every algorithm), a size
for which another algorithm is the cheapest, one more size, and another root.
"""

import argparse
import time

from neuron_dist.collectives import OPS
from neuron_dist.topology import load

from neuron_dist.planner import Planner

SIZES = [4 << i for i in range(27)]
CASES = ("first", "another", "again", "root")


def another_size(planner: Planner, op: str) -> int:
    """A size at which another algorithm runs than for the smallest."""
    first = planner.choose(op, SIZES[0]).schedule.name
    return next((size for size in SIZES if planner.choose(op, size).schedule.name != first), SIZES[-1])


def milliseconds(planner: Planner, op: str, size: int, root: int = 0) -> float:
    start = time.perf_counter()
    planner(op, size, root, -1)
    return (time.perf_counter() - start) * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.plans", description=__doc__.splitlines()[0])
    parser.add_argument("--topology", default="trn2.48xlarge")
    parser.add_argument("--ranks", type=int, default=64)
    args = parser.parse_args()
    ranks = list(range(args.ranks))
    planner = Planner(load(args.topology), ranks, "", "schedule", args.ranks)
    print(f"{args.ranks} ranks on {args.topology}\n{'ms':>16}" + "".join(f"{case:>10}" for case in CASES))
    for op in (op for op in OPS if op not in ("permute", "send_recv")):
        first = milliseconds(planner, op, SIZES[0])
        size = another_size(planner, op)
        times = [first, milliseconds(planner, op, size), milliseconds(planner, op, size + 4)]
        times += [milliseconds(planner, op, size, root=5)] if OPS[op].rooted else []
        print(f"{op:>16}" + "".join(f"{each:10.1f}" for each in times), flush=True)


if __name__ == "__main__":
    main()
