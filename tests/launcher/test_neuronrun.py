"""neuronrun does what torchrun does, finds a free port, and reports errors in one line."""

import json
import os
import socket
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from neuron_dist.launcher import job
from neuron_dist.launcher.flags import get_args_parser
from torch.distributed import run as torchrun

BIN = Path(sysconfig.get_path("scripts"))

# Writes what a worker was given to OUT/<rank>.json. No torch: the workers start at once.
REPORT = """
import json, os, pathlib, sys
out = pathlib.Path(os.environ["OUT"], os.environ["RANK"] + ".json")
out.write_text(json.dumps({"argv": sys.argv[1:], "env": dict(os.environ)}))
"""


@pytest.fixture
def report(tmp_path, monkeypatch) -> Path:
    """A script whose workers leave a report each in its folder's `out`; see `reports`."""
    (tmp_path / "out").mkdir()
    monkeypatch.setenv("OUT", str(tmp_path / "out"))
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    script = tmp_path / "report.py"
    script.write_text(REPORT)
    return script


def reports(script: Path) -> list[dict]:
    """The workers' reports in rank order; the next launch starts afresh."""
    files = sorted((script.parent / "out").iterdir())
    found = [json.loads(file.read_text()) for file in files]
    for file in files:
        file.unlink()
    return found


def launch(*args: object, launcher: str = "neuronrun", **options) -> subprocess.CompletedProcess[str]:
    command = [BIN / launcher, *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, **options)


# --- command lines


COMMAND_LINES = [
    "train.py",
    "--nproc-per-node 4 train.py --lr 0.1 -- --nproc-per-node 8",
    "--nproc_per_node=auto --nnodes=1:4 --rdzv_backend=c10d --rdzv_endpoint=host:29400 --rdzv_id=7 train.py",
    "--standalone --max-restarts 3 -m package.module --flag",
    "--nnodes 2 --node-rank 1 --master-addr 10.0.0.1 --master-port 1234 --no-python ./a.out -x",
    "-r 3 -t 0:1,1:2 --log-dir logs --local-ranks-filter 0,1 --role trainer --monitor-interval 1 train.py",
    "--start-method fork --signals-to-handle SIGTERM,SIGUSR1 --shutdown-timeout 5 --run-path /abs/train.py",
    "--duplicate-stdout-filters a,b --local-addr ::1 --rdzv-conf timeout=3 --numa-binding node train.py",
]


@pytest.mark.parametrize("line", COMMAND_LINES)
def test_every_torchrun_command_line_parses_to_the_same_values(line):
    ours = vars(get_args_parser().parse_args(line.split()))
    theirs = vars(torchrun.get_args_parser().parse_args(line.split()))
    assert theirs.items() <= ours.items()


def test_torchruns_environment_defaults_hold(monkeypatch):
    monkeypatch.setenv("PET_NPROC_PER_NODE", "3")
    assert get_args_parser().parse_args(["train.py"]).nproc_per_node == "3"


def test_the_module_is_the_same_command():
    module = subprocess.run(
        [sys.executable, "-m", "neuron_dist.launcher", "--help"], capture_output=True, text=True, timeout=60
    )
    assert module.stdout == launch("--help").stdout
    assert module.stdout.startswith("usage: neuronrun ")


# --- workers


def test_workers_see_the_environment_that_torchrun_gives(report):
    seen = {}
    for launcher in ("torchrun", "neuronrun"):
        done = launch("--nproc-per-node", 2, report, launcher=launcher)
        assert done.returncode == 0, done.stderr
        seen[launcher] = [worker["env"] for worker in reports(report)]
    own = {"MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_ERROR_FILE", "OMP_NUM_THREADS"}
    for rank in range(2):
        ours, theirs = seen["neuronrun"][rank], seen["torchrun"][rank]
        assert ours.keys() - theirs.keys() == {"NEURON_LOGICAL_NC_CONFIG", "NEURON_RT_ROOT_COMM_ID"}
        assert {k: ours[k] for k in theirs if k not in own} == {
            k: v for k, v in theirs.items() if k not in own
        }
        assert (ours["RANK"], ours["LOCAL_RANK"], ours["WORLD_SIZE"]) == (str(rank), str(rank), "2")


