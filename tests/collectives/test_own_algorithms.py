"""Algorithms of one's own: a Python function in a file, and programs of sends and receives."""

from pathlib import Path

import numpy as np
import pytest
from neuron_dist.collectives import CollectiveError, VerificationError, build, choose, profile, verify
from neuron_dist.collectives.programs import Recv, Send, schedule_of
from neuron_dist.topology import Group, load
from walk import inputs, walk

EXAMPLE = Path(__file__).parents[2] / "examples/custom_algorithm/two_rings.py"


def test_the_example_works_everywhere_a_name_does() -> None:
    group = Group(load("ring:8"))
    name = f"{EXAMPLE}:two_rings"
    for op in ("all_gather", "reduce_scatter", "all_reduce", "broadcast", "reduce"):
        verify(build(op, name, group, root=3), group, direct_links=op in ("all_gather", "all_reduce"))
    mine, theirs = (profile(build("all_reduce", a, group), group).price(1 << 20) for a in (name, "ring"))
    assert mine.time_us == pytest.approx(theirs.time_us)
    assert choose("all_reduce", group, 1 << 20, selection=f"all_reduce={name}:0-") == name


@pytest.mark.parametrize("op", ["all_gather", "reduce_scatter", "all_reduce", "broadcast", "reduce"])
def test_the_examples_bug_is_caught(op: str) -> None:
    group = Group(load("ring:8"))
    schedule = build(op, f"{EXAMPLE}:impatient", group)
    with pytest.raises(VerificationError):
        verify(schedule, group)


def test_the_examples_bug_is_named() -> None:
    group = Group(load("ring:8"))
    schedule = build("all_gather", f"{EXAMPLE}:impatient", group)
    with pytest.raises(
        VerificationError, match="step 0, copy 0 -> 1 of chunk 14: rank 0 has nothing of chunk 14"
    ):
        verify(schedule, group)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def f(group, op): return 7", "it returned int, not a Schedule"),
        ("def f(group, op): return 1 / 0", "ZeroDivisionError: division by zero"),
        ("f = 3", "the file defines no function 'f'"),
        ("import nowhere_to_be_found", "ModuleNotFoundError"),
        ("def f(", "SyntaxError"),
        (
            "from neuron_dist.collectives import Draft\n"
            "def f(group, op):\n"
            "    draft = Draft('all_gather', ranks=group.size)\n"
            "    draft.copy(step=0, src=0, dst=99, chunk=0)\n"
            "    return draft.schedule()\n",
            "step 0, copy 0 -> 99 of chunk 0: the target is no rank of the group of 8",
        ),
        (
            "from neuron_dist.collectives import Draft\ndef f(group, op): return Draft('x', 2)",
            "op 'x': expected one of",
        ),
    ],
)
def test_files_with_something_wrong(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "mine.py"
    path.write_text(text)
    with pytest.raises(CollectiveError, match=message) as caught:
        build("all_gather", f"{path}:f", Group(load("ring:8")))
    assert "mine.py" in str(caught.value)


def test_a_file_that_is_not_there() -> None:
    with pytest.raises(CollectiveError, match=r"nowhere\.py:f: no such file"):
        build("all_gather", "nowhere.py:f", Group(load("ring:8")))


def pipeline(ranks: int) -> list[list[Send | Recv]]:
    """A broadcast of two chunks down a chain."""
    programs: list[list[Send | Recv]] = [[] for _ in range(ranks)]
    for rank in range(ranks - 1):
        for chunk in range(2):
            programs[rank + 1].append(Recv(rank, chunk))
            programs[rank].append(Send(rank + 1, chunk))
    for program in programs:
        program.sort(key=lambda action: (action.chunk, isinstance(action, Send)))
    return programs


def test_programs_become_schedules() -> None:
    schedule = schedule_of("broadcast", pipeline(4), chunks=2, name="chain")
    verify(schedule)
    assert schedule.steps == 4  # three hops, the second chunk one behind
    held = inputs(schedule, 10, np.int64)
    assert (walk(schedule, held) == held[0]).all()


def test_a_circle_of_waits() -> None:
    programs = [[Recv((rank - 1) % 3, 0), Send((rank + 1) % 3, 0)] for rank in range(3)]
    with pytest.raises(
        VerificationError, match="waits in a circle: rank 0 waits for rank 2 waits for rank 1"
    ):
        schedule_of("all_gather", programs)


def test_a_circle_only_for_want_of_room() -> None:
    """Both send five chunks before they receive any: fine with room for five, not with room for four."""
    programs: list[list[Send | Recv]] = [
        [
            *(Send(1 - rank, 5 * rank + i) for i in range(5)),
            *(Recv(1 - rank, 5 * (1 - rank) + i) for i in range(5)),
        ]
        for rank in range(2)
    ]
    verify(schedule_of("all_gather", programs, chunks=10, in_flight=5))
    with pytest.raises(VerificationError, match="waits in a circle"):
        schedule_of("all_gather", programs, chunks=10, in_flight=4)


@pytest.mark.parametrize(
    ("programs", "message"),
    [
        ([[Send(1, 0)], []], "rank 0 sends chunk 0 to rank 1, which never receives it"),
        ([[], [Recv(0, 0)]], "rank 1 waits to receive from rank 0"),
        ([[Send(1, 0)], [Recv(0, 1)]], "rank 1 expects chunk 1 from rank 0, which sends 0"),
        ([[Send(5, 0)], []], "no such peer"),
        ([[Send(0, 0)], []], "no such peer"),
    ],
)
def test_sends_and_receives_that_do_not_meet(programs: list[list[Send | Recv]], message: str) -> None:
    with pytest.raises(VerificationError, match=message):
        schedule_of("broadcast", programs)
