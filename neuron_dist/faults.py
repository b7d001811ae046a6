"""What goes wrong on purpose, and when.

``NEURON_SIM_FAULTS``, ``neuronrun --faults`` and :func:`inject` take events, separated by ``;`` or newlines, or the
path of a file of them, in which ``#`` begins a comment::

    link:0-1:down            the wire between chips 0 and 1 is gone; link:any is one that the seed picks
    link:0-1:slow=0.5        it has half its bandwidth
    link:0-1:late=3          it takes 3 us more
    chip:2:down              chip 2 is gone, with its links; collectives of the ranks on it fail
    rank:1:delay=0.5         rank 1 comes 0.5 s late, in host and simulated time; rank:any is one that the seed picks
    rank:1:stop              it is stopped (SIGSTOP)
    rank:1:kill              it is killed (SIGKILL)
    rank:1:corrupt           one bit of what it receives is flipped
    seed=7                   of what is left to chance (default 0)

An event may say when, by what each rank counts and sees for itself; by default as the first collective is called::

    ...@call=5               as a rank calls its 5th collective of the process, counted over all groups
    ...@call=5-20            as it calls one of the 5th to 20th, which the seed picks
    ...@time=0.002           at its first collective that could start at 2 ms of simulated time
    rank:1:kill@inside=5     while its peers wait in the 5th; also for stop
    rank:1:kill@after=5      after the 5th; also for stop

A link or chip fault lasts: from the first collective of a group that one of its ranks calls after the event, all its
ranks plan anew, and its first rank warns of the algorithm, time and bound before and after. Under ``neuronrun
--max-restarts`` rank events strike the first attempt alone; links and chips stay broken.
"""

import os
import random
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch.distributed as dist

from neuron_dist import _C
from neuron_dist.job import job_topology
from neuron_dist.topology import Topology, TopologyError
from neuron_dist.topology import faults as changes

MOST_FABRIC_FAULTS = 64  # each is a bit of what ranks tell each other


class FaultError(ValueError):
    """A fault that makes no sense, told in one line: which event, and what is expected."""


class FaultWarning(UserWarning):
    """A fault changed how the fabric runs a collective."""


@dataclass(frozen=True)
class Event:
    """One thing that goes wrong."""

    text: str  # as stated, with what was left to chance filled in
    kind: str  # link, chip or rank
    where: str  # "0-1", "2"
    how: str  # down, slow=0.5, kill ...
    point: str = "call"  # call, inside, after or time
    at: float = 1  # the number of the collective, or simulated seconds
    seed: int = 0  # of the bit that a corruption flips

    @property
    def change(self) -> str:
        """Of the fabric, as ``neuron_dist.topology`` takes it."""
        return f"{self.kind}:{self.where}:{self.how}"


_EVENT = re.compile(r"(link|chip|rank):([^:@]+):([^:@]+)(?:@(call|time|inside|after)=([^@]+))?")
_EXPECTED = (
    "expected link:A-B:down, slow=FACTOR or late=US; chip:C:down; rank:R:delay=S, stop, kill or corrupt; "
    "and when: @call=N, @call=N-M, @time=S, @inside=N or @after=N"
)
_RANK_FAULTS = {
    "delay": ("call", "time"),
    "stop": (),
    "kill": (),
    "corrupt": ("call", "time"),
}  # when, if not any


def parse(text: str, topology: Topology, world_size: int) -> list[Event]:
    """The events that ``text`` states, for a job of so many ranks. The same on all ranks. Raises FaultError."""
    statements = [line.split("#")[0].strip() for line in re.split("[;\n]", _read(text))]
    seeds = [line for line in statements if line.startswith("seed=")]
    if len(seeds) > 1 or (seeds and not re.fullmatch(r"seed=\d+", seeds[0])):
        raise FaultError(f"faults: {', '.join(seeds)}: expected one seed, such as seed=7")
    seed = int(seeds[0].removeprefix("seed=")) if seeds else 0
    events = [line for line in statements if line and line not in seeds]
    parsed = [
        _parse_event(event, topology, world_size, random.Random(f"{seed}:{index}:{event}"))
        for index, event in enumerate(events)
    ]
    if sum(event.kind != "rank" for event in parsed) > MOST_FABRIC_FAULTS:
        raise FaultError(f"faults: more than {MOST_FABRIC_FAULTS} of links and chips")
    return parsed


def _read(text: str) -> str:
    if not text or not os.path.exists(text):
        return text
    try:
        return Path(text).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise FaultError(f"faults: {text}: {error}") from error


def _parse_event(event: str, topology: Topology, world_size: int, chance: random.Random) -> Event:
    match = _EVENT.fullmatch(event)
    if not match:
        raise FaultError(f"fault {event!r}: {_EXPECTED}")
    kind, where, how, point, at = match.groups()
    if where == "any":
        where = _any(kind, topology, world_size, chance)
    text = f"{kind}:{where}:{how}" + (f"@{point}={at}" if point else "")
    number = _when(event, point or "call", at or "1", chance)
    if kind == "rank":
        _check_rank_fault(event, where, how, point or "call", world_size)
    else:
        if point in ("inside", "after"):
            raise FaultError(f"fault {event!r}: a {kind} changes between collectives: @call=N or @time=S")
        try:
            changes.apply(topology, f"{kind}:{where}:{how}")
        except TopologyError as error:
            raise FaultError(str(error)) from None
    return Event(text, kind, where, how, point or "call", number, chance.getrandbits(32))


