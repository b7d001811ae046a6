"""Every program of this folder, judged."""

import pytest

from tests.faults import crossed, deaths, mismatches, misuse, timeouts  # noqa: F401  # enter their programs
from tests.faults.judge import FLOOR, PROGRAMS, judge


@pytest.mark.timeout(FLOOR + 30)
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if program.quick else pytest.mark.full)
        for name, program in PROGRAMS.items()
    ],
)
def test_program(name):
    judge(name)
