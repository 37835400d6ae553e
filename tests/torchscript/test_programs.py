"""Every program at four opsets, on inputs that take every path."""

from __future__ import annotations

import pytest

from tests.torchscript import programs, programs_more
from tests.torchscript.harness import OPSETS, check

PROGRAMS = {**programs.PROGRAMS, **programs_more.PROGRAMS}


@pytest.mark.parametrize("opset", OPSETS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name: str, opset: int) -> None:
    program = PROGRAMS[name]
    if opset < program.lowest:
        pytest.skip(f"needs opset {program.lowest}")
    check(program, opset)
