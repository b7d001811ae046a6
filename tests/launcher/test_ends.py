"""However a job ends, nothing of it stays, and the exit code says how it ended."""

import os
import signal

import psutil
import pytest

from tests.launcher.jobs import alive, gone, pids, run, start, until

SLEEP = "time.sleep(600)\n"
# Each worker has a child, a grandchild in a session of its own, and an orphan.
FAMILY = """
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
note(f"child{rank}", child.pid)
daemon = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
note(f"daemon{rank}", daemon.pid)
orphan = subprocess.run(["sh", "-c", "sleep 600 >/dev/null 2>&1 & echo $!"], stdout=subprocess.PIPE, text=True)
note(f"orphan{rank}", orphan.stdout.strip())
"""


def agent_of(job) -> psutil.Process:
    """The launcher's first child; orphans that it has adopted come later."""
    return min(psutil.Process(job.pid).children(), key=lambda child: child.create_time())


@pytest.mark.parametrize("victim", ["launcher", "agent"])
def test_killing_the_launcher_leaves_no_process(victim, tmp_path):
    job = start(tmp_path, FAMILY + SLEEP, "--nproc-per-node", 2)
    family = pids(tmp_path, 8)
    agent = agent_of(job)
    os.kill(job.pid if victim == "launcher" else agent.pid, signal.SIGKILL)
    gone([*family, agent.pid])
    assert job.wait(10) == (-signal.SIGKILL if victim == "launcher" else 128 + signal.SIGKILL)


def test_killing_launcher_and_agent_at_once_takes_the_workers(tmp_path):
    job = start(tmp_path, SLEEP, "--nproc-per-node", 2)
    workers = pids(tmp_path, 2)
    agent = agent_of(job)
    os.kill(job.pid, signal.SIGSTOP)
    os.kill(agent.pid, signal.SIGKILL)
    os.kill(job.pid, signal.SIGKILL)
    gone(workers)


def test_a_failed_job_leaves_no_process(tmp_path):
    fail = "until = here / 'rank1.pid'\nif rank == 0:\n    sys.exit(7)\n"
    job = start(tmp_path, FAMILY + fail + SLEEP, "--nproc-per-node", 2)
    assert job.wait(60) == 7
    gone(pids(tmp_path, 1))


def test_a_restart_leaves_nothing_of_the_attempt_before(tmp_path):
    body = """
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    note("child", subprocess.Popen(["sleep", "600"]).pid)
    sys.exit(1)
os.kill(int((here / "child.pid").read_text()), 0)
"""
    job = run(tmp_path, body, "--max-restarts", 1)
    assert job.returncode == 1
    assert "ProcessLookupError" in job.stderr


def test_what_a_job_that_ends_well_started_may_go_on(tmp_path):
    job = start(tmp_path, 'note("child", subprocess.Popen(["sleep", "600"], stdout=2, stderr=1).pid)\n')
    child = pids(tmp_path, 2)[0]
    try:
        assert job.wait(60) == 0
        assert alive([child])
    finally:
        os.kill(child, signal.SIGKILL)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT])
def test_signals_reach_the_workers(number, tmp_path):
    body = f"""
signal.signal({int(number)}, lambda *_: (note("got" + str(rank), 0), sys.exit(0)))
note("ready" + str(rank), 0)
time.sleep(600)
"""
    job = start(tmp_path, body, "--nproc-per-node", 2)
    until(lambda: len(list(tmp_path.glob("ready*.pid"))) == 2)
    job.send_signal(number)
    _, err = job.communicate(timeout=60)
    assert job.returncode == 128 + number
    assert err == f"neuronrun: error: stopped by {signal.Signals(number).name}\n"
    assert len(list(tmp_path.glob("got*.pid"))) == 2


def test_workers_that_ignore_the_signal_are_killed_after_the_grace_time(tmp_path):
    body = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nnote('ready', 0)\n" + SLEEP
    job = start(tmp_path, body, "--shutdown-timeout", 1)
    workers = pids(tmp_path, 2)[1:]
    job.send_signal(signal.SIGTERM)
    assert job.wait(30) == 128 + signal.SIGTERM
    gone(workers)


def test_the_second_ctrl_c_kills(tmp_path):
    body = "signal.signal(signal.SIGINT, lambda *_: note('got', 0))\nnote('ready', 0)\n"
    body += "while True: time.sleep(1)\n"
    job = start(tmp_path, body)
    workers = pids(tmp_path, 2)[1:]
    job.send_signal(signal.SIGINT)
    until(lambda: (tmp_path / "got.pid").exists())

    def press() -> bool:
        job.send_signal(signal.SIGINT)
        return job.poll() is not None

    until(press)
    assert job.returncode == 128 + signal.SIGINT
    gone(workers)


def test_a_signal_that_is_not_handled_by_default_can_be(tmp_path):
    body = "signal.signal(signal.SIGUSR1, lambda *_: sys.exit(0))\nnote('ready', 0)\n" + SLEEP
    job = start(tmp_path, body, "--signals-to-handle", "SIGTERM,SIGUSR1")
    pids(tmp_path, 2)
    job.send_signal(signal.SIGUSR1)
    assert job.wait(60) == 128 + signal.SIGUSR1


@pytest.mark.parametrize(
    ("end", "code"),
    [("sys.exit(3)", 3), ("sys.exit(255)", 255), ("os.kill(os.getpid(), 9)", 137), ("os.abort()", 134)],
)
def test_the_exit_code_is_that_of_the_worker_that_failed(end, code, tmp_path):
    job = run(tmp_path, f"if rank == 1: {end}\n{SLEEP}", "--nproc-per-node", 2)
    assert job.returncode == code