def _any(kind: str, topology: Topology, world_size: int, chance: random.Random) -> str:
    if kind == "rank":
        return str(chance.randrange(world_size))
    used = sorted({int(topology.chip_of(np.array(rank))) for rank in range(world_size)})
    if kind == "chip":
        return str(chance.choice(used))
    wires = sorted(
        {(min(a, b), max(a, b)) for a, b in zip(topology.links.src, topology.links.dst, strict=True)}
    )
    wires = [
        (int(a), int(b)) for a, b in wires if max(a, b) < topology.chips and {int(a), int(b)} & set(used)
    ]
    if not wires:
        raise FaultError(f"fault link:any: {topology.name} has no link between chips")
    return "{}-{}".format(*chance.choice(wires))


def _when(event: str, point: str, at: str, chance: random.Random) -> float:
    if point == "time":
        try:
            seconds = float(at)
        except ValueError:
            seconds = -1
        if not 0 <= seconds < float("inf"):
            raise FaultError(f"fault {event!r}: expected simulated seconds, such as @time=0.002")
        return seconds
    numbers = re.fullmatch(r"(\d+)(?:-(\d+))?", at)
    first, last = (int(numbers[1]), int(numbers[2] or numbers[1])) if numbers else (0, 0)
    if not 0 < first <= last:
        raise FaultError(
            f"fault {event!r}: expected a number of a collective, from 1, or a range such as 5-20"
        )
    return chance.randint(first, last)


def _check_rank_fault(event: str, where: str, how: str, point: str, world_size: int) -> None:
    if not where.isdecimal() or int(where) >= world_size:
        raise FaultError(f"fault {event!r}: the job has ranks 0 to {world_size - 1}")
    what, given, amount = how.partition("=")
    if what not in _RANK_FAULTS or bool(given) != (what == "delay"):
        raise FaultError(f"fault {event!r}: {_EXPECTED}")
    if what == "delay":
        _delay(event, amount)
    if _RANK_FAULTS[what] and point not in _RANK_FAULTS[what]:
        raise FaultError(f"fault {event!r}: {what} takes @call=N or @time=S")


def _delay(event: str, amount: str) -> float:
    try:
        seconds = float(amount)
    except ValueError:
        seconds = -1
    if not 0 <= seconds < float("inf"):
        raise FaultError(f"fault {event!r}: expected seconds, such as delay=0.5")
    return seconds


_stated: list[Event] = []  # in this process
_fabric: list[str] = []  # changes of links and chips; the index is the bit by which ranks tell each other


def inject(text: str) -> list[Event]:
    """State faults in a running job; calls are counted from the next collective.

    Events of links and chips must be injected alike on all ranks. Raises FaultError, and states nothing, if one
    makes no sense.
    """
    if not dist.is_initialized():
        raise FaultError("faults: inject() needs a process group, so that it knows the ranks and the machine")
    world_size = dist.get_world_size()
    topology = job_topology(world_size)
    events = parse(text, topology, world_size)
    if len(_fabric) + sum(event.kind != "rank" for event in events) > MOST_FABRIC_FAULTS:
        raise FaultError(f"faults: more than {MOST_FABRIC_FAULTS} of links and chips")
    _state(events, topology, dist.get_rank())
    return events


def stated() -> list[Event]:
    """The faults stated in this process, by the environment or :func:`inject`, struck or not."""
    return list(_stated)


def install_from_env(
    topology_spec: str, rank: int, world_size: int, env: Mapping[str, str] = os.environ
) -> None:
    """State what ``NEURON_SIM_FAULTS`` says, once in a process."""
    text = env.get("NEURON_SIM_FAULTS", "")
    if not text or _installed:
        return
    topology = job_topology(world_size, topology_spec)
    events = parse(text, topology, world_size)
    _installed.append(text)
    if int(env.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0:
        events = [event for event in events if event.kind != "rank"]
    _state(events, topology, rank)


_installed: list[str] = []


def _state(events: list[Event], topology: Topology, rank: int) -> None:
    for event in events:
        _stated.append(event)
        if event.kind == "rank":
            if int(event.where) == rank:
                what, _, amount = event.how.partition("=")
                _add(event, getattr(_C.Fault.Act, what), float(amount or 0))
            continue
        _add(event, _C.Fault.Act.fabric, bit=len(_fabric))
        _fabric.append(event.change)
        if event.kind == "chip" and int(topology.chip_of(np.array(rank))) == int(event.where):
            _add(event, _C.Fault.Act.chip_down)


def _add(event: Event, act: "_C.Fault.Act", seconds: float = 0, bit: int = 0) -> None:
    by_time = event.point == "time"
    _C.add_fault(
        _C.Fault(
            act=act,
            point=getattr(_C.Fault.Point, "call" if by_time else event.point),
            call=0 if by_time else int(event.at),
            time=event.at if by_time else 0,
            seconds=seconds,
            seed=event.seed,
            bit=bit,
            text=event.text,
        )
    )


@lru_cache(maxsize=64)
def changed(topology: Topology, cores: tuple[int, ...], struck: int) -> Topology:
    """The fabric for a group on ``cores`` once the faults with these bits have struck.

    A chip under the group itself stays in it: the ranks on that chip fail, and with them the collective.
    """
    own = set(topology.chip_of(np.array(cores)).tolist())
    for change in struck_changes(struck):
        kind, where, _ = change.split(":")
        if kind == "link" or int(where) not in own:
            topology = changes.apply(topology, change)
    return topology


def struck_changes(struck: int) -> list[str]:
    """The texts of the fabric faults with these bits."""
    return [change for bit, change in enumerate(_fabric) if struck >> bit & 1]


def warn_of_change(op: str, size: int, struck: int, before: str, after: str) -> None:
    """Say how the struck faults changed the collectives of a group; ``before`` and ``after`` tell plan and price."""
    faults = ", ".join(struck_changes(struck))
    warnings.warn(
        f"{faults}: {op} of {size} bytes now takes {after}; before, {before}", FaultWarning, stacklevel=2
    )
