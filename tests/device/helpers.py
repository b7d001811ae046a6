"""Running a piece of Python in a process of its own, for what can happen once per process."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path


def run_python(
    code: str, *, path: Path | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run dedented `code` with these environment variables set; `path` comes first in the import path."""
    env = {**os.environ, **environment}
    if path is not None:
        env["PYTHONPATH"] = os.pathsep.join([str(path), env.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], env=env, capture_output=True, text=True, timeout=60
    )


def output_of(code: str, *, path: Path | None = None, **environment: str) -> str:
    """What the code printed; fails with its error output if it did not exit with 0."""
    result = run_python(code, path=path, **environment)
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()
