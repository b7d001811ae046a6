"""`import torch` brings the device, or says in one line why not, and works either way."""

from pathlib import Path

import pytest
import torch

import neuron_dist._C
from neuron_dist.autoload import BUILD_MARK
from tests.device.helpers import output_of, run_python

COUNT = "import torch; print(torch.neuron.device_count())"


def test_importing_the_package_alone_imports_no_torch():
    assert output_of("import sys, neuron_dist; print('torch' in sys.modules)") == "False"


def test_it_can_be_switched_off():
    assert (
        output_of("import torch; print(hasattr(torch, 'neuron'))", TORCH_DEVICE_BACKEND_AUTOLOAD="0")
        == "False"
    )


@pytest.mark.parametrize("first", ["torch", "neuron_dist.device", "neuron_dist.autoload", "neuron_dist._C"])
def test_any_part_may_be_imported_first(first):
    code = f"import {first}, torch; print(torch.ones(2, device='neuron').sum().item(), torch.neuron.__name__)"
    if first == "neuron_dist._C":
        code = "import torch; " + code
    assert output_of(code) == "2.0 neuron_dist.device"


def test_loading_twice_does_nothing():
    code = "import torch, neuron_dist.autoload as a; a.autoload(); print(torch.neuron.device_count())"
    assert output_of(code) == "64"


def test_the_environment_chooses_the_devices():
    assert output_of(COUNT, NEURON_RT_VISIBLE_CORES="4-6,9") == "4"
    assert output_of(COUNT, NEURON_RT_NUM_CORES="3") == "3"
    core = "import torch; print(torch.neuron.get_device_properties(1).core)"
    assert output_of(core, NEURON_RT_VISIBLE_CORES="4-6,9") == "5"


def test_variables_set_after_import_count_until_first_use():
    code = """
        import os, torch
        os.environ["NEURON_RT_NUM_CORES"] = "2"
        print(torch.neuron.device_count(), torch.zeros(1, device="neuron:1").device)
    """
    assert output_of(code) == "2 neuron:1"


@pytest.mark.parametrize(("rank", "device"), [("3", "3"), ("64", "0"), ("x", "0")])
def test_the_first_device_is_the_launchers_local_rank(rank, device):
    code = "import torch; print(torch.neuron.current_device(), torch.zeros(1, device='neuron').device.index)"
    assert output_of(code, LOCAL_RANK=rank) == f"{device} {device}"


@pytest.mark.parametrize(
    ("name", "value"),
    [("NEURON_RT_VISIBLE_CORES", "4-x"), ("NEURON_RT_NUM_CORES", "0"), ("NEURON_SIM_HBM", "lots")],
)
def test_a_bad_variable_is_told_at_first_use(name, value):
    code = """
        import torch
        assert not torch.neuron.is_available()
        make = lambda: torch.zeros(1, device="neuron")
        for use in (make, torch.neuron.device_count, torch.neuron.current_device):
            try:
                use()
            except RuntimeError as error:
                print(error)
    """
    lines = output_of(code, **{name: value}).splitlines()
    assert len(lines) == 3
    assert all(line.startswith(f"{name}='{value}'") for line in lines)


def warnings_of(code: str, **options: object) -> list[str]:
    result = run_python(code, **options)
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == "False"
    return [line for line in result.stderr.splitlines() if "neuron-dist" in line]


def module_in(folder: Path, content: bytes) -> str:
    """Code that imports torch with `content` in place of the native module."""
    native = Path(neuron_dist._C.__file__)
    (folder / native.name).write_bytes(content)
    return f"""
        import neuron_dist
        neuron_dist.__path__.insert(0, {str(folder)!r})
        import torch
        print(hasattr(torch, "neuron"))
    """


def test_a_module_built_for_another_torch_is_told_with_the_remedy(tmp_path):
    (line,) = warnings_of(module_in(tmp_path, BUILD_MARK + b"1.2.3\0"))
    assert "built for torch 1.2.3, not 2." in line
    assert "pip install --no-build-isolation --force-reinstall --no-deps" in line


def test_a_module_that_does_not_load_is_told_with_the_remedy(tmp_path):
    (line,) = warnings_of(module_in(tmp_path, BUILD_MARK + torch.__version__.encode() + b"\0"))
    assert "does not load in torch" in line
    assert "pip install --no-build-isolation" in line


def test_it_steps_aside_for_the_real_torch_neuronx(tmp_path):
    (tmp_path / "torch_neuronx.py").write_text("raise SystemExit('imported')")
    (line,) = warnings_of("import torch; print(hasattr(torch, 'neuron'))", path=tmp_path)
    assert "torch-neuronx" in line


def test_it_steps_aside_for_another_device():
    code = """
        import torch, neuron_dist.autoload as a
        torch.utils.rename_privateuse1_backend("other")
        a.autoload()
        print(hasattr(torch, "neuron"))
    """
    (line,) = warnings_of(code, TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    assert "'other'" in line


def test_ranks_do_not_repeat_the_warning(tmp_path):
    (tmp_path / "torch_neuronx.py").touch()
    assert warnings_of("import torch; print(hasattr(torch, 'neuron'))", path=tmp_path, LOCAL_RANK="1") == []


def test_torch_neuronx_is_found_where_awss_package_is_absent():
    code = """
        import importlib.util, torch
        assert importlib.util.find_spec("torch_neuronx") is not None
        import torch_neuronx
        stream = torch_neuronx.Stream("neuron:0")
        with torch_neuronx.stream(stream):
            assert torch_neuronx.current_stream() == stream
        torch_neuronx.synchronize()
        print(torch.ones(2, device="neuron").sum().item(), torch_neuronx.memory_allocated())
        try:
            torch_neuronx.trace
        except AttributeError as error:
            print(error)
    """
    first, second = output_of(code).splitlines()
    assert first == "2.0 0"
    assert "'trace'" in second
    assert "stands in for AWS's package" in second


def test_the_topology_gives_devices_and_their_memory():
    code = """
        import torch
        print(torch.neuron.device_count(), torch.neuron.get_device_properties(0).total_memory >> 30)
    """
    assert output_of(code, NEURON_SIM_TOPOLOGY="trn2.3xlarge") == "4 24"
    assert output_of(code, NEURON_SIM_TOPOLOGY="trn2.48xlarge*4", NEURON_SIM_HBM="1GiB") == "64 1"


def test_an_unknown_topology_is_told_at_first_use():
    code = "import torch; torch.zeros(1, device='neuron')"
    assert (
        "NEURON_SIM_TOPOLOGY='trn9'" in run_python(code, NEURON_SIM_TOPOLOGY="trn9").stderr.splitlines()[-1]
    )
