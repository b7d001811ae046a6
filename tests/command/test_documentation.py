"""The documentation says what is so: its Python runs, and its commands print what it shows."""

import re
import shlex
from pathlib import Path

import pytest
from neuron_dist.launcher.cli import main

ROOT = Path(__file__).parents[2]
PAGES = ["topologies.md", "algorithms.md", "writing-an-algorithm.md", "neuron-dist.md"]


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / "docs" / page).read_text(), re.DOTALL)


@pytest.mark.parametrize("page", PAGES)
def test_python_runs(page: str) -> None:
    for block in blocks(page, "python"):
        exec(compile(block, page, "exec"), {})


@pytest.mark.parametrize("page", PAGES)
def test_commands_print_what_is_shown(
    page: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line of three dots stands for any lines."""
    monkeypatch.chdir(ROOT)
    for block in blocks(page, "console"):
        for session in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, shown = session.partition("\n")
            program, *args = shlex.split(command)
            assert program == "neuron-dist"
            main(args)
            printed = capsys.readouterr()
            pattern = ".*\n".join(
                re.escape(part) for part in re.split(r"^\.\.\.\n", shown, flags=re.MULTILINE)
            )
            assert re.fullmatch(pattern, printed.out + printed.err, re.DOTALL), command


def test_every_algorithm_is_documented() -> None:
    from neuron_dist.collectives import algorithm_names

    text = (ROOT / "docs/algorithms.md").read_text()
    assert [name for name in algorithm_names() if f"| `{name}` |" not in text] == []
