"""The examples of sharded and pipelined training: the same losses on neuron as on CPU over Gloo."""

import re
import subprocess
import sysconfig
from pathlib import Path

import pytest

BIN = Path(sysconfig.get_path("scripts"))
EXAMPLES = Path(__file__).parents[2] / "examples"
CPU = ("--device", "cpu", "--backend", "gloo")


def losses(
    script: str, *args: str, nproc: int = 4, launch: tuple[str, ...] = (), launcher: str = "torchrun"
) -> dict[int, float]:
    """Loss by step, of the last attempt at each step."""
    command = [BIN / launcher, "--nproc-per-node", str(nproc), *launch, EXAMPLES / script, *args]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stderr
    return {int(step): float(loss) for step, loss in re.findall(r"step (\d+)/\d+ loss (\S+)", done.stdout)}


@pytest.mark.parametrize(
    ("script", "args"),
    [
        pytest.param("train_2d.py", ("--steps", "12"), marks=pytest.mark.full),
        pytest.param("pipeline.py", ("--steps", "12"), marks=pytest.mark.full),
        pytest.param("pipeline.py", ("--steps", "12", "--schedule", "GPipe"), marks=pytest.mark.full),
    ],
    ids=["2d", "1F1B", "GPipe"],
)
def test_losses_agree_with_cpu_over_gloo(script, args):
    on_neuron = losses(script, *args)
    assert on_neuron[12] < on_neuron[1]
    assert on_neuron == pytest.approx(losses(script, *args, *CPU), rel=1e-3)


@pytest.mark.full
@pytest.mark.timeout(300)
def test_a_killed_job_resumes_to_the_same_losses(tmp_path):
    short = ("--steps", "12", "--save-every", "4")
    straight = losses("train_fsdp.py", *short, "--checkpoints", str(tmp_path / "straight"), nproc=2)
    killed = losses(
        "train_fsdp.py", *short, "--checkpoints", str(tmp_path / "killed"), "--kill-at", "7",
        nproc=2, launch=("--max-restarts", "1"),
    )  # fmt: skip
    assert killed == straight
    assert straight[12] < straight[1]
    on_cpu = losses("train_fsdp.py", *short, "--checkpoints", str(tmp_path / "cpu"), *CPU, nproc=2)
    assert straight == pytest.approx(on_cpu, rel=0.02)


@pytest.mark.timeout(240)
def test_a_job_killed_by_a_fault_resumes_to_the_same_losses(tmp_path):
    short = ("--steps", "8", "--save-every", "3")
    straight = losses(
        "train_fsdp.py", *short, "--checkpoints", str(tmp_path / "straight"), nproc=2, launcher="neuronrun"
    )
    command = ("--max-restarts", "1", "--monitor-interval", "0.1", "--faults", "rank:1:kill@call=100")
    killed = losses(
        "train_fsdp.py", *short, "--checkpoints", str(tmp_path / "killed"),
        nproc=2, launch=command, launcher="neuronrun",
    )  # fmt: skip
    assert killed == straight
    assert {path.name for path in (tmp_path / "killed").iterdir()} == {"3", "6"}
