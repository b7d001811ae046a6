"""What workers write: whole lines, logs per rank, prefixes that name the global rank."""

import os
import pty
import subprocess

import pytest
from neuron_dist.launcher.workers import parse_std
from torch.distributed.elastic.multiprocessing import Std

from tests.launcher.jobs import BIN, run, start

# Writes its lines in many small pieces, by print and by C.
PIECES = """
for i in range(200):
    for piece in ("rank", str(rank), " line ", str(i)):
        os.write(1, piece.encode())
    os.write(1, b"\\n")
"""


def test_lines_of_many_ranks_are_whole(tmp_path):
    done = run(tmp_path, PIECES, "--nproc-per-node", 4)
    assert done.returncode == 0
    assert sorted(done.stdout.splitlines()) == sorted(
        f"rank{r} line {i}" for r in range(4) for i in range(200)
    )
    assert done.stderr == ""


# One job of 12 ranks serves several questions.
@pytest.fixture(scope="module")
def twelve(tmp_path_factory):
    folder = tmp_path_factory.mktemp("twelve")
    body = """
print("out", rank, flush=True)
os.write(2, f"err {rank}\\n".encode())
subprocess.run(["sh", "-c", "echo of a child; echo apple; echo pear"])
"""
    flags = ["--nproc-per-node", 12, "--log-dir", folder / "logs", "--role", "trainer"]
    flags += ["-r", "0:1,10:3", "-t", "1:3,11:1", "--local-ranks-filter", "0,1,2,10,11"]
    flags += ["--duplicate-stdout-filters", "apple,out"]
    return run(folder, body, *flags), next((folder / "logs").iterdir()) / "attempt_0"


def test_ranks_above_nine_are_redirected_and_teed(twelve):
    done, logs = twelve
    assert done.returncode == 0
    child = ["of a child", "apple", "pear"]
    assert (logs / "10" / "stdout.log").read_text().splitlines() == ["out 10", *child]
    assert (logs / "10" / "stderr.log").read_text() == "err 10\n"
    assert (logs / "0" / "stdout.log").read_text().splitlines() == ["out 0", *child]
    assert not (logs / "0" / "stderr.log").exists()
    assert (logs / "11" / "stdout.log").read_text().splitlines() == ["out 11", *child]
    teed = [line for line in done.stdout.splitlines() if line.startswith("[trainer")]
    assert sorted(teed) == sorted(f"[trainer{r}]:{line}" for r in (1, 11) for line in (f"out {r}", *child))


def test_the_console_shows_what_is_not_redirected_of_the_ranks_asked_for(twelve):
    done, _ = twelve
    assert sorted(done.stderr.splitlines()) == ["[trainer1]:err 1", "err 0", "err 11", "err 2"]
    assert {line for line in done.stdout.splitlines() if line.startswith("out")} == {"out 2"}


def test_filters_copy_the_teed_lines_that_match(twelve):
    _, logs = twelve
    lines = (logs / "filtered_stdout.log").read_text().splitlines()
    assert sorted(lines) == sorted(f"[trainer{r}]:{line}" for r in (1, 11) for line in (f"out {r}", "apple"))


def test_the_prefix_has_the_global_rank_and_can_be_chosen(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE", "<${role_name} ${rank} ${local_rank}> ")
    done = run(tmp_path, "print('hello')\n", "-t", 1)
    assert done.stdout == "<default 0 0> hello\n"
    assert "logs" not in done.stderr


def test_an_unfinished_line_is_shown_while_its_writer_waits(tmp_path):
    job = start(tmp_path, "sys.stdout.write('name? ')\nsys.stdout.flush()\nsys.stdin.readline()\n", stdin=-1)
    assert job.stdout.read(6) == "name? "
    job.communicate("x\n", timeout=60)
    assert job.returncode == 0


def test_a_single_worker_keeps_the_terminal(tmp_path):
    script = tmp_path / "job.py"
    script.write_text("import os; print(os.isatty(0), os.isatty(1), os.isatty(2))")
    ours, theirs = pty.openpty()
    subprocess.run(
        [BIN / "neuronrun", script], stdin=theirs, stdout=theirs, stderr=theirs, timeout=60, check=True
    )
    assert os.read(ours, 100).split() == [b"True"] * 3


def test_no_folder_of_logs_stays_unless_asked_for(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    assert run(tmp_path, "").returncode == 0
    assert not list((tmp_path / "tmp").iterdir())


@pytest.mark.parametrize("text", ["4", "", "1:", "a:1", "1:4", "0:1;2:1", "10"])
def test_a_bad_map_is_refused(text):
    with pytest.raises(ValueError, match="expected 0, 1"):
        parse_std(text)


def test_maps_have_torchs_meaning():
    assert parse_std("3") == Std.from_str("3")
    assert parse_std("0:3,1:0,2:1,3:2") == Std.from_str("0:3,1:0,2:1,3:2")
    assert parse_std("15:2") == {15: Std.ERR}
