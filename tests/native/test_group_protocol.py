"""The shared-memory protocol under ThreadSanitizer: its atomics alone must order every access."""

import os
import subprocess
from pathlib import Path

import pytest
from torch.utils.cpp_extension import include_paths

ROOT = Path(__file__).parents[2]
COMPILER = os.environ.get("CXX", "c++")


def build(target: Path, *flags: str) -> Path:
    includes = [f"-I{path}" for path in (ROOT / "neuron_dist", *include_paths())]
    command = [COMPILER, "-std=c++20", "-O1", "-g", "-pthread", *flags, *includes, "-w", "-o", str(target)]
    subprocess.run([*command, str(Path(__file__).with_name("group_protocol.cpp"))], check=True, timeout=200)
    return target


def check(program: Path) -> None:
    done = subprocess.run([program], capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout == "ok\n"


@pytest.mark.full
@pytest.mark.timeout(300)
def test_no_data_race(tmp_path):
    check(build(tmp_path / "group_protocol", "-fsanitize=thread"))
