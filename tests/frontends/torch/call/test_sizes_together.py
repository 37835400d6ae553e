"""``past + sequence`` in `dynamic_axes` and `dynamic_shapes`: in the file, in the capture and in the proof."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import pytest
import torch

import tonnx
from tonnx.errors import InvalidArgument


def attend(x: torch.Tensor, past: torch.Tensor, mask: torch.Tensor) -> dict[str, torch.Tensor]:
    """A mask that hides nothing is not looked at, as models do it for speed; a capture looks at it."""
    row = torch.cat([past, x], dim=1)
    hides = torch.compiler.is_exporting() or not bool(mask.all())
    return {"y": torch.where(mask[:, : row.shape[1]], row, 0.0) if hides else row * 1, "present": row}


def example(past: int = 5, mask: int | None = None) -> tuple[torch.Tensor, ...]:
    return torch.randn(2, 3), torch.randn(2, past), torch.ones(2, past + 3 if mask is None else mask, dtype=torch.bool)


def shapes(path: Path) -> dict[str, list[Any]]:
    graph = onnx.load(path).graph
    return {
        value.name: [dim.dim_param or dim.dim_value for dim in value.type.tensor_type.shape.dim]
        for value in (*graph.input, *graph.output)
    }


@pytest.mark.parametrize("past", [0, 1, 5])
@pytest.mark.parametrize("text", ["past + sequence", "sequence+past"])
def test_expression(past: int, text: str, tmp_path: Path) -> None:
    axes = {"x": {0: "batch", 1: "sequence"}, "past": {0: "batch", 1: "past"}, "mask": {0: "batch", 1: text}}
    result = tonnx.export(
        attend, example(past), tmp_path / "net.onnx", dynamic_axes={**axes, "present": {1: "past + sequence"}}
    )
    assert result.verification is not None and result.verification.ok and not result.notes, result.notes
    written = shapes(tmp_path / "net.onnx")
    assert written["mask"] == ["batch", " + ".join(sorted(["past", "sequence"], reverse=text[0] == "s"))]
    assert written["present"] == ["batch", "past + sequence"]
    assert {trial.sizes["past"] for trial in result.verification.trials if trial.comparisons} > {past}


def test_expression_in_dynamic_shapes(tmp_path: Path) -> None:
    spec = {"x": {1: "sequence"}, "past": {1: "past"}, "mask": {1: "past + sequence"}}
    tonnx.export(attend, example(), tmp_path / "net.onnx", dynamic_shapes=spec)
    assert shapes(tmp_path / "net.onnx")["mask"] == [2, "past + sequence"]


def test_a_size_less_others(tmp_path: Path) -> None:
    """Where it would be negative nothing is tried, by the capture's branches as by the proof."""

    def ahead(x: torch.Tensor, past: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        row = torch.cat([past, x], dim=1)
        return torch.where(mask, row[:, 4:] if row.shape[1] > 6 else row[:, 4:] * 2, 0.0)

    axes = {"x": {1: "sequence"}, "past": {1: "past"}, "mask": {1: "past + sequence - 4"}}
    result = tonnx.export(ahead, example(mask=4), tmp_path / "net.onnx", dynamic_axes=axes)
    assert result.verification is not None
    assert all(trial.sizes["past + sequence - 4"] >= 0 for trial in result.verification.trials)


def test_nobody_said_so(tmp_path: Path) -> None:
    axes = {"x": {1: "sequence"}, "past": {1: "past"}, "mask": {1: "total"}}
    result = tonnx.export(attend, example(), tmp_path / "net.onnx", dynamic_axes=axes)
    assert result.verification is not None and result.verification.ok
    assert any("right where total >= " in remark for remark in result.verification.remarks)


def test_an_example_that_does_not_agree() -> None:
    axes = {"x": {1: "sequence"}, "past": {1: "past"}, "mask": {1: "past + sequence"}}
    with pytest.raises(InvalidArgument, match=r"size 7 in the example, but past \+ sequence is 8"):
        tonnx.export(attend, example(mask=7), dynamic_axes=axes)


def test_a_name_with_operators_is_still_a_name(tmp_path: Path) -> None:
    tonnx.export(torch.nn.ReLU(), (torch.randn(2, 3),), tmp_path / "net.onnx", dynamic_axes={"input": {1: "seq-len"}})
    assert shapes(tmp_path / "net.onnx")["input"] == [2, "seq-len"]