def test_the_cores_are_shared_out_without_a_banner(report):
    done = launch("--nproc-per-node", 2, report)
    assert done.stderr == ""
    threads = max(1, len(os.sched_getaffinity(0)) // 2)
    assert [worker["env"]["OMP_NUM_THREADS"] for worker in reports(report)] == [str(threads)] * 2


def test_the_users_thread_count_is_kept(report, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    launch("--nproc-per-node", 2, report)
    assert [worker["env"]["OMP_NUM_THREADS"] for worker in reports(report)] == ["7"] * 2


@pytest.mark.parametrize(
    ("flags", "script"),
    [
        ([], "report.py"),
        (["-m"], "report"),
        (["--no-python"], "./report"),
        (["--run-path"], "{folder}/report.py"),
    ],
    ids=["script", "module", "command", "run-path"],
)
def test_arguments_reach_the_program_as_they_are(flags, script, report):
    command = report.parent / "report"
    command.write_text(f"#!{sys.executable}\n{REPORT}")
    command.chmod(0o755)
    args = ["--nproc-per-node", "9", "--", "-m", "a b", ""]
    done = launch(*flags, script.format(folder=report.parent), *args, cwd=report.parent)
    assert done.returncode == 0, done.stderr
    assert [worker["argv"] for worker in reports(report)] == [args]


def test_a_failed_worker_group_is_restarted(tmp_path):
    script = tmp_path / "flaky.py"
    script.write_text("import os, sys; sys.exit(os.environ['TORCHELASTIC_RESTART_COUNT'] == '0')")
    assert launch("--nproc-per-node", 2, "--max-restarts", 1, script).returncode == 0


# --- ports


@pytest.mark.parametrize(
    ("line", "endpoint"),
    [
        ("", ""),
        ("--master-addr 127.0.0.1", ""),
        ("--master-port 0", ""),
        ("--rdzv-endpoint localhost", ""),
        ("--rdzv-endpoint localhost:0", ""),
        ("--rdzv-backend c10d", "localhost:0"),
        ("--rdzv-backend c10d --rdzv-endpoint localhost", "localhost:0"),
        ("--rdzv-backend c10d --rdzv-endpoint [::1]", "[::1]:0"),
    ],
)
def test_a_job_on_one_node_that_names_no_port_gets_a_free_one(line, endpoint, settled):
    args = settled(line)
    assert args.rdzv_endpoint == endpoint
    assert args.master_port is None  # static with neither: torch opens its store on a free port


@pytest.mark.parametrize(
    "line",
    ["--master-port 1234", "--rdzv-endpoint localhost:1234", "--nnodes 2 --node-rank 1 --master-addr host"],
)
def test_a_named_port_and_torchs_default_between_nodes_are_kept(line, settled):
    args = settled(line)
    expected = vars(torchrun.get_args_parser().parse_args([*line.split(), args.training_script]))
    assert vars(args).items() >= expected.items()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--topology trn9.huge", "trn9.huge"),
        ("--topology ring:2 --nproc-per-node 3", "2 cores, too few for the job's ranks"),
        ("--algorithm quicksort", "quicksort"),
        ("--reduction sloppy", "--reduction sloppy: expected one of schedule, exact"),
        ("--lint loud", "--lint loud: expected one of warn, error, off"),
    ],
)
def test_what_the_fabric_does_not_know_is_one_line(line, message, tmp_path, capsys):
    (tmp_path / "train.py").touch()
    assert job.run([*line.split(), str(tmp_path / "train.py")]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_fabric_flags_reach_the_workers_and_leave_a_trace(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(
        "import torch, torch.distributed as dist\n"
        "dist.init_process_group('neuron')\n"
        "dist.all_reduce(torch.ones(1 << 18, device='neuron'))\n"
        "from neuron_dist import _C\n"
        "assert _C.records()[-1].algorithm == 'kangaring', _C.records()[-1].algorithm\n"
        "dist.destroy_process_group()\n"
    )
    flags = ["--topology", "trn2.48xlarge", "--algorithm", "kangaring", "--trace", str(tmp_path / "trace")]
    command = [sys.executable, "-m", "neuron_dist.launcher", "--nproc-per-node", "4", *flags, str(script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    events = json.loads((tmp_path / "trace" / "trace.json").read_text())["traceEvents"]
    assert sum(event["ph"] == "X" and event["name"] == "all_reduce" for event in events) > 8


def test_two_jobs_at_once_use_different_ports(report):
    """Each job's first worker waits for the other's, so that the two are surely alive together."""
    meet = "import time\nwhile len(list(out.parent.iterdir())) < 2: time.sleep(0.01)\n"
    report.write_text(REPORT.replace('os.environ["RANK"]', 'os.environ["JOB"]') + meet)
    jobs = [
        subprocess.Popen([BIN / "neuronrun", report], env={**os.environ, "JOB": str(job)}) for job in range(2)
    ]
    assert [job.wait(60) for job in jobs] == [0, 0]
    first, second = (worker["env"]["MASTER_PORT"] for worker in reports(report))
    assert first != second


# --- errors


@pytest.mark.parametrize(
    ("line", "code", "message"),
    [
        ("nope.py", 2, "nope.py: no such script (for a module give -m, for a command --no-python)"),
        ("--no-python nope", 2, "nope: no such command"),
        ("--nnodes two {script}", 2, "--nnodes two: expected a number of nodes or a range such as 1:4"),
        ("--nnodes 4:2 {script}", 2, "--nnodes 4:2: expected a number of nodes or a range such as 1:4"),
        ("--nproc-per-node 0 {script}", 2, "--nproc-per-node 0: expected at least one worker"),
        ("--nproc-per-node gpu {script}", 2, "Cuda is not available."),
        ("--nproc-per-node many {script}", 2, "Unsupported nproc_per_node value: many"),
        (
            "--nnodes 2 --master-port 0 {script}",
            2,
            "--master-port 0: the nodes must agree on one, so name it",
        ),
        ("--max-restarts -1 {script}", 1, "max_restarts must be >= 0"),
    ],
)
def test_a_wrong_command_line_is_one_line_on_stderr(line, code, message, tmp_path, capfd):
    (tmp_path / "train.py").touch()
    assert job.run(line.format(script=tmp_path / "train.py").split()) == code
    out, err = capfd.readouterr()
    assert (out, err) == ("", f"neuronrun: error: {message}\n")


def test_a_port_in_use_is_one_line_on_stderr(report):
    with socket.create_server(("", 0)) as taken:
        done = launch("--master-port", taken.getsockname()[1], report)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("neuronrun: error: ")
    assert "address already in use" in done.stderr


# --- the device


def test_the_local_rank_selects_the_device(tmp_path):
    script = tmp_path / "device.py"
    script.write_text(
        "import os, torch\n"
        "assert torch.empty(1, device='neuron').device.index == int(os.environ['LOCAL_RANK'])\n"
        "assert torch.accelerator.current_device_index() == int(os.environ['LOCAL_RANK'])\n"
    )
    done = launch("--nproc-per-node", 2, script)
    assert done.returncode == 0, done.stderr
