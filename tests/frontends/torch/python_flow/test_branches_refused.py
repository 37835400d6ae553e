"""Branches that cannot be expressed are refused, with the line."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import tonnx
from tests.frontends.torch.python_flow.harness import BOTH, Program, export

HERE = "tests/frontends/torch/python_flow/test_branches_refused.py"

# What cannot be expressed


def dtypes_differ(x: Tensor) -> Tensor:
    y = x
    if x.sum() > 0:
        y = x.int()
    return y * 2


def ranks_differ(x: Tensor) -> Tensor:
    y = x
    if x.sum() > 0:
        y = x.sum()
    return y * 2


def dtypes_returned(x: Tensor) -> Tensor:
    if x.sum() > 0:
        return x.long()
    return x


def generates(x: Tensor) -> Tensor:
    def rows() -> Any:
        if x.sum() > 0:
            yield x
        yield x * 2

    return sum(rows())


class Holds(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        self.kept: list[Tensor] = []
        if x.sum() > 0:
            self.kept.append(x)
        return torch.stack([x, *self.kept])


def never_ends(x: Tensor) -> Tensor:
    return never_ends(x / 2) if x.abs().max() > 1 else x


def dtype_after_a_pass(x: Tensor) -> Tensor:
    y = x.int()
    while y.sum() < 10:
        y = y * 1.5 + 1
    return y


SIDES = "on one side and"
REFUSED = [
    (dtypes_differ, "if x.sum() > 0:", f"the result is int32[?, 3] {SIDES} float32[?, 3] on the other"),
    (ranks_differ, "if x.sum() > 0:", f"the result is float32[] {SIDES} float32[?, 3] on the other"),
    (dtypes_returned, "if x.sum() > 0:", f"the result is int64[?, 3] {SIDES} float32[?, 3] on the other"),
    (generates, "if x.sum() > 0:", "rows is a generator or a coroutine"),
    (Holds(), "if x.sum() > 0:", "the list of a module that a side fills is held elsewhere too"),
    (never_ends, "return never_ends(x / 2)", "RecursionError"),
    (dtype_after_a_pass, "while y.sum() < 10:", "y is int32[?, 3] before a pass and float32[?, 3] after it"),
]


@pytest.mark.parametrize("model, line, reason", REFUSED, ids=[reason for *_, reason in REFUSED])
def test_refused(model: Any, line: str, reason: str) -> None:
    with pytest.raises(tonnx.CaptureError) as caught:
        export(Program(model, BOTH))
    text = str(caught.value)
    name = type(model).__name__ if isinstance(model, nn.Module) else model.__name__
    assert f"the control flow of {name} depends on the values of a tensor" in text
    assert f"where: {HERE}:{caught.value.where.split(':')[1]}: {line}" in text  # type: ignore[union-attr]
    assert "it cannot become an If or a Loop of ONNX, since" in text and reason in text
    assert "torch.where" in text and "torch.cond" in text and "torch.jit.script" in text and "out of the model" in text
    assert caught.value.data_dependent


def test_a_write_to_what_a_branch_chose() -> None:
    def model(x: Tensor) -> Tensor:
        a = x * 1
        y = a if x.sum() > 0 else a * 2
        y += 1
        return y + a

    with pytest.raises(tonnx.LoweringError, match="a tensor that a branch chose is written in place, and mul"):
        export(Program(model, BOTH))


def other_rank_far_away(x: Tensor) -> Tensor:
    if x.shape[0] > 20:
        return x.sum(0)
    return x + 1


def test_a_side_that_only_other_sizes_take_is_not_dropped_in_silence() -> None:
    result = tonnx.export(
        other_rank_far_away, torch.ones(3, 2), input_names=["x"], dynamic_axes={"x": [0]}, capture="export"
    )
    (note,) = (note for note in result.notes if note.startswith("[!]"))
    assert f"other sizes take another side, which is not in the file: {HERE}" in note
    assert "if x.shape[0] > 20:" in note
