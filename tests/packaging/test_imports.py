"""What importing the package costs and says."""

import subprocess
import sys
from importlib.metadata import entry_points, version

import pytest

import neuron_dist


@pytest.mark.parametrize("module", ["neuron_dist", "neuron_dist.topology", "neuron_dist.collectives"])
def test_the_package_alone_imports_no_torch(module):
    probe = f"import sys, {module}; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", probe], check=True, timeout=60)


def test_the_version_is_the_distributions():
    assert neuron_dist.__version__ == version("neuron-dist")


def test_the_commands_and_the_backend_are_entry_points_that_load():
    (command,) = entry_points(group="console_scripts", name="neuronrun")
    (backend,) = entry_points(group="torch.backends", name="neuron")
    assert callable(command.load())
    assert callable(backend.load())
