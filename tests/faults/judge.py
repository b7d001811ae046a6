"""Programs that are wrong on purpose: each says what its ranks must be told, and how soon."""

import importlib
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from tests.harness import RanksFailed, run

FLOOR = 90.0  # seconds that processes may take to start and end on a loaded machine


@dataclass(frozen=True)
class Program:
    """``says``: what a rank's error must match, alike on all or by rank; None where it must return instead."""

    body: Callable[[int, int], Any]
    ranks: int
    says: str | Mapping[int, str | None]
    dead: tuple[int, ...]
    within: float
    group_timeout: float
    env: Mapping[str, str]
    quick: bool


PROGRAMS: dict[str, Program] = {}


def wrong(
    says: str | Mapping[int, str | None],
    *,
    ranks: int = 2,
    dead: tuple[int, ...] = (),
    within: float = 5,
    group_timeout: float = 60,
    env: Mapping[str, str] | None = None,
    quick: bool = False,
) -> Callable[[Callable[[int, int], Any]], Callable[[int, int], Any]]:
    """Enter a program. ``within``: seconds from the group's making to a rank's error, sleeps of the program included.

    ``dead``: the ranks that die of it. ``quick``: part of the short test run.
    """

    def enter(body: Callable[[int, int], Any]) -> Callable[[int, int], Any]:
        assert body.__name__ not in PROGRAMS
        PROGRAMS[body.__name__] = Program(body, ranks, says, dead, within, group_timeout, env or {}, quick)
        return body

    return enter


def judge(name: str) -> None:
    """Run the program and hold what its ranks were told against what it says."""
    program = PROGRAMS[name]
    died: dict[int, str] = {}
    try:
        told = dict(
            enumerate(
                run(
                    program.ranks,
                    _told,
                    program.body.__module__,
                    name,
                    timeout=FLOOR,
                    group_timeout=program.group_timeout,
                    env=program.env,
                )
            )
        )
    except RanksFailed as failed:
        told, died = failed.results, failed.errors
    assert set(died) == set(program.dead), died
    for rank, (text, seconds) in told.items():
        says = program.says if isinstance(program.says, str) else program.says[rank]
        if says is None:
            assert text is None, f"rank {rank} was told: {text}"
        else:
            assert text is not None, f"rank {rank} was told nothing"
            assert re.search(says, text, re.DOTALL), f"rank {rank} was told: {text}"
        assert seconds < program.within, f"rank {rank} was told after {seconds:.1f} s: {text}"


def _told(rank: int, world_size: int, module: str, name: str) -> tuple[str | None, float]:
    importlib.import_module(module)
    began = time.monotonic()
    try:
        PROGRAMS[name].body(rank, world_size)
    except Exception as error:
        return f"{type(error).__name__}: {error}", time.monotonic() - began
    return None, time.monotonic() - began


def neuron(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.ones(*shape, dtype=dtype, device="neuron")
