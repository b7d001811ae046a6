"""The example as users start it: the same losses whatever the launcher, the device and the backend."""

import json
import math
import subprocess
import sysconfig
from pathlib import Path

import pytest

BIN = Path(sysconfig.get_path("scripts"))
SCRIPT = Path(__file__).parents[2] / "examples" / "train_gpt.py"
TINY = ["--steps", "12", "--batch", "2", "--context", "16", "--width", "32", "--layers", "1"]


def train(launcher: str, losses: Path, *args: str) -> list[float]:
    """Losses of every step of a tiny run on 3 ranks, and its output held to what the example promises."""
    command = [BIN / launcher, "--nproc-per-node", "3", SCRIPT, *TINY, "--losses", losses, *args]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    assert "step 12/12" in done.stdout
    assert "held-out loss" in done.stdout
    return json.loads(losses.read_text())


@pytest.fixture(scope="module")
def reference(tmp_path_factory) -> list[float]:
    losses = tmp_path_factory.mktemp("reference") / "losses.json"
    return train("torchrun", losses, "--device", "cpu", "--backend", "gloo")


def test_the_loss_starts_at_uniform_and_falls(reference):
    assert reference[0] == pytest.approx(math.log(256), abs=0.3)
    assert reference[-1] < reference[0] - 0.5


@pytest.mark.parametrize(
    ("launcher", "args"),
    [
        ("neuronrun", ["--device", "cpu", "--backend", "gloo"]),
        ("neuronrun", ["--device", "neuron"]),
        ("torchrun", ["--device", "neuron"]),
        ("neuronrun", []),
    ],
    ids=["neuronrun-cpu-gloo", "neuronrun-neuron", "torchrun-neuron", "neuronrun-defaults"],
)
def test_losses_agree_with_torchrun_on_cpu_over_gloo(launcher, args, reference, tmp_path):
    assert train(launcher, tmp_path / "losses.json", *args) == pytest.approx(reference, rel=1e-4)
