"""Jobs for the launcher's tests: scripts without torch, which start at once."""

import subprocess
import sysconfig
import time
from collections.abc import Callable
from pathlib import Path

import psutil

BIN = Path(sysconfig.get_path("scripts"))

# Leaves its pid in the script's folder.
NOTE_PID = """
import os, pathlib, signal, subprocess, sys, time
here = pathlib.Path(__file__).parent
rank = int(os.environ["RANK"])
def note(name, pid):
    (here / f"{name}.tmp").write_text(str(pid))
    os.rename(here / f"{name}.tmp", here / f"{name}.pid")
note(f"rank{rank}", os.getpid())
"""


def start(
    folder: Path, body: str, *flags: object, launcher: str = "neuronrun", **options
) -> subprocess.Popen:
    """Start a job whose workers run ``body`` after NOTE_PID, its output in pipes."""
    script = folder / "job.py"
    script.write_text(NOTE_PID + body)
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **options}
    return subprocess.Popen([BIN / launcher, *map(str, flags), script], **options)


def run(folder: Path, body: str, *flags: object, **options) -> subprocess.CompletedProcess:
    job = start(folder, body, *flags, **options)
    out, err = job.communicate(timeout=60)
    return subprocess.CompletedProcess(job.args, job.returncode, out, err)


def pids(folder: Path, count: int) -> list[int]:
    """The pids that the job's processes note, once there are ``count`` of them."""
    until(lambda: len(list(folder.glob("*.pid"))) >= count)
    return [int(file.read_text()) for file in sorted(folder.glob("*.pid"))]


def until(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(0.02)


def alive(pids: list[int]) -> list[int]:
    return [
        pid for pid in pids if psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    ]


def gone(pids: list[int]) -> None:
    """Assert that the processes end within some seconds."""
    until(lambda: not alive(pids), 10.0)
