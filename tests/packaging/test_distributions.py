"""What the sdist and the wheel hold, and that the wheel can be built from the sdist alone."""

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = {
    "neuron_dist": "neuron_dist",
    "topology": "neuron_dist/topology",
    "collectives": "neuron_dist/collectives",
    "launcher": "neuron_dist/launcher",
}


def setup_py(*command: object, cwd: Path = ROOT) -> None:
    """Runs setup.py of the tree at ``cwd``, as pip's backend would."""
    done = subprocess.run(
        [sys.executable, "setup.py", "--quiet", *map(str, command)],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=1500,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def copy_of_the_tree(folder: Path) -> Path:
    """The files that git knows or would add: a build there leaves nothing behind in the work tree."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in listed.stdout.splitlines():
        if (ROOT / name).exists():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    return folder


def source_files(*suffixes: str) -> set[str]:
    """Files of the four folders with these suffixes, by path from the root."""
    return {
        str(path.relative_to(ROOT))
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*")
        if path.suffix in suffixes
    }


def installed_name(source: str) -> str:
    folder, _, rest = source.partition("/")
    return f"{FOLDERS[folder]}/{rest}"


def check_wheel(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        (metadata,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        info = metadata.removesuffix("METADATA")
        entry_points = archive.read(f"{info}entry_points.txt").decode()
        requirements = archive.read(metadata).decode().splitlines()
    code = {name for name in names if not name.startswith(info)}
    native = {name for name in code if name.endswith(".so")}
    presets = {
        str(path.relative_to(ROOT)) for path in (ROOT / "topology/presets").glob("*") if path.is_file()
    }
    expected = source_files(".py", ".pyi", ".typed") | presets
    assert code - native == {installed_name(name) for name in expected}
    assert len(native) == 1
    assert native.pop().startswith("neuron_dist/_C.")
    assert f"{info}licenses/LICENSE" in names
    assert "neuronrun = neuron_dist.launcher.run:main" in entry_points
    assert "[torch.backends]\nneuron = neuron_dist.autoload:autoload" in entry_points
    assert "Requires-Dist: torch<2.14,>=2.13" in requirements


@pytest.fixture(scope="module")
def sdist(tmp_path_factory) -> Path:
    """The unpacked sdist."""
    tree = copy_of_the_tree(tmp_path_factory.mktemp("tree"))
    out = tmp_path_factory.mktemp("sdist")
    setup_py("sdist", "--dist-dir", out, cwd=tree)
    (archive,) = out.glob("neuron_dist-*.tar.gz")
    with tarfile.open(archive) as tar:
        tar.extractall(out, filter="data")
    return out / archive.name.removesuffix(".tar.gz")


def test_the_sdist_holds_every_source(sdist):
    held = {str(path.relative_to(sdist)) for path in sdist.rglob("*") if path.is_file()}
    expected = source_files(".py", ".pyi", ".typed", ".cpp", ".h") | {"LICENSE", "pyproject.toml", "setup.py"}
    assert expected <= held


def test_the_wheel_holds_the_packages_and_nothing_else(tmp_path):
    """Takes the native module that the install has built already: only the test below compiles it anew."""
    tree = copy_of_the_tree(tmp_path / "tree")
    setup_py("build_py", cwd=tree)
    (built,) = tree.glob("build/lib.*/neuron_dist")
    shutil.copy(next((ROOT / "neuron_dist").glob("_C.*.so")), built)
    setup_py("bdist_wheel", "--skip-build", "--dist-dir", tmp_path, cwd=tree)
    (wheel,) = tmp_path.glob("*.whl")
    check_wheel(wheel)


@pytest.mark.full
@pytest.mark.timeout(1600)
def test_a_wheel_built_from_the_sdist_works_in_a_fresh_folder(sdist, tmp_path):
    setup_py("bdist_wheel", "--dist-dir", tmp_path, cwd=sdist)
    (wheel,) = tmp_path.glob("*.whl")
    check_wheel(wheel)
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    probe = "import torch, neuron_dist, neuron_dist._C; print(neuron_dist._C.__file__)"
    env = {**os.environ, "PYTHONPATH": str(tmp_path / "site"), "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    done = subprocess.run(
        [sys.executable, "-c", probe], env=env, cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert done.stdout.startswith(str(tmp_path / "site")), done.stderr
