"""Branches that cannot be expressed are refused, with the line."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest
import torch
from torch import Tensor, nn

import tonnx
from tests.frontends.torch.python_flow.harness import BOTH, Program, export
from tonnx.frontends.torch.capture import size_branches

HERE = "tests/frontends/torch/python_flow/test_branches_refused.py"

# What cannot be expressed


def test_a_function_without_source() -> None:
    """Made by `exec`, it cannot be rewritten; its branches on sizes are looked at all the same."""
    source = "lambda x: torch.cat([x, x.new_ones(8 - x.shape[0], 3)]) if x.shape[0] < 8 else x"
    with pytest.raises(tonnx.CaptureError, match="the model goes another way at other sizes") as caught:
        tonnx.export(eval(source), torch.ones(6, 3), dynamic_axes={"x": {0: "n"}})
    assert "<string>:1" in caught.value.where


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


def number_of_pairs(x: Tensor) -> Tensor:
    return x * len(bytes(x.shape[0] // 2))


def longer_than_a_chunk(x: Tensor) -> Tensor:
    if x.shape[0] > 5000:
        return x.flip(0).sum()
    return x.cumsum(0)


class TablesThatGrow(nn.Module):
    """A table that is made anew where it is too short: of two inputs, one of which is as long as a third."""

    def __init__(self, table: Tensor) -> None:
        super().__init__()
        self.tables = nn.ParameterList([table, table.clone()])

    def rows(self, place: int, count: int) -> Tensor:
        if count > len(self.tables[place]):
            self.tables[place] = nn.Parameter(torch.arange(count * 2.0).reshape(count, 2))
        return self.tables[place][:count]

    def forward(self, x: Tensor, y: Tensor, z: Tensor) -> Tensor:
        return (x + self.rows(0, x.shape[0]) + z).sum() + (y + self.rows(1, y.shape[0])).sum()


def test_sizes_that_turn_out_to_be_equal_decide_branches_too() -> None:
    tables = TablesThatGrow(torch.arange(40.0).reshape(20, 2))
    axes = {"x": {0: "a"}, "y": {0: "b"}, "z": {0: "a"}}
    inputs = (torch.ones(3, 2), torch.ones(4, 2), torch.ones(3, 2))
    result = tonnx.export(tables, inputs, dynamic_axes=axes)
    result.verification.raise_if_failed()  # type: ignore[union-attr]
    session = onnxruntime.InferenceSession(ir.to_proto(result.model).SerializeToString())
    larger = {"x": torch.ones(30, 2), "y": torch.ones(25, 2), "z": torch.ones(30, 2)}
    (total,) = session.run(None, {name: tensor.numpy() for name, tensor in larger.items()})
    np.testing.assert_allclose(total, TablesThatGrow(torch.arange(60.0).reshape(30, 2))(**larger).detach(), rtol=1e-5)
    other = TablesThatGrow(torch.randn(20, 2))
    with pytest.raises(tonnx.CaptureError, match="goes another way at other sizes"):
        tonnx.export(other, inputs, dynamic_axes=axes, capture="export", verify=False)


def many_frames(x: Tensor) -> Tensor:
    if math.ceil(x.shape[0] / 8) > 200:
        return x.flip(0).sum()
    return x.cumsum(0)


ONE_SIDED = [
    (other_rank_far_away, (3, 2), "if x.shape[0] > 20:", "rows=24", "float32[2] on one side and float32[?, 2]"),
    (longer_than_a_chunk, (800,), "if x.shape[0] > 5000:", "rows=6400", "float32[] on one side and float32[?]"),
    (many_frames, (100,), "> 200:", "rows=1601", "float32[] on one side and float32[?]"),
    (number_of_pairs, (6, 2), "x.shape[0] // 2", "rows=4", "only right where (rows//2) is 3"),
]


@pytest.mark.parametrize("model, shape, line, sizes, why", ONE_SIDED, ids=lambda part: getattr(part, "__name__", None))
def test_a_program_that_is_right_on_one_side_only_is_refused(
    model: Any, shape: tuple[int, ...], line: str, sizes: str, why: str
) -> None:
    with pytest.raises(tonnx.CaptureError) as caught:
        tonnx.export(model, torch.ones(shape), dynamic_axes={"x": {0: "rows"}}, capture="export", verify=False)
    error = caught.value
    assert f"goes another way at other sizes ({sizes})" in error.what
    assert error.where.startswith(HERE) and line in error.where  # type: ignore[union-attr]
    assert why in error.why and "max=" in error.hint  # type: ignore[operator]


@pytest.mark.parametrize("model, shape", [row[:2] for row in ONE_SIDED[:2]], ids=["rank", "chunk"])
def test_within_limits_one_side_is_enough(model: Any, shape: tuple[int, ...]) -> None:
    rows = torch.export.Dim("rows", min=2, max=1000 if len(shape) == 1 else 20)
    result = tonnx.export(model, torch.ones(shape), dynamic_shapes={"x": {0: rows}}, capture="export")
    assert not [note for note in result.notes if note.startswith("[!]")]


def test_an_optional_dimension_is_fixed_where_the_model_goes_another_way() -> None:
    optional = {"x": {0: torch.export.Dim.AUTO}}
    result = tonnx.export(other_rank_far_away, torch.ones(3, 2), dynamic_shapes=optional, capture="export")
    assert result.model.graph.inputs[0].shape == (3, 2)
    assert any("fixed, since the model goes another way at other sizes: axis 0 of x" in note for note in result.notes)


def test_a_number_that_is_only_printed_is_no_reason_to_refuse(capsys: pytest.CaptureFixture[str]) -> None:
    def model(x: Tensor) -> Tensor:
        print(int(x.shape[0] // 2))
        return x * 2

    result = tonnx.export(model, torch.ones(6, 2), dynamic_axes={"x": {0: "rows"}}, capture="export")
    assert not [note for note in result.notes if "plain number" in note]


@pytest.mark.parametrize(
    "conditions, guilty",
    [
        ([(1, {1}), (3, {1, 2, 3})], [3]),  # at 1 no mask is made and rows are padded, at 3 they are padded
        ([(1, {1}), (3, {3})], [1, 3]),
        ([(1, {1}), (0, {0, 1})], [1, 0]),  # what only empty tensors show explains nothing
        ([(1, {1, 3}), (2, {1, 2}), (3, {2, 3})], [1, 2, 3]),  # each is explained by another one
    ],
)
def test_a_branch_is_not_blamed_for_what_another_does_at_the_same_sizes(
    conditions: list[tuple[int, set[int]]], guilty: list[int]
) -> None:
    """A condition differs from the example's at some sizes, and was seen to matter at one."""
    looks = size_branches._Looks(*[None] * 5)  # type: ignore[arg-type]
    looks.branches += [size_branches.OneSided((HERE, seen), {"n": seen}) for seen, _ in conditions]
    looks._flips += [lambda sizes, where=where: sizes["n"] in where for _, where in conditions]  # type: ignore[misc]
    assert [branch.sizes["n"] for branch in looks.guilty()] == guilty


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.complex64])
def test_numbers_that_numpy_does_not_have_are_compared(dtype: torch.dtype) -> None:
    """Both sides are right for any size: the one of the example is enough, and is found to be."""

    def doubles(x: Tensor) -> Tensor:
        return x * 2 if x.shape[0] > 3 else x + x

    result = tonnx.export(doubles, torch.ones(5).to(dtype), dynamic_axes={"x": {0: "n"}})
    assert not any("If" in node.op_type for node in result.model.graph)
