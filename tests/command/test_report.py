"""`neuron-dist report`: who a job waited for, from what its ranks left."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

from neuron_dist.launcher.cli import main
from neuron_dist.launcher.commands.report import summary

BIN = Path(sys.executable).parent

SLOW = """
import os, sys, time, torch, torch.distributed as dist
dist.init_process_group("neuron")
rank = dist.get_rank()
for step in range(10):
    time.sleep(0.03 if rank == 2 else 0)
    dist.all_reduce(torch.ones(1 << 16, device="neuron"))
if "fail" in sys.argv and rank == 1:
    raise RuntimeError("no such batch")
if "kill" in sys.argv and rank == 1:
    os.kill(os.getpid(), 9)
if "wait" in sys.argv:
    open(os.path.join(os.environ["NEURON_SIM_REPORT"], f"ready-{rank}"), "w").close()
    time.sleep(30)
dist.destroy_process_group()
"""


def command(folder: Path, *args: str) -> list[str]:
    script = folder / "train.py"
    script.write_text(SLOW)
    flags = ["--nproc-per-node", "3", "--topology", "trn2.48xlarge", "--report", str(folder / "left")]
    return [str(BIN / "neuronrun"), *flags, str(script), *args]


def job(folder: Path, *args: str) -> tuple[dict, str]:
    done = subprocess.run(command(folder, *args), capture_output=True, text=True, timeout=60)
    return summary(folder / "left", over=True), done.stderr


def test_the_slow_rank_is_named(tmp_path, capsys):
    found, said = job(tmp_path)
    assert found["states"] == {0: "ended", 1: "ended", 2: "ended"}
    assert found["slowest"][0]["rank"] == 2
    assert found["slowest"][0]["held_up_s"] > 0.2
    assert all(row["waited_s"] > 0.2 for row in found["slowest"][1:])
    assert found["links"]
    assert found["verdict"].startswith("rank 2 holds the job up: last in ")
    assert f"neuronrun: {found['verdict']}" in said
    assert main(["report", str(tmp_path / "left")]) == 0
    shown = capsys.readouterr().out
    assert "busiest links" in shown
    assert shown.endswith(f"verdict: {found['verdict']}\n")


def test_the_failed_rank_is_named(tmp_path):
    found, _ = job(tmp_path, "fail")
    assert found["verdict"] == "rank 1 failed: RuntimeError: no such batch"


def test_the_killed_rank_is_named(tmp_path):
    found, said = job(tmp_path, "kill")
    assert found["states"][1] == "silent"
    assert "did not end by itself" in said or "has died" in said


def test_a_rank_out_of_step_is_named(tmp_path):
    waits = {"ranks": [0, 1], "calls": 4, "last_op": "all_reduce", "waited_s": 0.0}
    waits |= {"times_last": [2, 2], "held_up_s": [0.1, 0.1]}
    for rank, last in ((0, 9), (1, 7)):
        counters = {"rank": rank, "world_size": 2, "pid": 1, "time": 0.0, "state": "ended", "failure": ""}
        counters["groups"] = {"tp": waits | {"last_call": last}}
        (tmp_path / f"rank_{rank}.json").write_text(json.dumps(counters))
    found = summary(tmp_path)
    assert found["behind"] == [{"group": "tp", "rank": 1, "call": 7, "op": "all_reduce", "of": 9}]
    assert found["verdict"] == "rank 1 is out of step: its last was call #7 of group tp, others were at #9"


def test_a_signal_has_a_rank_dump_what_torchfrtrace_reads(tmp_path):
    left = tmp_path / "left"
    with subprocess.Popen(command(tmp_path, "wait"), stderr=subprocess.DEVNULL) as running:
        try:
            deadline = time.monotonic() + 60
            while len(list(left.glob("ready-*"))) < 3 or len(list(left.glob("rank_*.json"))) < 3:
                assert time.monotonic() < deadline, "the ranks did not come so far"
                time.sleep(0.1)
            for path in left.glob("rank_*.json"):
                signalled = json.loads(path.read_text())["pid"]
                subprocess.run(["kill", "-USR2", str(signalled)], check=True)
            while not all((left / f"rank_{rank}").exists() for rank in range(3)):
                assert time.monotonic() < deadline, "no dump came"
                time.sleep(0.1)
        finally:
            running.send_signal(signal.SIGTERM)
            running.wait(30)
    analyzer = [sys.executable, "-m", "torch.distributed.flight_recorder.fr_trace", "-p", "rank_", str(left)]
    for extra in [*left.glob("*.json"), *left.glob("ready-*")]:
        extra.unlink()
    assert subprocess.run(analyzer, capture_output=True, timeout=60).returncode == 0


def test_a_live_view_ends_with_the_job(tmp_path, capsys):
    job(tmp_path)
    assert main(["report", str(tmp_path / "left"), "--watch"]) == 0
    assert "verdict: rank 2 holds the job up" in capsys.readouterr().out


def test_a_folder_without_files_is_one_line(tmp_path, capsys):
    assert main(["report", str(tmp_path)]) == 2
    assert "no rank_N.json; run the job with neuronrun --report" in capsys.readouterr().err
