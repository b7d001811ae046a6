"""The agent's side of `neuronrun`: torch's agent, with workers, logs and a report of our own."""

import logging
import os
import shutil
import sys
import uuid
from argparse import Namespace
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import torch.distributed as dist
from neuron_dist.collectives import CollectiveError
from neuron_dist.launcher import report
from neuron_dist.launcher.commands.report import summary
from neuron_dist.launcher.dry_run import describe
from neuron_dist.launcher.flags import get_args_parser
from neuron_dist.launcher.settings import nodes, settle
from neuron_dist.launcher.workers import Worker, WorkerLogs, Workers, parse_std
from torch.distributed import run as torchrun
from torch.distributed.elastic.multiprocessing import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, record
from torch.distributed.elastic.rendezvous import RendezvousError
from torch.distributed.launcher.api import elastic_launch

from neuron_dist.timeline import merge_traces

# Torch's loggers that tell of each worker's end, which the report does.
_SAID_IN_THE_REPORT = (
    "torch.distributed.elastic.multiprocessing.api",
    "torch.distributed.elastic.agent.server.api",
)


def run(argv: Sequence[str] | None = None) -> int:
    """Run a command line in this process and return the exit code, as of ``neuron_dist.launcher.run.main``."""
    args = get_args_parser().parse_args(argv)
    try:
        settle(args)
    except ValueError as error:
        return _fail(error, 2)
    if args.dry_run:
        print(describe(args))
        return 0
    if "LOGLEVEL" not in os.environ:
        for name in _SAID_IN_THE_REPORT:
            logging.getLogger(name).setLevel(logging.CRITICAL)
    workers = Workers(attempt_over=lambda attempt: _tell(attempt, args.max_restarts))
    try:
        record(launch)(args, workers)
    except ChildFailedError as error:
        workers.output.drain(1.0)
        return _report(error, workers)
    except SignalException as error:
        workers.output.drain(1.0)
        return _fail(f"stopped by {error.sigval.name}", 128 + error.sigval)
    except (RendezvousError, dist.DistError, ValueError, AssertionError, OSError) as error:
        return _fail(error, 1)
    finally:
        workers.output.drain(0.2)
        if workers.logs and not workers.keep_logs:
            shutil.rmtree(workers.logs.root_log_dir, ignore_errors=True)
        if args.report:
            _tell_verdict(args.report)
        if args.trace:
            print(f"neuronrun: trace written to {merge_traces(args.trace)}", file=sys.stderr)
    return 0


def _tell_verdict(folder: str) -> None:
    with suppress(CollectiveError):  # of ranks that made no group
        verdict = summary(Path(folder), over=True)["verdict"]
        print(f"neuronrun: {verdict} (more: neuron-dist report {folder})", file=sys.stderr)


def launch(args: Namespace, workers: Workers) -> None:
    """What ``torchrun.run`` does, with our workers. Raises ChildFailedError if one fails for good."""
    if args.standalone or (
        args.rdzv_backend == "static"
        and not args.rdzv_endpoint
        and args.master_port is None
        and nodes(args)[1] == 1
    ):
        args.rdzv_backend, args.rdzv_endpoint, args.rdzv_id = "c10d", "localhost:0", str(uuid.uuid4())
    if args.master_port is None:
        args.master_port = 29500
    ours = (
        not args.logs_specs and not args.run_path
    )  # functions (--run-path) write to torch's files themselves
    given = Namespace(**vars(args))
    if ours:  # ours do what these ask for; torch's parser of maps stops at rank 9
        args.redirects, args.tee, args.log_dir = "0", "0", os.devnull
        args.duplicate_stdout_filters, args.duplicate_stderr_filters = [], []
    config, command, command_args = torchrun.config_from_args(args)
    if ours:
        shown = (
            {int(rank) for rank in given.local_ranks_filter.split(",")} if given.local_ranks_filter else None
        )
        filters = {"stdout": given.duplicate_stdout_filters, "stderr": given.duplicate_stderr_filters}
        redirects, tee = parse_std(given.redirects), parse_std(given.tee)
        workers.logs = config.logs_specs = WorkerLogs(given.log_dir, redirects, tee, shown, filters)
        workers.keep_logs = bool(given.log_dir or redirects or tee)
    with workers.serve_torch():
        elastic_launch(config, command)(*command_args)


def _tell(attempt: list[Worker], max_restarts: int) -> None:
    if text := report.summary(attempt):
        number = attempt[0].attempt + 1
        print(f"neuronrun: attempt {number} of {max_restarts + 1}: {text}", file=sys.stderr)


def _report(error: ChildFailedError, workers: Workers) -> int:
    first = report.first_failure(workers.attempt)
    if first is None:  # workers that are functions (--run-path): torch's own report
        _, failure = error.get_first_failure()
        print(error, file=sys.stderr)
        return failure.exitcode if failure.exitcode >= 0 else 128 - failure.exitcode
    logs = workers.logs.run_dir if workers.logs and workers.keep_logs else ""
    return _fail(report.report(workers.attempt, logs), report.exit_code(first))


def _fail(error: object, code: int) -> int:
    print(f"neuronrun: error: {error}", file=sys.stderr)
    return code
