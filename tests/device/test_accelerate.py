"""Hugging Face Accelerate on the device, alone and in two ranks."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.device.helpers import output_of

pytest.importorskip("accelerate", reason='Accelerate is absent: pip install "neuron-dist[full]"')

SCRIPT = """
import sys, torch
from accelerate import Accelerator
accelerator = Accelerator(mixed_precision="bf16")
torch.manual_seed(0)
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = torch.utils.data.TensorDataset(torch.randn(16, 4), torch.randn(16, 2))
loader = torch.utils.data.DataLoader(data, batch_size=4)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
for inputs, targets in loader:
    loss = (model(inputs) - targets).square().mean()
    accelerator.backward(loss)
    optimizer.step()
    optimizer.zero_grad()
# safetensors itself reads onto devices that it knows by name only.
accelerator.save_state(sys.argv[1], safe_serialization=False)
before = accelerator.unwrap_model(model).weight.detach().clone()
accelerator.unwrap_model(model).weight.data.zero_()
accelerator.load_state(sys.argv[1])
assert torch.equal(accelerator.unwrap_model(model).weight, before)
first = accelerator.gather(before.unsqueeze(0))
assert all(torch.equal(other, first[0]) for other in first)
accelerator.print(inputs.device.type, accelerator.num_processes, type(model).__name__)
accelerator.end_training()
"""


@pytest.mark.full
def test_one_process(tmp_path: Path):
    code = f"import sys; sys.argv[1:] = [{str(tmp_path)!r}]\n{SCRIPT}"
    assert output_of(code).splitlines()[-1] == "neuron 1 Linear"


@pytest.mark.full
def test_two_ranks_train_alike(tmp_path: Path):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    neuronrun = Path(sys.executable).with_name("neuronrun")
    command = [neuronrun, "--nproc-per-node", "2", script, tmp_path / "state"]
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    assert "neuron 2 DistributedDataParallel" in done.stdout
