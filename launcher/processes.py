"""Processes of a job: who descends from whom, and that none outlives it."""

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36

_prctl = ctypes.CDLL(None).prctl


@dataclass(frozen=True)
class Process:
    pid: int
    parent: int
    session: int


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent ends, in place of init."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with(parent: int) -> None:
    """Have the kernel kill this process when its parent ends; to be called in the child, before it execs."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it has ended already
        os._exit(128 + signal.SIGKILL)


def running() -> Iterator[Process]:
    """The processes of this PID namespace, zombies left out."""
    for name in os.listdir("/proc"):
        if not name.isdecimal():
            continue
        try:
            with open(f"/proc/{name}/stat") as file:
                state, parent, _, session = file.read().rpartition(")")[2].split()[:4]
        except OSError:  # it has just ended
            continue
        if state not in "ZX":
            yield Process(int(name), int(parent), int(session))


def descendants(root: int) -> list[int]:
    """Pids of the children of ``root``, their children, and so on."""
    children: dict[int, list[int]] = {}
    for process in running():
        children.setdefault(process.parent, []).append(process.pid)
    found: list[int] = []
    level = [root]
    while level:
        level = [pid for parent in level for pid in children.get(parent, ())]
        found += level
    return found


workers_sessions: set[int] = set()  # that this process has started; their ids are the workers' pids


def of_job() -> list[int]:
    """Pids of this process's descendants, and of what its workers started whose parent has ended."""
    return list({*descendants(os.getpid()), *in_sessions(workers_sessions)})


def in_sessions(sessions: set[int]) -> list[int]:
    """Pids of what runs in these sessions: a worker leads one, and what it starts stays there."""
    return [process.pid for process in running() if process.session in sessions]


def end(find: Callable[[], list[int]], grace: float = 0.0) -> None:
    """End the processes that ``find`` returns: by SIGTERM, after ``grace`` seconds by SIGKILL."""
    if grace > 0:
        _signal(find(), signal.SIGTERM)
    deadline = time.monotonic() + grace
    while time.monotonic() < deadline and find():
        time.sleep(0.02)
    deadline = time.monotonic() + 5.0  # one in the kernel's hands for longer is left to it
    while (left := find()) and time.monotonic() < deadline:
        _signal(left, signal.SIGKILL)
        time.sleep(0.005)


def _signal(pids: list[int], signum: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signum)


def signal_name(number: int) -> str:
    """``SIGTERM`` for 15; "signal 64" for one without a name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
