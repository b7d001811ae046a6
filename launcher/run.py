"""`neuronrun`: torchrun for the simulated fabric. This is its outer process, which sees to it that the job ends.

    neuronrun (this file; no torch)      passes signals on, adopts and ends what the job leaves behind
      agent (job.py)                     torch's elastic agent: rendezvous, restarts, output, report
        worker 0 ... worker N-1          each the leader of a session of its own

Any of them may be killed with SIGKILL. Workers die with the agent (PR_SET_PDEATHSIG). What they started is ended by
this process, which the kernel makes its parent; or, if this one is killed, by the agent, which notices by a pipe.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Sequence

from neuron_dist.launcher import processes

GRACE = 2.0  # seconds that the leavings of a failed job have between SIGTERM and SIGKILL
SECOND_PRESS = 0.3  # seconds after which another Ctrl-C is a second one, not an echo of the first

_PASSED_ON = {
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line ``argv`` (default: this process's own) and return its exit code.

    0 if every worker ended well; else the exit code of the worker that failed first, 128 + N if signal N killed it or
    stopped the job; 1 if the job could not start or go on; 2 if the command line is wrong.
    """
    agent = _fork_agent()
    if agent:
        return _watch(agent)
    from neuron_dist.launcher.job import run  # brings torch; the outer process does without

    return run(argv)


def _fork_agent() -> int:
    """Fork; 0 in the agent, which ends with this process and is out of the terminal's reach."""
    processes.adopt_orphans()
    signal.pthread_sigmask(signal.SIG_BLOCK, {*_PASSED_ON, signal.SIGCHLD})
    read_end, write_end = os.pipe()  # never written to: it closes when this process ends
    agent = os.fork()
    if agent:
        os.close(read_end)
        return agent
    os.close(write_end)
    os.setpgid(0, 0)
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # until torch's agent handles it
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {*_PASSED_ON, signal.SIGCHLD})
    threading.Thread(target=_end_with, args=(read_end,), daemon=True).start()
    return 0


def _end_with(read_end: int) -> None:
    """In the agent: when the outer process has been killed, end the workers and all that they started."""
    os.read(read_end, 1)
    processes.end(processes.of_job)
    os._exit(128 + signal.SIGKILL)


def _watch(agent: int) -> int:
    """Pass signals on until the agent has ended; the job's exit code. The second Ctrl-C kills."""
    pressed: float | None = None
    while True:
        number = signal.sigwaitinfo({*_PASSED_ON, signal.SIGCHLD}).si_signo
        if number == signal.SIGCHLD:
            status = _reap(agent)
            if status is not None:
                break
        elif number in (signal.SIGINT, signal.SIGQUIT) and pressed is not None:
            if time.monotonic() - pressed > SECOND_PRESS:
                _say("killed by the second Ctrl-C")
                processes.end(processes.of_job)
                return 128 + number
        else:
            if number == signal.SIGINT:
                pressed = time.monotonic()
                if sys.stderr.isatty():
                    _say("stopping the workers; Ctrl-C again kills them")
            os.kill(agent, number)
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        if pressed is None:
            _say(f"error: the launcher's agent (pid {agent}) was killed by {processes.signal_name(-code)}")
        code = 128 - code
    if code != 0:
        processes.end(processes.of_job, GRACE)
    return code


def _reap(agent: int) -> int | None:
    """Collect what has ended, adopted processes too; the agent's wait status once it is among them."""
    found = None
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return found
        if pid == 0:
            return found
        if pid == agent:
            found = status


def _say(text: str) -> None:
    print(f"neuronrun: {text}", file=sys.stderr, flush=True)
