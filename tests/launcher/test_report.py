"""The report of a failed job: root cause first, every rank's fate, and nothing after it."""

import pytest

from tests.launcher.jobs import run, start

WAIT = "time.sleep(600)\n"


def test_the_first_failure_comes_first_with_its_traceback(tmp_path):
    body = """
def train():
    raise ValueError("loss is nan")
if rank == 2:
    train()
"""
    done = run(tmp_path, body + WAIT, "--nproc-per-node", 4)
    report = done.stderr[done.stderr.index("neuronrun: error: ") :].splitlines()
    assert done.returncode == 1
    assert report[0].startswith("neuronrun: error: rank 2 (local rank 2, pid ")
    assert ") failed first: exit code 1 after " in report[0]
    assert report[1] == "    Traceback (most recent call last):"
    assert report[5:].count("") == 0
    assert "    ValueError: loss is nan" in report
    assert report[-1] == "ranks 0-1, 3 ended by neuronrun (SIGTERM)"


def test_who_raised_first_is_the_cause_though_it_ends_last(tmp_path):
    body = """
if rank == 0:
    import atexit
    atexit.register(time.sleep, 0.08)  # as a slow interpreter's end
    raise KeyError("the cause")
while not (here / "rank0.pid").exists(): time.sleep(0.001)
time.sleep(0.03)
raise RuntimeError("a consequence")
"""
    done = run(tmp_path, body, "--nproc-per-node", 2)
    assert "error: rank 0 " in done.stderr
    assert "KeyError: 'the cause'" in done.stderr.split("error: rank 0 ")[1]


def test_who_raised_first_is_the_cause_though_it_is_stopped_while_it_ends(tmp_path):
    body = """
if rank == 0:
    import atexit
    atexit.register(time.sleep, 60)
    raise KeyError("the cause")
while not (here / "rank0.pid").exists(): time.sleep(0.001)
time.sleep(0.5)
raise RuntimeError("a consequence")
"""
    done = run(tmp_path, body, "--nproc-per-node", 2)
    assert "error: rank 0 " in done.stderr
    assert "failed first: killed by SIGTERM after" in done.stderr
    assert "KeyError: 'the cause'" in done.stderr.split("error: rank 0 ")[1]


def test_a_traceback_that_was_dealt_with_is_no_failure(tmp_path):
    body = """
if rank == 0:
    import traceback
    try: raise KeyError("handled")
    except KeyError: traceback.print_exc()
    print("\\ngoing on", file=sys.stderr, flush=True)
    time.sleep(600)
time.sleep(1)
raise RuntimeError("the cause")
"""
    done = run(tmp_path, body, "--nproc-per-node", 2)
    assert "error: rank 1 " in done.stderr
    assert "RuntimeError: the cause" in done.stderr.split("error: rank 1 ")[1]


@pytest.mark.parametrize(
    ("end", "how"),
    [
        ("os.kill(os.getpid(), signal.SIGSEGV)", "killed by SIGSEGV after"),
        (
            "os.kill(os.getpid(), signal.SIGKILL)",
            "killed by SIGKILL, as the kernel sends when memory runs out,",
        ),
        ("sys.exit('no data')", "exit code 1 after"),
    ],
)
def test_ends_without_a_traceback_are_told(end, how, tmp_path):
    done = run(tmp_path, f"if rank == 1: {end}\n{WAIT}", "--nproc-per-node", 2)
    assert f"failed first: {how}" in done.stderr
    if "no data" in end:
        assert "\n    no data\n" in done.stderr


def test_a_syntax_error_is_shown(tmp_path):
    done = run(tmp_path, "if rank ==\n")
    assert "    SyntaxError: invalid syntax" in done.stderr.splitlines()[-1]


def test_what_record_wrote_is_the_traceback(tmp_path):
    body = """
import json
with open(os.environ["TORCHELASTIC_ERROR_FILE"], "w") as file:  # as torch's ErrorHandler
    callstack = "Traceback (most recent call last):\\n  of @record\\nOSError: disk"
    extra = {"py_callstack": callstack, "timestamp": "1"}
    json.dump({"message": {"message": "OSError: disk", "extraInfo": extra}}, file)
sys.exit(5)
"""
    done = run(tmp_path, body)
    assert done.returncode == 5
    assert done.stderr.splitlines()[-3:] == [
        "    Traceback (most recent call last):",
        "      of @record",
        "    OSError: disk",
    ]


def test_the_launchers_own_error_file_gets_the_cause(tmp_path, monkeypatch):
    """A scheduler that started the launcher reads the root cause there, as with torchrun."""
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(tmp_path / "launcher.json"))
    body = """
import json
with open(os.environ["TORCHELASTIC_ERROR_FILE"], "w") as file:
    json.dump({"message": {"message": "m", "extraInfo": {"py_callstack": "c", "timestamp": "1"}}}, file)
sys.exit(5)
"""
    run(tmp_path, body)
    assert '"errorCode": 5' in (tmp_path / "launcher.json").read_text()


def test_a_failed_attempt_is_told_before_the_next(tmp_path):
    body = "sys.exit(4 if os.environ['TORCHELASTIC_RESTART_COUNT'] == '0' else 0)\n"
    done = run(tmp_path, body, "--max-restarts", 2)
    assert done.returncode == 0
    assert done.stderr.startswith("neuronrun: attempt 1 of 3: rank 0 (local rank 0, pid ")
    assert done.stderr.count("\n") == 1


def test_a_job_that_cannot_meet_says_so(tmp_path):
    flags = ["--nnodes", 2, "--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0"]
    job = start(tmp_path, "", *flags, "--rdzv-conf", "join_timeout=1,timeout=1")
    _, err = job.communicate(timeout=60)
    assert job.returncode == 1
    assert err.startswith("neuronrun: error: ")
    assert err.count("\n") == 1
