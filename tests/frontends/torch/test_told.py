"""What could not be looked at, asked or tried is told: in the result's notes, or in the error."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import onnx_ir as ir
import pytest
import torch
from torch import Tensor, nn

import tonnx
from tonnx.errors import CaptureError, UnsupportedOp
from tonnx.frontends.torch.capture.python_flow.merge import Merge, Side, Unmerged
from tonnx.frontends.torch.operators import decompose as fx_decompose
from tonnx.frontends.torch.script import decompose as script_decompose
from tonnx.ir.build import Builder
from tonnx.lowering.rules import USERS

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
X = torch.linspace(-1, 1, 12).reshape(3, 4)


# Decompositions that fail


def fails(x: Tensor, **options: Any) -> Any:
    raise RuntimeError("no such luck\nand more")


def odd_one(x: Tensor) -> Tensor:
    return torch.ops.aten.linalg_ldl_factor_ex(x[:, :3])[0]


@pytest.mark.parametrize("way", ["export", "script"])
def test_why_a_decomposition_failed(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (fx_decompose, script_decompose):
        monkeypatch.setattr(module, "table", lambda: {torch.ops.aten.linalg_ldl_factor_ex.default: fails})
    with pytest.raises(UnsupportedOp) as caught:
        tonnx.export(odd_one, (X,), capture=way)
    reason = "PyTorch's own decomposition of it fails: RuntimeError: no such luck"
    assert [occurrence.reason for occurrence in caught.value.occurrences] == [reason]
    assert reason in str(caught.value)


def into_odd_ones(x: Tensor, **options: Any) -> Any:
    pivots = torch.ones(3, dtype=torch.int32)
    return torch.ops.aten.linalg_ldl_solve(x, pivots, x), pivots, pivots[0]


@pytest.mark.parametrize("way", ["export", "script"])
def test_what_a_decomposition_has_that_has_no_rule(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (fx_decompose, script_decompose):
        monkeypatch.setattr(module, "table", lambda: {torch.ops.aten.linalg_ldl_factor_ex.default: into_odd_ones})
    with pytest.raises(UnsupportedOp, match=r"decomposition of it has aten\.linalg_ldl_solve"):
        tonnx.export(odd_one, (X,), capture=way)


# Dtypes that PyTorch does not tell


@pytest.fixture
def counted() -> Iterator[Any]:
    """An operator with a rule. Its result has another dtype than its operand, and it takes no tensors without data."""
    library = torch.library.Library("tonnx_told", "DEF")
    library.define("counted(Tensor x) -> Tensor")
    library.impl("counted", lambda x: (x > 0).to(torch.int32), "CPU")

    @tonnx.lower("tonnx_told::counted")
    def rule(op: Builder, x: ir.Value) -> ir.Value:
        return op.cast(op.Greater(x, 0.0), ir.DataType.INT32)

    yield torch.ops.tonnx_told.counted
    for name in [name for name in USERS if name.startswith("tonnx_told")]:
        del USERS[name]
    library._destroy()


def test_a_dtype_that_pytorch_does_not_tell(counted: Any) -> None:
    def uses(x: Tensor) -> Tensor:
        return torch.ops.tonnx_told.counted(x)

    result = tonnx.export(torch.jit.script(uses), (X,))
    (note,) = [note for note in result.notes if "the dtype of" in note]
    assert "tonnx_told.counted is what its rule gives: PyTorch does not tell it (NotImplementedError" in note


# Sizes at which the model itself fails


class Checked(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        if x.shape[0] > 5:
            raise ValueError("too many rows")
        return x * 2


def test_a_side_of_a_branch_on_sizes_that_fails() -> None:
    result = tonnx.export(Checked(), (X,), dynamic_axes={"x": {0: "n"}}, capture="export", verify=False)
    (note,) = [note for note in result.notes if "the other side" in note]
    assert "test_told.py:" in note and "at n=9, is not in the file" in note and "ValueError: too many rows" in note


class Alone(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        if x.shape[0] != 1:
            raise ValueError("one row only")
        return x * 2


def test_an_axis_that_stays_fixed_since_the_model_fails() -> None:
    dynamic = {"x": {0: torch.export.Dim.AUTO, 1: torch.export.Dim.AUTO}}
    result = tonnx.export(Alone(), (X[:1],), dynamic_shapes=dynamic)
    (note,) = [note for note in result.notes if note.startswith("fixed")]
    assert note == "fixed, since the model itself fails at another size: axis 0 of x (ValueError: one row only)"


class Stubborn(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        if x.shape[0] != 3:
            raise ValueError("three rows only")
        return x.view(3, 4)


def test_a_capture_that_was_not_tried() -> None:
    with pytest.raises(CaptureError) as caught:
        tonnx.export(Stubborn(), (X,), dynamic_axes={"x": {0: "n"}})
    assert "torch.jit.script was not tried" in str(caught.value)
    assert "ValueError: three rows only" in str(caught.value)


# Sides that leave what cannot be compared


class Touchy:
    def __eq__(self, other: object) -> bool:
        raise TypeError("do not compare me")

    __hash__ = object.__hash__


def test_objects_that_cannot_be_compared() -> None:
    merge = Merge(Side({}), Side({}), set())
    left = merge("left", Touchy(), Touchy())([])
    assert isinstance(left, Unmerged)
    assert str(left.refusal()).endswith(", and comparing them raises TypeError: do not compare me")
