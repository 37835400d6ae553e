"""Table-driven operator tests: a function or module, its inputs, which dimensions are dynamic.

Each case goes the whole way: capture, lower, optimise, legalise, write, and the proof against eager PyTorch, at the
example's sizes and at others of every dynamic dimension.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

import tonnx
from tonnx.proof.trials.values import WIDE_DRAW
from tonnx.proof.trials.verification import BEYOND, Verification
from tonnx.versions import release


@dataclass
class Case:
    """One row of a table. ``dynamic``: input index → axes, or ``"all"`` for every axis of every tensor input."""

    name: str
    model: Callable[..., Any] | torch.nn.Module
    inputs: Sequence[Any]
    dynamic: dict[int, Sequence[int] | dict[int, str]] | str | None = None
    opset: int = int(os.environ.get("TONNX_TEST_OPSET", "18"))
    rtol: float | None = None
    atol: float | None = None
    kwargs: dict[str, Any] = field(default_factory=dict)
    has: Sequence[str] = ()
    """ONNX operators that the result must contain."""
    has_not: Sequence[str] = ()
    left_out: str = ""
    """Why the model itself fails at some of the sizes or values that the proof draws (a pattern, which must occur)."""


class _Call(torch.nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: Any) -> Any:
        return self.function(*inputs)


def export_case(case: Case, **options: Any) -> tonnx.ExportResult:
    """Export a case, verified."""
    model = case.model if isinstance(case.model, torch.nn.Module) else _Call(case.model)
    inputs = tuple(case.inputs)
    tensors = [i for i, x in enumerate(inputs) if isinstance(x, torch.Tensor)]
    names = [f"in{i}" for i in tensors]
    dynamic = case.dynamic or {}
    if dynamic == "all":
        dynamic = {i: list(range(inputs[i].dim())) for i in tensors}
    axes = {
        f"in{i}": wanted if isinstance(wanted, dict) else {a: f"in{i}_{a}" for a in wanted}
        for i, wanted in dynamic.items()  # type: ignore[union-attr]
    }
    options = {"opset_version": case.opset, "rtol": case.rtol, "atol": case.atol, "kwargs": case.kwargs, **options}
    return tonnx.export(
        model, inputs, None, input_names=names if not _nested(inputs) else None, dynamic_axes=axes or None, **options
    )


def _nested(inputs: Sequence[Any]) -> bool:
    return any(isinstance(x, (list, tuple, dict)) for x in inputs)


def check(case: Case, **options: Any) -> tonnx.ExportResult:
    """Export and verify one case; the exact opset is part of the contract."""
    torch.manual_seed(0)
    result = export_case(case, **options)
    assert result.verification is not None and result.verification.ok
    assert_compared(result.verification, case.left_out)
    assert result.model.opset_imports[""] == result.opset
    kinds = {node.op_type for node in result.model.graph.all_nodes()}
    for op_type in case.has:
        assert op_type in kinds, f"no {op_type} among {sorted(kinds)}"
    for op_type in case.has_not:
        assert op_type not in kinds
    return result


def limit_unknown(text: str) -> str:
    """What a model says at sizes below the least that it takes: up to PyTorch 2.9 a capture does not know that one."""
    return text if release(torch.__version__) < (2, 10) else ""


def assert_compared(verification: Verification, left_out: str = "") -> None:
    """Every dynamic dimension was really compared at another size, and nothing was left out but what was named."""
    example, *others = verification.trials
    # Nobody says that the operator takes draws of other scales, or sizes that the capture takes for impossible.
    usual = [trial for trial in others if not trial.label.endswith((WIDE_DRAW, BEYOND))]
    reasons = {trial.label: trial.skipped or trial.doubt or "" for trial in usual if not trial.comparisons}
    unnamed = {label: why for label, why in reasons.items() if not left_out or not re.search(left_out, why)}
    assert not unnamed, f"left out, and not named in the case: {unnamed}"
    assert not left_out or reasons, f"nothing was left out because of {left_out!r}"
    is_empty = not any(comparison.total for comparison in example.comparisons)
    for symbol, size in example.sizes.items():
        compared = [trial for trial in others if trial.sizes[symbol] != size and trial.comparisons]
        assert compared, f"{symbol} was compared at {size} only"
        told = is_empty or any(comparison.total for trial in compared for comparison in trial.comparisons)
        assert told, f"all outputs are empty wherever {symbol} is not {size}"


def table(cases: Sequence[Case]) -> Any:
    """``@table(CASES)`` on a test that takes ``case``."""
    names = [case.name for case in cases]
    assert len(set(names)) == len(names), f"two cases of one name: {sorted(n for n in names if names.count(n) > 1)}"
    return pytest.mark.parametrize("case", cases, ids=names)
