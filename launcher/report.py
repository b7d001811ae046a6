"""The report of a failed job: who failed first and why, then every other rank's fate."""

import json
import re
from collections.abc import Iterable, Sequence

from neuron_dist.launcher.processes import signal_name
from neuron_dist.launcher.workers import Worker

LONGEST = 40  # lines of a traceback
TEARDOWN_S = 10.0  # that an interpreter may take to end once it has printed why
_HEADER = re.compile(r"^Traceback \(most recent call last\):", re.MULTILINE)
_CHAINED = re.compile(
    r"\n\n(During handling of the above exception, another exception occurred|"
    r"The above exception was the direct cause of the following exception):\n\n\Z"
)


def first_failure(workers: Sequence[Worker]) -> Worker | None:
    """The worker that failed first, by when its traceback began or it died; one that was stopped only if all were."""
    failed = [worker for worker in workers if worker.proc.returncode]
    by_themselves = [worker for worker in failed if not was_stopped(worker)] or failed
    return min(by_themselves, key=failed_at, default=None)


def failed_at(worker: Worker) -> float:
    end = worker.ended if worker.ended is not None else float("inf")
    found = _traceback(worker)
    return min(end, found[0]) if found else end


def was_stopped(worker: Worker) -> bool:
    """Whether the launcher ended it: it was sent a signal and died of it, or after it, without a traceback.

    One whose last words were a traceback just before was ending by itself.
    """
    if worker.stopped_by is None:
        return False
    if failed_at(worker) > worker.stopped_at:
        return True
    died_of = -(worker.proc.returncode or 0)
    return died_of in (worker.stopped_by, 9) and not _was_ending(worker)


def _was_ending(worker: Worker) -> bool:
    found = _traceback(worker)
    if found is None or not worker.stopped_at - TEARDOWN_S < found[0] < worker.stopped_at:
        return False
    return _text(worker.streams["stderr"].tail).rstrip().endswith("\n".join(found[1]).rstrip())


def exit_code(worker: Worker) -> int:
    code = worker.proc.returncode or 0
    return code if code >= 0 else 128 - code


def report(workers: Sequence[Worker], logs: str = "") -> str:
    """Lines for the end of the launcher's output."""
    first = first_failure(workers)
    if first is None:
        return "the job failed, but no rank of this node did"
    lines = [f"{_name(first)} failed first: {_how(first)} after {failed_at(first) - first.started:.1f} s"]
    reason = reason_of(first)
    lines += ["    " + line for line in reason]
    others = sorted((worker for worker in workers if worker is not first), key=failed_at)
    fates: dict[str, list[Worker]] = {}
    for worker in others:
        fates.setdefault(_fate(worker, first), []).append(worker)
    lines += [f"{_names(group)} {fate}" for fate, group in fates.items()]
    if logs:
        lines.append(f"logs: {logs}")
    return "\n".join(lines)


def summary(workers: Sequence[Worker]) -> str:
    """One line, for an attempt that is followed by another; empty if no worker failed by itself."""
    first = first_failure(workers)
    if first is None or was_stopped(first):
        return ""
    reason = reason_of(first)
    told = f": {reason[-1].strip()[:200]}" if reason else ""
    return f"{_name(first)} failed: {_how(first)}".rstrip(",") + told


def reason_of(worker: Worker) -> list[str]:
    """Its traceback: what torch's ``@record`` wrote, else what it printed; failing both, its last words."""
    recorded = _recorded(worker)
    if recorded:
        return _shortened(recorded.rstrip().split("\n"))
    found = _traceback(worker)
    if found:
        return _shortened(found[1])
    stderr = worker.streams.get("stderr")
    words = [line for line in _text(stderr.tail).split("\n") if line.strip()] if stderr else []
    return words[-5:]


def _fate(worker: Worker, first: Worker) -> str:
    code = worker.proc.returncode
    if code is None:
        return "did not end"
    if code == 0:
        return "ended well"
    if was_stopped(worker):
        return f"ended by neuronrun ({signal_name(-code) if code < 0 else f'exit code {code}'})"
    reason = reason_of(worker)
    later = failed_at(worker) - failed_at(first)
    return f"{_how(worker)}, {later:.1f} s later" + (f": {reason[-1].strip()[:200]}" if reason else "")


def _how(worker: Worker) -> str:
    code = worker.proc.returncode or 0
    if code >= 0:
        return f"exit code {code}"
    hint = ", as the kernel sends when memory runs out," if code == -9 else ""
    return f"killed by {signal_name(-code)}{hint}"


def _name(worker: Worker) -> str:
    return f"rank {worker.rank} (local rank {worker.local_rank}, pid {worker.proc.pid})"


def _names(workers: Sequence[Worker]) -> str:
    if len(workers) == 1:
        return _name(workers[0])
    return "ranks " + ", ".join(_ranges(sorted(worker.rank for worker in workers)))


def _ranges(numbers: Iterable[int]) -> list[str]:
    spans: list[list[int]] = []
    for number in numbers:
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return [str(a) if a == b else f"{a}-{b}" for a, b in spans]


def _recorded(worker: Worker) -> str:
    try:
        with open(worker.error_file) as file:
            message = json.load(file)["message"]
    except (OSError, ValueError, KeyError, TypeError):
        return ""
    if isinstance(message, str):
        return message
    return str(message.get("extraInfo", {}).get("py_callstack") or message.get("message", ""))


def _traceback(worker: Worker) -> tuple[float, list[str]] | None:
    """When its last traceback began, that of a chain with the first of the chain, and its last part's lines."""
    stream = worker.streams.get("stderr")
    if stream is None or not stream.tracebacks:
        return None
    text = _text(stream.tail)
    headers = [match.start() for match in _HEADER.finditer(text)]
    if not headers:
        return None
    chained = 0
    while chained + 1 < len(headers) and _CHAINED.search(text[: headers[-1 - chained]]):
        chained += 1
    times = list(stream.tracebacks)
    began = times[max(0, len(times) - 1 - chained)][1]
    return began, _block(text[headers[-1] :])


def _block(text: str) -> list[str]:
    """A traceback's lines: the header, the indented ones, and the exception up to an empty line."""
    lines = text.split("\n")
    end = 1
    while end < len(lines) and lines[end].startswith(" "):
        end += 1
    while end < len(lines) and lines[end].strip():
        end += 1
    return lines[:end]


def _shortened(lines: list[str]) -> list[str]:
    if len(lines) <= LONGEST:
        return lines
    half = LONGEST // 2
    return [*lines[:half], f"... {len(lines) - 2 * half} lines ...", *lines[-half:]]


def _text(data: bytes) -> str:
    return data.decode(errors="replace").replace("\r\n", "\n")
