"""Maps the folders at the root into ``neuron_dist.*`` and builds the native module ``neuron_dist._C``."""

from importlib.util import find_spec
from pathlib import Path

import torch
from setuptools import find_packages, setup
from torch.utils.cpp_extension import BuildExtension, CppExtension

FOLDERS = {
    "neuron_dist": "neuron_dist",
    "neuron_dist.topology": "topology",
    "neuron_dist.collectives": "collectives",
    "neuron_dist.launcher": "launcher",
}
WARNINGS = ["-Wall", "-Wextra", "-Wno-unused-parameter", "-Wno-maybe-uninitialized", "-Wno-interference-size"]


def native_files(pattern: str) -> list[str]:
    return sorted(str(path) for path in Path("neuron_dist/csrc").rglob(pattern))


def json_headers() -> str:
    """A header library that torch's flight recorder includes and torch's wheel leaves out."""
    found = find_spec("nlohmann_json")
    if found is None:
        raise SystemExit("building neuron-dist needs the headers of nlohmann-json: pip install nlohmann-json")
    return str(Path(found.submodule_search_locations[0]) / "include")


class IncrementalBuild(BuildExtension):
    """Keeps the objects of editable installs, which setuptools builds in a temporary folder each time."""

    def finalize_options(self) -> None:
        super().finalize_options()
        self.build_temp = "build/native"


major, minor = torch.__version__.split(".")[:2]

setup(
    packages=[*FOLDERS, *(f"{name}.{sub}" for name in FOLDERS for sub in find_packages(FOLDERS[name]))],
    package_dir=FOLDERS,
    include_package_data=False,  # the C++ sources stay out of the wheel
    package_data={"neuron_dist": ["py.typed", "*.pyi"], "neuron_dist.topology": ["presets/*"]},
    install_requires=[f"torch>={major}.{minor},<{major}.{int(minor) + 1}", "numpy"],
    ext_modules=[
        CppExtension(
            "neuron_dist._C",
            sources=native_files("*.cpp"),
            depends=native_files("*.h"),  # which also brings them into the sdist
            include_dirs=[str(Path("neuron_dist").resolve()), json_headers()],
            define_macros=[("NEURON_BUILT_FOR_TORCH", f'"{torch.__version__}"')],
            extra_compile_args=["-O3", "-g0", "-fvisibility=hidden", *WARNINGS],
        )
    ],
    cmdclass={"build_ext": IncrementalBuild},
)
