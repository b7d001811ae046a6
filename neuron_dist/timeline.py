"""Timelines of a job for Perfetto or chrome://tracing: one file, two clocks kept apart.

Each rank writes ``rank-N.json`` when its process ends; ``merge_traces`` makes one ``trace.json`` of them. The process
"fabric (simulated)" has a track per rank and one per busy link, in simulated time; the process "host (measured)" a
track per rank in the time of this host.
"""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

SIMULATED, LINKS, HOST = 1, 2, 3  # Chrome's process ids
_PROCESSES = {SIMULATED: "fabric (simulated)", LINKS: "links (simulated)", HOST: "host (measured)"}
KEPT = 1_000_000  # operations of a rank


@contextmanager
def trace(path: "str | os.PathLike[str]") -> Iterator[None]:
    """Write what this process's groups do inside the block to ``path``, as Chrome trace events."""
    from neuron_dist import _C

    _C.keep_records(KEPT)
    before = len(_C.records())
    try:
        yield
    finally:
        Path(path).write_text(json.dumps({"traceEvents": _events(_C.records()[before:], _rank())}))


def trace_until_exit(folder: str) -> None:
    """Have this rank write its part of the job's trace to ``folder`` when the process ends."""
    import atexit

    from neuron_dist import _C

    _C.keep_records(KEPT)

    @atexit.register
    def write() -> None:
        path = Path(folder, f"rank-{_rank()}.json")
        path.write_text(json.dumps({"traceEvents": _events(_C.records(), _rank())}))


def merge_traces(folder: "str | os.PathLike[str]") -> Path:
    """One ``trace.json`` of the ranks' files in ``folder``, which it removes."""
    parts = sorted(Path(folder).glob("rank-*.json"))
    events = [event for part in parts for event in json.loads(part.read_text())["traceEvents"]]
    first = min((event["ts"] for event in events if event["pid"] == HOST and "ts" in event), default=0)
    for event in events:
        if event["pid"] == HOST and "ts" in event:
            event["ts"] -= first
    names = [
        {"ph": "M", "name": "process_name", "pid": pid, "args": {"name": n}} for pid, n in _PROCESSES.items()
    ]
    merged = Path(folder, "trace.json")
    merged.write_text(json.dumps({"traceEvents": names + events}))
    for part in parts:
        part.unlink()
    return merged


def _rank() -> int:
    return int(os.environ.get("RANK", 0))


def _events(records: list[Any], rank: int) -> list[dict[str, Any]]:
    """Times in microseconds, as Chrome wants them."""
    from neuron_dist.planner import link_bytes

    names = ((pid, rank, f"rank {rank}") for pid in (SIMULATED, HOST))
    events = [
        {"ph": "M", "name": "thread_name", "pid": p, "tid": t, "args": {"name": n}} for p, t, n in names
    ]
    for record in records:
        details = {"group": record.group, "call": record.sequence_number, "bytes": record.bytes}
        details |= {"algorithm": record.algorithm, "steps": record.steps}
        details["link_bytes"] = link_bytes(record.group, record.op, record.algorithm, record.bytes)
        shown = {"ph": "X", "name": record.op, "tid": rank, "args": details}
        simulated = (record.start * 1e6, (record.end - record.start) * 1e6)
        measured = (record.host_start / 1e3, (record.host_end - record.host_start) / 1e3)
        for pid, (start, duration) in ((SIMULATED, simulated), (HOST, measured)):
            events.append(shown | {"pid": pid, "ts": start, "dur": duration})
    return events + _links(records)


def _links(records: list[Any]) -> list[dict[str, Any]]:
    """How long each collective keeps each link busy; by the group's first rank, which tells it for all."""
    from neuron_dist.planner import busy_links

    events: list[dict[str, Any]] = []
    for record in records:
        for link, name, seconds in busy_links(record.group, record.op, record.algorithm, record.bytes):
            events.append(
                {"ph": "M", "name": "thread_name", "pid": LINKS, "tid": link, "args": {"name": name}}
            )
            details = {"group": record.group, "algorithm": record.algorithm}
            event = {"ph": "X", "name": record.op, "pid": LINKS, "tid": link, "args": details}
            events.append(event | {"ts": record.start * 1e6, "dur": seconds * 1e6})
    return events
