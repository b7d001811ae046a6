"""What a rank leaves in a folder for ``neuron-dist report`` and ``torchfrtrace``.

``rank_N.json``: its counters, written anew every second and at the end, so that a killed rank has left some.
``rank_N``: torch's flight recorder with what the fabric adds, written at the end, after a failure and on SIGUSR2.
"""

import atexit
import json
import os
import signal
import sys
import threading
import time
from collections import defaultdict
from pathlib import Path
from types import TracebackType
from typing import Any

from neuron_dist import _C

EVERY_S = 1.0


def dump(folder: "str | os.PathLike[str]", *, state: str = "running", failure: str = "") -> Path:
    """Write both files of this rank to ``folder``, which is made if need be; returns the path of ``rank_N``."""
    from neuron_dist.flight_recorder import flight_recorder_dump

    path = Path(folder, f"rank_{_rank()}")
    path.parent.mkdir(parents=True, exist_ok=True)
    _replace(path, flight_recorder_dump())
    _write_counters(Path(folder), {"state": state, "failure": failure, "links": busy_seconds()})
    return path


def busy_seconds() -> dict[str, float]:
    """Simulated seconds of traffic on each link, by its name, of the collectives that are still on record.

    Each group is told by its first rank, so that the ranks' add up to the job's.
    """
    from neuron_dist.planner import busy_links

    sizes: dict[tuple[str, str, str], int] = defaultdict(int)
    for record in _C.records():
        sizes[record.group, record.op, record.algorithm] += record.bytes
    busy: dict[str, float] = defaultdict(float)
    for (group, op, algorithm), size in sizes.items():
        for _, name, seconds in busy_links(group, op, algorithm, size):
            busy[name] += seconds
    return dict(busy)


def report_until_exit(folder: str) -> None:
    """Keep this rank's files in ``folder`` up to date until the process ends."""
    failure = ""
    told = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
        nonlocal failure
        failure = f"{kind.__name__}: {error}"
        told(kind, error, traceback)

    sys.excepthook = hook
    over = threading.Event()

    def keep_counters() -> None:
        while not over.wait(EVERY_S):
            _write_counters(Path(folder), {"state": "running"})

    _write_counters(Path(folder), {"state": "running"})
    thread = threading.Thread(target=keep_counters, name="neuron-report", daemon=True)
    thread.start()
    if (
        threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGUSR2) == signal.SIG_DFL
    ):
        signal.signal(signal.SIGUSR2, lambda *_: dump(folder))

    @atexit.register
    def end() -> None:
        over.set()
        thread.join()
        dump(folder, state="failed" if failure else "ended", failure=failure)


def _write_counters(folder: Path, more: dict[str, Any]) -> None:
    counters: dict[str, Any] = {
        "rank": _rank(),
        "world_size": int(os.environ.get("WORLD_SIZE", 1)),
        "pid": os.getpid(),
    }
    counters |= {"time": time.time(), "groups": _C.waits()} | more
    folder.mkdir(parents=True, exist_ok=True)
    _replace(folder / f"rank_{_rank()}.json", json.dumps(counters).encode())


def _replace(path: Path, content: bytes) -> None:
    """Readers see the old file or the new one, whole."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    partial.write_bytes(content)
    partial.replace(path)


def _rank() -> int:
    return int(os.environ.get("RANK", 0))
