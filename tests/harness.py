"""Run a test function on N real processes that form a process group.

    def all_ranks_agree(rank, world_size, dtype):
        tensor = torch.full((3,), rank, dtype=dtype, device="neuron")
        dist.all_reduce(tensor)
        return tensor.cpu()

    def test_all_reduce():
        results = run(4, all_ranks_agree, torch.float32)

The processes fork from a server that has torch imported, one server per pytest process, so that only the
first run pays for the import. The server never touches a device: forked children may use it.
"""

import contextlib
import ctypes
import faulthandler
import multiprocessing
import os
import pickle
import signal
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

GRACE = 10.0  # seconds that the other ranks have to end once one has failed
_PR_SET_PDEATHSIG = 1

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(
    [
        "torch.distributed.checkpoint.state_dict",
        "torch.distributed.fsdp",
        "torch.distributed.pipelining",
        "torch.distributed.tensor.parallel",
        "torch.nn.parallel.distributed",
        "numpy",
        "pytest",
    ]
)


class RanksFailed(AssertionError):
    """Some ranks raised, died or did not end in time.

    ``errors`` holds, per failed rank, its traceback or how it ended; ``results`` what the others returned.
    Ranks are in the order in which they failed, so the first is the likely cause.
    """

    def __init__(self, errors: dict[int, str], results: dict[int, Any]) -> None:
        self.errors = errors
        self.results = results
        super().__init__("".join(f"\n--- rank {rank} ---\n{error}" for rank, error in errors.items()))


def run(
    nproc: int,
    fn: Callable[..., Any],
    *args: Any,
    backend: str | None = "neuron",
    timeout: float = 60,
    group_timeout: float | None = None,
    env: Mapping[str, str] | None = None,
) -> list[Any]:
    """Call ``fn(rank, world_size, *args)`` on ``nproc`` processes and return the results in rank order.

    ``fn`` is a function at the top level of a module; it, ``args`` and the results travel by pickle, so
    return CPU tensors. Each process has torchrun's environment, one compute thread and a process group of
    ``backend``, whose timeout is ``group_timeout`` seconds, by default ``timeout``; with ``backend=None`` it
    has no group and may call ``init_process_group`` itself. ``env`` adds variables, too late for those read
    during ``import torch``.

    Raises RanksFailed unless every rank returns within ``timeout`` seconds, and within 10 s of the first
    failure. Ranks that hang are killed, and their Python stacks reported. No process outlives the call, nor
    pytest's own death.
    """
    store = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    launch_env = {
        **os.environ,
        "MASTER_ADDR": "localhost",
        "MASTER_PORT": str(store.port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",  # every rank is a client: the store outlives any of them
        "WORLD_SIZE": str(nproc),
        "LOCAL_WORLD_SIZE": str(nproc),
        **(env or {}),
    }
    with tempfile.TemporaryDirectory(prefix="ranks-") as stacks:
        processes, reports = [], []
        try:
            for rank in range(nproc):
                report, child_end = _context.Pipe(duplex=False)
                stack = Path(stacks, str(rank))
                rank_env = {**launch_env, "RANK": str(rank), "LOCAL_RANK": str(rank)}
                process = _context.Process(
                    target=_child,
                    args=(child_end, stack, rank_env, backend, group_timeout or timeout, fn, args),
                )
                process.start()
                child_end.close()
                processes.append(process)
                reports.append(report)
            results, errors = _collect(processes, reports, time.monotonic() + timeout)
            errors.update(_stragglers(processes, Path(stacks), set(results) | set(errors)))
        finally:
            for process in processes:
                process.kill()
            for process in processes:
                process.join()
    if errors:
        raise RanksFailed(errors, results)
    return [results[rank] for rank in range(nproc)]


def _collect(
    processes: list[Any], reports: list[Connection], deadline: float
) -> tuple[dict[int, Any], dict[int, str]]:
    """Results and errors by rank, of the ranks that report or die in time."""
    results: dict[int, Any] = {}
    errors: dict[int, str] = {}
    ranks = {report: rank for rank, report in enumerate(reports)}
    while ranks and (left := deadline - time.monotonic()) > 0:
        for report in wait(list(ranks), left):
            rank = ranks.pop(report)
            try:
                ok, value = pickle.loads(report.recv_bytes())
            except EOFError:  # it died without a word
                processes[rank].join()
                ok, value = False, _how_it_ended(processes[rank].exitcode)
            if ok:
                results[rank] = value
            else:
                errors[rank] = value
                deadline = min(deadline, time.monotonic() + GRACE)
    for rank in results:  # a rank that reported may still hang, or crash, while it destroys its group
        processes[rank].join(max(0.0, deadline - time.monotonic()) + 1.0)
        if processes[rank].exitcode != 0:
            errors[rank] = "returned from the function, but then " + _how_it_ended(processes[rank].exitcode)
    return results, errors


def _stragglers(processes: list[Any], stacks: Path, reported: set[int]) -> dict[int, str]:
    """What the ranks that have not reported are doing: has each write its Python stacks to its file."""
    hung = [rank for rank in range(len(processes)) if rank not in reported]
    for rank in hung:
        with contextlib.suppress(ProcessLookupError):
            os.kill(processes[rank].pid, signal.SIGUSR1)
    if hung:
        time.sleep(0.5)
    return {
        rank: "did not end in time; its stacks:\n" + (stacks / str(rank)).read_text()
        if (stacks / str(rank)).exists()
        else "did not start in time"
        for rank in hung
    }


def _how_it_ended(exitcode: int | None) -> str:
    if exitcode is None:
        return "did not end in time"
    if exitcode < 0:
        return f"died of {signal.Signals(-exitcode).name}"
    return f"exited with code {exitcode}"


def _child(
    report: Connection,
    stack: Path,
    env: dict[str, str],
    backend: str | None,
    timeout: float,
    fn: Callable[..., Any],
    args: tuple[Any, ...],
) -> None:
    # The server ends when pytest does, however that ended, and this process with the server.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    with stack.open("w") as stack_file:
        faulthandler.register(signal.SIGUSR1, file=stack_file, all_threads=True)
        os.environ.clear()
        os.environ.update(env)
        torch.set_num_threads(1)
        try:
            if backend is not None:
                dist.init_process_group(backend, timeout=timedelta(seconds=timeout))
            result = fn(int(env["RANK"]), int(env["WORLD_SIZE"]), *args)
            message = pickle.dumps((True, result))
        except BaseException:
            report.send_bytes(pickle.dumps((False, traceback.format_exc())))
            os._exit(1)  # no clean-up: the peers see a rank that is gone
        report.send_bytes(message)
        if dist.is_initialized():
            dist.destroy_process_group()
