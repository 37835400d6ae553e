"""Every program at four opsets, on inputs that take every path."""

from __future__ import annotations

import pytest
import torch

import tonnx
from tests.frontends.torch.script import programs, programs_further, programs_modules, programs_more
from tests.frontends.torch.script.harness import OPSETS, check

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:Creating a tensor from an empty")
PROGRAMS = programs.PROGRAMS | programs_modules.PROGRAMS | programs_more.PROGRAMS | programs_further.PROGRAMS


@pytest.mark.parametrize("opset", OPSETS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name: str, opset: int) -> None:
    program = PROGRAMS[name]
    if opset >= program.lowest:
        check(program, opset)
        return
    with pytest.raises(tonnx.RetargetError) as caught:  # a list of tensors of different shapes in a Loop
        check(program, opset)
    assert f"opset that works for this model is {program.lowest}" in str(caught.value)


def test_what_is_known_is_not_left_to_the_run() -> None:
    """Flags, ranks, None and sizes that are fixed decide at once, and leave nothing behind."""
    program = PROGRAMS["static_rank"]
    result = tonnx.export(program.script(), program.inputs[0])
    assert [node.op_type for node in result.model.graph] in (["Add", "Mul"], ["Add"])
    fixed = tonnx.export(torch.jit.script(programs.shape_arithmetic), program.inputs[0])
    assert not {"Shape", "If"} & {node.op_type for node in fixed.model.graph}
