"""What cannot be followed is refused, with what, where and a way out; never exported wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any, List, Optional, Tuple  # noqa: UP035 (what TorchScript knows)

import pytest
import torch
from torch import Tensor, nn

import tonnx

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
X = torch.arange(12.0).reshape(3, 4)


def may_be_one(x: Tensor) -> Tuple[Tensor, Tensor]:  # noqa: UP006
    y = x * 1
    z = y
    if x.sum() > 0:
        z = x * 2
    z += 1
    return y, z


def held_and_written(x: Tensor) -> Tensor:
    rows: List[Tensor] = []  # noqa: UP006
    total = torch.zeros(4)
    for i in range(x.size(0)):
        total += x[i]
        rows.append(total)  # read
    return torch.stack(rows)


def extended_and_written(x: Tensor) -> Tensor:
    rows: List[Tensor] = []  # noqa: UP006
    for i in range(x.size(0)):
        rows.append(x[i])
    last = x[0] * 2
    rows.extend([last])
    last += 1
    return torch.stack(rows)  # stacked


def shapes_put_together(x: Tensor) -> Tensor:
    rows: List[Tensor] = []  # noqa: UP006
    for i in range(x.size(0)):
        rows.append(x[i])
    first = [x[0, :2]]
    return torch.cat(first + rows)


def any_length(x: Tensor) -> List[Tensor]:  # noqa: UP006
    rows: List[Tensor] = []  # noqa: UP006
    for i in range(x.size(0)):
        rows.append(x[i])
    return rows


def two_dtypes(x: Tensor) -> Tensor:
    y = x
    if x.sum() < 0:
        return x.long()
    return y


def rank_unknown(x: Tensor) -> Tensor:
    y = x
    if x.sum() > 0:
        y = x[0]
    return torch.layer_norm(y, [4]).flatten(0)  # rank


def perhaps_none(x: Tensor) -> Optional[Tensor]:  # noqa: UP045
    if x.sum() > 0:
        return x
    return None


def always_raises(x: Tensor) -> Tensor:
    if x.dim() == 2:
        raise ValueError("not two axes")  # raised
    return x


def no_operator(x: Tensor) -> Tensor:
    y, pivots = torch.linalg.ldl_factor(x[:, :3])  # first
    return torch.linalg.ldl_solve(y, pivots, x[:, :3])


class Ignored(nn.Module):
    @torch.jit.ignore
    def python(self, x):  # type: ignore[no-untyped-def]
        return x + 1

    def forward(self, x: Tensor) -> Tensor:
        return self.python(x) * 2


REFUSED: list[tuple[Any, str, list[str]]] = [
    (may_be_one, "LoweringError", ["may have been written to under another name", "an output of the model", "clone()"]),
    (held_and_written, "LoweringError", ["a list is read that may have been written to", "# read", "copy before"]),
    (extended_and_written, "LoweringError", ["a list is read that may have been written to", "# stacked"]),
    (shapes_put_together, "LoweringError", ["two lists of tensors of different shapes are put together"]),
    (any_length, "LoweringError", ["returns a list whose length is known only at run time", "torch.stack(list)"]),
    (two_dtypes, "Unjoinable", ["is int64 on one path and float on the other", "convert both to one dtype"]),
    (rank_unknown, "LoweringError", ["needs the rank of its input", "# rank", "one rank on every path"]),
    (perhaps_none, "LoweringError", ["returns an Optional of which only the run tells", "empty tensor instead"]),
    (always_raises, "LoweringError", ["the program raises an exception: not two axes", "# raised"]),
    (no_operator, "UnsupportedOp", ["2 operators of this model", "aten.linalg_ldl_factor", "tonnx.lower(", "# first"]),
    (Ignored(), "LoweringError", ["python is a Python function that the trace does not look into"]),
]


@pytest.mark.parametrize("program, kind, parts", REFUSED, ids=lambda value: getattr(value, "__name__", None))
def test_refused(program: Any, kind: str, parts: list[str]) -> None:
    with pytest.raises(tonnx.TonnxError) as caught:
        tonnx.export(torch.jit.script(program), (X,), dynamic_axes={"x": {0: "n"}})
    assert type(caught.value).__name__ == kind
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    for part in parts:
        if part.startswith("# "):
            part = f"test_refused.py:{next(i for i, line in enumerate(lines, 1) if line.endswith(part))}"
        assert part in str(caught.value), str(caught.value)


def test_an_operator_without_a_rule_may_stay_one() -> None:
    result = tonnx.export(torch.jit.script(no_operator), (X,), operator_export_type="ONNX_ATEN_FALLBACK")
    assert {"org.pytorch.aten"} <= {node.domain for node in result.model.graph}
    assert "not run or compared" in str(result)
