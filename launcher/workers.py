"""The workers of this node: started for torch's agent so that they end with it, their output carried by `Output`."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from string import Template
from typing import Any
from unittest import mock

from neuron_dist.launcher import processes
from neuron_dist.launcher.output import Console, Filtered, Output, Stream
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, Std
from torch.distributed.elastic.multiprocessing import api as torch_api
from torch.distributed.elastic.multiprocessing.api import LogsDest, to_map
from torch.distributed.elastic.multiprocessing.subprocess_handler import SubprocessHandler

PREFIX = "[${role_name}${rank}]:"  # torch's own has the local rank, which several nodes share


def parse_std(text: str) -> "Std | dict[int, Std]":
    """What -r and -t take: 0 to 3, or a map such as ``0:1,12:3``. Torch's own stops at rank 9."""
    if re.fullmatch("[0-3]", text):
        return Std(int(text))
    if re.fullmatch(r"\d+:[0-3](,\d+:[0-3])*", text):
        return {int(rank): Std(int(value)) for rank, value in (part.split(":") for part in text.split(","))}
    raise ValueError(f"{text!r}: expected 0, 1 (stdout), 2 (stderr), 3 (both), or a map such as 0:3,12:1")


class WorkerLogs(DefaultLogsSpecs):
    """Torch's layout of a log folder. What torch would tail from the files, `Output` carries instead."""

    def __init__(
        self,
        log_dir: str | None,
        redirects: "Std | dict[int, Std]",
        tee: "Std | dict[int, Std]",
        local_ranks: "set[int] | None",
        filters: Mapping[str, list[str]],
    ) -> None:
        super().__init__(log_dir, redirects, tee, local_ranks)
        self.shown = local_ranks
        self.filters = filters  # of "stdout" and "stderr"
        self.filtered: dict[str, Filtered | None] = {}
        self.teed: dict[int, Std] = {}
        self.run_dir = ""

    def reify(self, envs: dict[int, dict[str, str]]) -> LogsDest:
        dest = super().reify(envs)
        self.run_dir = self._run_log_dir or ""
        self.teed = to_map(self._tee, len(envs))
        paths = {"stdout": dest.filtered_stdout, "stderr": dest.filtered_stderr}
        self.filtered = {
            std: Filtered(paths[std], [needle.encode() for needle in needles]) if needles else None
            for std, needles in self.filters.items()
        }
        dest.tee_stdouts, dest.tee_stderrs = {}, {}
        return dest

    def stream(self, std: str, local_rank: int, path: str | None, prefix: bytes) -> Stream:
        """Where a worker's stream goes: ``path`` is its log file, empty for the console."""
        flag = Std.OUT if std == "stdout" else Std.ERR
        teed = bool(self.teed.get(local_rank, Std.NONE) & flag)
        shown = not self.shown or local_rank in self.shown
        console = Console(1 if std == "stdout" else 2) if shown and (teed or not path) else None
        file = open(path, "wb", buffering=0) if path and path != os.devnull else None  # noqa: SIM115
        return Stream(console, prefix if teed else b"", file, self.filtered.get(std) if teed else None)


@dataclass
class Workers:
    """The workers of the current attempt, and how they are started."""

    output: Output = field(default_factory=Output)
    logs: WorkerLogs | None = None
    keep_logs: bool = False  # the user wants them
    attempt: "list[Worker]" = field(default_factory=list)
    attempt_over: "Callable[[list[Worker]], None]" = lambda workers: None  # called before the next
    consoles: dict[str, Console] = field(default_factory=lambda: {"stdout": Console(1), "stderr": Console(2)})

    @contextlib.contextmanager
    def serve_torch(self) -> Iterator[None]:
        """Have torch's agent start its workers here."""
        with mock.patch.object(torch_api, "get_subprocess_handler", self._start):
            yield

    def _start(self, **arguments: Any) -> "Worker":
        if arguments["local_rank_id"] == 0:
            self._end_attempt()
        self.attempt.append(Worker(self, **arguments))
        return self.attempt[-1]

    def _end_attempt(self) -> None:
        """Before another attempt: nothing of the last one may hold its ports or files."""
        sessions = {worker.proc.pid for worker in self.attempt}
        if sessions:
            processes.end(lambda: processes.in_sessions(sessions))
            self.output.drain(1.0)
            self.attempt_over(self.attempt)
        self.attempt = []


