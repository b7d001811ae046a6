"""Fixtures of the launcher's tests."""

import os

import pytest
from neuron_dist.launcher.flags import get_args_parser
from neuron_dist.launcher.settings import settle


@pytest.fixture(autouse=True)
def environment():
    """The launcher sets variables of its own process for its workers; they are put back after each test."""
    saved = dict(os.environ)
    yield os.environ
    os.environ.clear()
    os.environ.update(saved)


@pytest.fixture
def settled(tmp_path, environment):
    """What a command line comes to, and the environment that the workers get."""
    (tmp_path / "train.py").touch()

    def settled(line: str = "", **env: str):
        os.environ.update(env)
        args = get_args_parser().parse_args([*line.split(), str(tmp_path / "train.py")])
        settle(args)
        return args

    return settled
