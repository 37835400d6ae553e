"""Once one operator has no rule, the walk goes on: a fault of its own is listed, a consequence is not."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx_ir as ir
import pytest
import torch
from torch import Tensor

import tonnx
from tests.frontends.paddle import encode as e
from tonnx.errors import LoweringError, Occurrence, UnsupportedOp
from tonnx.frontends.paddle.lower import rules as paddle_rules
from tonnx.ir.build import Builder, Names
from tonnx.lowering import rules
from tonnx.lowering.walk import StandIn, fault_at, hangs_on_stand_in

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
X = torch.linspace(0.5, 2, 9).reshape(3, 3)

_LIBRARY = torch.library.Library("tonnx_stand_ins", "DEF")
_LIBRARY.define("rows(Tensor x) -> Tensor[]")
_LIBRARY.impl("rows", lambda x: list(x.clone().unbind()), "CompositeExplicitAutograd")
rows = torch.ops.tonnx_stand_ins.rows


def stops(op: Builder, x: ir.Value) -> ir.Value:
    raise LoweringError("a rule stops", why="for this test")


def stops_oddly(op: Builder, x: ir.Value) -> ir.Value:
    return [x][1]


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """expm1's rule stops with an error of tonnx, erf's with one of Python."""
    for name, function in {"expm1": stops, "erf": stops_oddly}.items():
        for key in (f"aten.{name}", f"aten.{name}.default"):
            monkeypatch.setitem(rules.load()._entries, key, rules.Rule(function, ("x",)))
        paddle_rule = dataclasses.replace(paddle_rules.load()._entries["relu"], function=function)
        monkeypatch.setitem(paddle_rules.load()._entries, name, paddle_rule)


def independent(x: Tensor) -> Tensor:
    return torch.linalg.ldl_factor_ex(x)[0] + torch.expm1(x)


def two_faults(x: Tensor) -> Tensor:
    return torch.linalg.ldl_factor_ex(x)[0] + torch.expm1(x) + torch.erf(x)


def consequence(x: Tensor) -> Tensor:
    return torch.expm1(torch.linalg.ldl_factor_ex(x)[0] * 2 + 1)


def after_a_fault(x: Tensor) -> Tensor:
    return torch.linalg.ldl_factor_ex(x)[0] + torch.erf(torch.expm1(x))


def through_a_write(x: Tensor) -> Tensor:
    y = x.clone()
    y[0] = torch.linalg.ldl_factor_ex(x)[0][0]
    return torch.expm1(y[1:])


def through_a_list(x: Tensor) -> Tensor:
    parts = rows(x)
    return torch.expm1(torch.stack(parts))


def in_a_branch(x: Tensor) -> Tensor:
    y = torch.linalg.ldl_factor_ex(x)[0]
    if bool(x.sum() > 0):
        y = y + torch.expm1(x)
    return y


CASES: dict[Callable[..., Any], list[str]] = {
    independent: ["linalg_ldl_factor_ex", "expm1"],
    two_faults: ["linalg_ldl_factor_ex", "expm1", "erf"],
    consequence: ["linalg_ldl_factor_ex"],
    after_a_fault: ["linalg_ldl_factor_ex", "expm1"],
    through_a_write: ["linalg_ldl_factor_ex"],
    through_a_list: ["rows"],
    in_a_branch: ["linalg_ldl_factor_ex", "expm1"],
}
REASONS = {"expm1": "a rule stops, for this test", "erf": "IndexError: list index out of range"}


@pytest.mark.parametrize("function", CASES, ids=lambda function: function.__name__)
@pytest.mark.parametrize("way", ["export", "script"])
def test_torch(function: Callable[..., Any], way: str, broken: None) -> None:
    with pytest.raises(UnsupportedOp) as caught:
        tonnx.export(function, (X,), capture=way)
    told = {occurrence.operator.split(".")[1]: occurrence for occurrence in caught.value.occurrences}
    assert list(told) == CASES[function]
    for name, occurrence in told.items():
        assert occurrence.reason == REASONS.get(name, "")
        assert way == "export" or "test_stand_ins.py:" in occurrence.source
        assert occurrence.reason in str(caught.value)


def test_without_an_unsupported_operator_a_fault_is_an_error_of_its_own(broken: None) -> None:
    for way in ("export", "script"):
        with pytest.raises(LoweringError, match="a rule stops") as caught:
            tonnx.export(one_fault, (X,), capture=way)
        assert type(caught.value) is LoweringError


def one_fault(x: Tensor) -> Tensor:
    return torch.expm1(x)


PADDLE = {
    "independent": ([("nothing", 1, 2), ("expm1", 1, 3), ("add", (2, 3), 4)], ["nothing", "expm1"]),
    "consequence": ([("nothing", 1, 2), ("tanh", 2, 3), ("expm1", 3, 4)], ["nothing"]),
    "two faults": ([("nothing", 1, 2), ("expm1", 1, 3), ("erf", 1, 5), ("add", (3, 5), 6), ("add", (2, 6), 4)],
                   ["nothing", "expm1", "erf"]),
    "after a fault": ([("nothing", 1, 2), ("expm1", 1, 3), ("erf", 3, 5), ("add", (2, 5), 4)], ["nothing", "expm1"]),
}  # fmt: skip


@pytest.mark.parametrize("name", PADDLE)
def test_paddle(name: str, tmp_path: Path, broken: None) -> None:
    calls, wanted = PADDLE[name]
    ops = [e.pir_op(f"1.{op}", list(i) if isinstance(i, tuple) else [i], [o]) for op, i, o in calls]
    file = tmp_path / "made.json"
    file.write_text(json.dumps(e.pir([e.pir_data(1, "x"), *ops, e.pir_fetch(4, "y")])))
    with pytest.raises(UnsupportedOp) as caught:
        tonnx.export(file)
    assert [occurrence.operator.removeprefix("pd_op.") for occurrence in caught.value.occurrences] == wanted
    for occurrence in caught.value.occurrences:
        assert occurrence.reason == REASONS.get(occurrence.operator.removeprefix("pd_op."), "")


def test_what_hangs_on_a_stand_in() -> None:
    graph = ir.Graph([], [], nodes=[], opset_imports={"": 23}, name="main")
    x = ir.Value(name="x", type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape([2]))
    graph.inputs.append(x)
    unknown = StandIn(ir.DataType.FLOAT, ir.Shape([2]))
    with Builder(graph, names=Names(["x"])) as op:
        near, far = op.Add(x, x), op.Relu(op.Add(unknown, x))
    assert hangs_on_stand_in([unknown]) and hangs_on_stand_in([near, [3, (far,)]])
    assert not hangs_on_stand_in([near, x, None, 3, [x]])


def test_operators_of_one_name_and_two_reasons_are_two_lines() -> None:
    plain = Occurrence("aten.foo", "a", "net.py:1")
    error = UnsupportedOp([plain, fault_at(ValueError("no  such\naxis"), "aten.foo", "b", "net.py:2"), plain])
    assert error.what.splitlines() == [
        "1 operator of this model cannot be exported:",
        "    2 × aten.foo  in a net.py:1 (and 1 more)",
        "    1 × aten.foo  in b net.py:2",
        "        ValueError: no such axis",
    ]