class Worker(SubprocessHandler):
    """A worker process, the leader of a session: it ends with the agent; what it writes passes through `Output`."""

    def __init__(
        self,
        workers: Workers,
        *,
        entrypoint: str,
        args: tuple,
        env: dict[str, str],
        stdout: str | None,
        stderr: str | None,
        local_rank_id: int,
        numa_options: Any = None,
    ) -> None:
        self._workers = workers
        self._paths = {"stdout": stdout, "stderr": stderr}
        self.local_rank = local_rank_id
        self.rank = int(env.get("RANK", local_rank_id))
        self.attempt = int(env.get("TORCHELASTIC_RESTART_COUNT", 0))
        self.error_file = env.get("TORCHELASTIC_ERROR_FILE", "")
        self.started = time.monotonic()
        self.ended: float | None = None
        self.stopped_by: signal.Signals | None = None  # what the agent has sent to end it
        self.stopped_at = 0.0
        add_neuron_variables(env)
        super().__init__(entrypoint, args, env, None, None, local_rank_id, numa_options)
        processes.workers_sessions.add(self.proc.pid)
        workers.output.notice_end(self.proc.pid, self._note_end)

    def _popen(self, args: tuple, env: dict[str, str]) -> "subprocess.Popen[bytes]":
        agent = os.getpid()
        self.streams: dict[str, Stream] = {}
        ends: dict[str, int] = {}
        if not inherits_terminal(int(env.get("LOCAL_WORLD_SIZE", 1)), self._paths):
            template = env.get("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE", PREFIX)
            prefix = Template(template).safe_substitute(
                role_name=env.get("ROLE_NAME", ""), rank=self.rank, local_rank=self.local_rank
            )
            for std, path in self._paths.items():
                stream = _stream(self._workers, std, self.local_rank, path, prefix.encode())
                self.streams[std] = stream
                ends[std] = self._workers.output.add(stream)
        try:
            return subprocess.Popen(
                args,
                env=env,
                start_new_session=True,
                preexec_fn=lambda: processes.die_with(agent),
                stdout=ends.get("stdout"),
                stderr=ends.get("stderr"),
            )
        finally:
            for end in ends.values():
                os.close(end)

    def _note_end(self, when: float) -> None:
        self.ended = when

    def close(self, death_sig: signal.Signals | None = None) -> None:
        self.stopped_by = death_sig or signal.SIGTERM
        self.stopped_at = self.stopped_at or time.monotonic()
        with contextlib.suppress(ProcessLookupError):  # it has ended since torch looked
            super().close(death_sig)


def _stream(workers: Workers, std: str, local_rank: int, path: str | None, prefix: bytes) -> Stream:
    if workers.logs is None:  # logs specs of the user's: torch tails their files
        file = open(path, "wb", buffering=0) if path and path != os.devnull else None  # noqa: SIM115
        stream = Stream(None if path else workers.consoles[std], file=file)
    else:
        stream = workers.logs.stream(std, local_rank, path, prefix)
        if stream.console:
            stream.console = workers.consoles[std]
    return stream


def inherits_terminal(local_world_size: int, paths: Mapping[str, str | None]) -> bool:
    """A single worker keeps the terminal, for debuggers and progress bars."""
    return local_world_size == 1 and not any(paths.values()) and sys.stdout.isatty() and sys.stderr.isatty()


def add_neuron_variables(env: dict[str, str]) -> None:
    """What TorchNeuron's runtime asks for and the user has not given."""
    if "MASTER_PORT" in env and "NEURON_RT_ROOT_COMM_ID" not in os.environ:
        port = int(env["MASTER_PORT"])  # the store's; the runtime wants one of its own
        env["NEURON_RT_ROOT_COMM_ID"] = f"{env['MASTER_ADDR']}:{port + 1 if port < 65535 else port - 1}"
