"""Maps the folders at the root into ``neuron_dist.*`` and builds the native module ``neuron_dist._C``."""

from pathlib import Path

import torch
from setuptools import find_packages, setup
from torch.utils.cpp_extension import BuildExtension, CppExtension

FOLDERS = ("neuron_dist", "topology", "collectives", "launcher")


def installed_name(folder: str) -> str:
    return folder if folder == "neuron_dist" else f"neuron_dist.{folder}"


packages = [
    name
    for folder in FOLDERS
    for name in [
        installed_name(folder),
        *(f"{installed_name(folder)}.{sub}" for sub in find_packages(folder)),
    ]
]

major, minor = torch.__version__.split(".")[:2]

setup(
    packages=packages,
    package_dir={installed_name(folder): folder for folder in FOLDERS},
    package_data={"neuron_dist": ["py.typed"], "neuron_dist.topology": ["presets/*"]},
    install_requires=[f"torch>={major}.{minor},<{major}.{int(minor) + 1}", "numpy"],
    ext_modules=[
        CppExtension(
            "neuron_dist._C",
            sources=sorted(str(source) for source in Path("neuron_dist/csrc").rglob("*.cpp")),
            include_dirs=[str(Path("neuron_dist").resolve())],
            define_macros=[("NEURON_BUILT_FOR_TORCH", f'"{torch.__version__}"')],
            extra_compile_args=[
                "-O3",
                "-g0",
                "-fvisibility=hidden",
                "-Wall",
                "-Wextra",
                "-Wno-unused-parameter",
            ],
        )
    ],
    cmdclass={"build_ext": BuildExtension},
)
