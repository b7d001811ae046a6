"""How long building, pricing and verifying schedules takes on this host, and how much memory.

    python benchmarks/schedules.py

The bar: all algorithms of an op on 64 ranks priced in 1 s and verified in 5 s; a rotated bucket on 16x16x16
priced in 10 s; under 1 GiB throughout.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable

from neuron_dist.collectives import (
    Schedule,
    Unsupported,
    algorithm_names,
    build,
    profile,
    reduction_order,
    verify,
)
from neuron_dist.topology import Group, load

OPS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all")


def timed(what: str, limit_s: float | None, work: Callable[[], object]) -> None:
    """Run and print one row."""
    start = time.perf_counter()
    work()
    seconds = time.perf_counter() - start
    limit = f"{limit_s:7.1f}" if limit_s else "      -"
    print(f"{what:52} {seconds:9.3f} {limit} {peak_mib():9.0f}")


def peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def schedules(op: str, group: Group) -> list[Schedule]:
    """One of every algorithm that serves."""
    built = []
    for name in algorithm_names():
        try:
            built.append(build(op, name, group))
        except Unsupported:
            continue
    return built


def main() -> None:
    print(f"{'measured on this host':52} {'seconds':>9} {'limit':>7} {'peak MiB':>9}")
    trn2 = Group(load("trn2.48xlarge"))
    for op in OPS:
        built: list[Schedule] = []

        def price_all(op: str = op, built: list[Schedule] = built) -> None:
            built += schedules(op, trn2)
            for schedule in built:
                profile(schedule, trn2).price(1 << 20)

        timed(f"{op}, 64 ranks: build and price all", 1.0, price_all)
        timed(f"{op}, 64 ranks: verify all {len(built)}", 5.0, lambda b=built: [verify(s, trn2) for s in b])  # type: ignore[misc]
        timed(
            f"{op}, 64 ranks: reduction order of all", None, lambda b=built: [reduction_order(s) for s in b]
        )  # type: ignore[misc]
    cube = Group(load("torus:16x16x16"))
    timed("all_reduce, 4096 ranks: rotated bucket on 16x16x16", 10.0, lambda: _price_bucket(cube))


def _price_bucket(group: Group) -> None:
    profile(build("all_reduce", "bucket", group), group).price(1 << 30)


if __name__ == "__main__":
    main()
