"""PIR programs made by hand: all attribute types, in-place operators, early writers, and every kind of damage."""

from __future__ import annotations

import json
import math
from typing import Any

import onnx_ir as ir
import pytest

from tests.frontends.paddle import encode as e
from tests.frontends.paddle.harness import check
from tonnx.errors import InvalidModel
from tonnx.frontends.paddle.read import pir
from tonnx.frontends.paddle.read.graph import Opaque, Program

F = ir.DataType.FLOAT


def _pir(*ops: Any) -> Program:
    return pir.read(json.dumps(e.pir(list(ops))).encode())


def _pir_attribute(attribute: Any) -> Any:
    found = _pir(e.pir_data(1, "x"), e.pir_op("1.relu", [1], [2], {"N": "a", "AT": attribute}), e.pir_fetch(2, "y"))
    check(found)
    return found.block.ops[0].attributes["a"]


NESTED: dict[str, Any] = {"#": "0.a_i64", "D": 1}
for _ in range(40):
    NESTED = {"#": "0.a_array", "D": [NESTED]}


@pytest.mark.parametrize(
    ("attribute", "value"),
    [
        ({"#": "0.a_i32", "D": -3}, -3),
        ({"#": "builtin.a_i64", "D": 3}, 3),
        ({"#": "0.a_f32", "D": 1}, 1.0),
        ({"#": "0.a_f64", "VD": "INF"}, math.inf),
        ({"#": "0.a_f32", "VD": "-INF"}, -math.inf),
        ({"#": "0.a_bool", "D": True}, True),
        ({"#": "0.a_array", "D": [{"#": "0.a_f32", "D": 0.5}, {"#": "0.a_i64", "D": 2}]}, [0.5, 2]),
        ({"#": "0.a_type", "D": {"#": "0.t_bf16"}}, ir.DataType.BFLOAT16),
        ({"#": "0.a_c64", "D": [1.0, -1.0]}, 1 - 1j),
        ({"#": "1.a_intarray", "D": [1, -1]}, [1, -1]),
        ({"#": "1.a_dtype", "D": "float32"}, F),
        ({"#": "1.a_dtype", "D": "Undefined(ALL_DTYPE)"}, None),
        ({"#": "1.a_scalar", "D": ["int64", 4]}, 4),
        ({"#": "1.a_scalar", "D": ["float32", 4]}, 4.0),
        ({"#": "1.a_scalar", "D": ["bool", True]}, True),
        ({"#": "1.a_place", "D": [0, 0, ""]}, (0, 0, "")),
        ({"#": "1.a_layout", "D": "NCHW"}, "NCHW"),
        ({"#": "4.a_mesh", "D": [1]}, Opaque("4.a_mesh")),
        ({"#": "NULL"}, None),
    ],
)
def test_pir_attribute(attribute: Any, value: Any) -> None:
    got = _pir_attribute(attribute)
    assert got == value and type(got) is type(value)


@pytest.mark.parametrize("spelling", ["NaN", "NAN", "nan"])
def test_pir_nan(spelling: str) -> None:
    assert math.isnan(_pir_attribute({"#": "0.a_f32", "VD": spelling}))


@pytest.mark.parametrize(
    ("attribute", "why"),
    [
        ({"#": "0.a_i32", "D": 1.5}, "an integer is 1.5"),
        ({"#": "0.a_i64", "D": True}, "an integer is True"),
        ({"#": "0.a_i64", "D": 1 << 80}, "an integer is"),
        ({"#": "0.a_f32", "D": None}, "a number is None"),
        ({"#": "0.a_f32", "D": "1"}, "a number is '1'"),
        ({"#": "0.a_f32", "D": 10**400}, "too large"),
        ({"#": "0.a_f32", "VD": "lots"}, "a number is 'lots'"),
        ({"#": "0.a_f32", "VD": [1]}, "a number is a list of 1"),
        ({"#": "0.a_str", "D": {}}, "an object of 0, not a str"),
        ({"#": "0.a_array", "D": [1]}, "1 stands where an object"),
        ({"#": "0.a_c64", "D": [1]}, "1 parts"),
        ({"#": "1.a_intarray", "D": 3}, "3, not a list"),
        ({"#": "1.a_scalar", "D": ["int64"]}, "a scalar is"),
        ({"#": 4}, "4, not a str"),
        ([], "a list of 0"),
        (NESTED, "nested too deep"),
    ],
)
def test_damaged_pir_attribute(attribute: Any, why: str) -> None:
    with pytest.raises(InvalidModel, match=why) as caught:
        _pir_attribute(attribute)
    assert caught.value.where and "op 1 (pd_op.relu)" in caught.value.where


def _region(*ops: Any, args: tuple[int, ...] = ()) -> dict[str, Any]:
    arguments = [{"#": number, "TT": e.pir_type(2)} for number in args]
    return {"#": "r", "blocks": [{"#": "b", "args": arguments, "ops": list(ops)}]}


def _yield(*values: int) -> dict[str, Any]:
    return e.pir_op("2.yield", list(values), [])


def _deep_regions(depth: int) -> dict[str, Any]:
    made = e.pir_op("1.x", [], [])
    for _ in range(depth):
        made = e.pir_op("1.x", [], [], regions=[_region(made)])
    return made


DATA = e.pir_data(1, "x")
PARAMETER = {"#": "p", "A": [0, 1, 1, "w"], "O": e.pir_value(2, 2), "OA": [1, 0, 1]}
INNER_PARAMETER = e.pir_op("1.if", [1], [], regions=[_region(PARAMETER, _yield())])


@pytest.mark.parametrize(
    ("ops", "why"),
    [
        ([e.pir_op("1.relu", [9], [2])], "value 9, which nothing"),
        ([DATA, e.pir_op("1.relu", [1], [1])], "two values have the id 1"),
        ([DATA, e.pir_data(2, "x")], "two values have the name 'x'"),
        ([e.pir_data(1, "\ud800")], "a name is"),
        ([DATA, e.pir_fetch(1, "y"), e.pir_fetch(1, "y")], "two outputs"),
        ([DATA, {"#": "1.relu", "I": 4, "O": [], "A": []}], "'I' is 4"),
        ([DATA, {"#": "1.relu", "I": [4], "O": [], "A": []}], "a value is 4"),
        ([DATA, {"#": "1.relu", "I": [{"%": "1"}], "O": [], "A": []}], "the id '1'"),
        ([DATA, {"#": "1.relu", "I": [], "O": {"%": 2}, "A": []}], "outputs are not a list"),
        ([DATA, {"#": "1.relu", "I": [], "O": [{"%": 2}], "A": []}], "'TT' is missing"),
        ([DATA, {"#": "1.relu", "I": [], "O": [], "A": [], "regions": 3}], "regions are not a list"),
        ([DATA, {"I": [], "O": [], "A": []}], "no name"),
        ([DATA, 7], "no name"),
        ([PARAMETER, {**PARAMETER, "O": e.pir_value(3, 2)}], "two values have the name 'w'"),
        ([{**PARAMETER, "A": [0, 1, 1]}], "no name"),
        ([{**PARAMETER, "A": [0, 1, 1, 8]}], "a name is 8"),
        ([{**PARAMETER, "O": e.pir_value(2, 1.5)}], "dimension 1.5"),
        ([{**PARAMETER, "O": e.pir_value(2, 1 << 63)}], "dimension 92"),
        ([{**PARAMETER, "O": {"%": 2, "TT": {"#": "0.t_dtensor", "D": [1]}}}], "type is a list of 1"),
        ([DATA, INNER_PARAMETER], "inside of a region"),
        ([DATA, e.pir_op("1.if", [1], [5], regions=[_region(_yield())])], "do not match"),
        ([DATA, e.pir_op("1.while", [1], [], regions=[])], "do not match"),
        ([DATA, e.pir_op("1.while", [1, 1], [5], regions=[_region(_yield(1), args=(-1,))])], "do not match"),
        ([DATA, e.pir_op("1.x", [], [], regions=[{"blocks": [1, 2]}])], "2 blocks"),
        ([DATA, e.pir_op("1.x", [], [], regions=[_region(e.pir_op("1.y", [], [5]))]), e.pir_fetch(5, "y")], "outside"),
        ([_deep_regions(70)], "more than 64 deep"),
    ],
)
def test_damaged_pir_program(ops: list[Any], why: str) -> None:
    with pytest.raises(InvalidModel, match=why):
        _pir(*ops)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"{", "not JSON"),
        (b'{"base_code": {"magic": "pdf"}}', "'pdf'"),
        (b'{"base_code": 1}', "'base_code' is 1"),
        (b"[]", "a list of 0 stands"),
        (b'{"base_code": {"magic": "pir"}}', "'program' is missing"),
        (b'{"base_code": {"magic": "pir"}, "program": {"regions": []}}', "0 regions"),
        (b"[" * 200_000, "nested too deep"),
        (b'{"a":' * 200_000, "nested too deep"),
        (b"1" * 5000, "not JSON"),
        (b'"\xff"', "not JSON"),
        (json.dumps(e.pir([DATA, e.pir_op("1.relu", [1], [2])]))[:-30].encode(), "not JSON"),
    ],
)
def test_json_that_is_no_program(data: bytes, why: str) -> None:
    with pytest.raises(InvalidModel, match=why):
        pir.read(data)


def test_early_writers() -> None:
    """Whole names, ``#`` for ids, parameters as ordinary operators, no OA."""
    parameter = {
        "#": "builtin.parameter",
        "I": [],
        "O": [{"#": 2, "TT": e.pir_type(2)}],
        "A": [e.pir_attr("parameter_name", "0.a_str", "w")],
    }
    relu = {"#": "pd_op.add", "I": [{"#": 1}, {"#": 2}], "O": [{"#": 3, "TT": e.pir_type(2)}], "A": []}
    found = _pir(
        DATA, parameter, relu, e.pir_op("builtin.shadow_output", [3], [], e.pir_attr("output_name", "0.a_str", "y"))
    )
    check(found)
    assert list(found.parameters) == ["w"] and list(found.outputs) == ["y"] and not found.unsaved
    assert [v and v.name for v in found.block.ops[0].operands] == ["x", "w"]


def test_optional_operands_and_order_of_outputs() -> None:
    found = _pir(DATA, e.pir_op("1.conv", [1, 0], [2, 0]), e.pir_fetch(1, "b", 1), e.pir_fetch(2, "a", 0))
    (op,) = found.block.ops
    assert op.operands[1] is None and op.results[1] is None
    assert list(found.outputs) == ["a", "b"]


def test_values_changed_in_place() -> None:
    branch = e.pir_op("1.if", [1], [], regions=[_region(e.pir_op("1.relu_", [2], [4]), _yield()), _region(_yield())])
    found = _pir(DATA, e.pir_op("1.exp", [1], [2]), branch, e.pir_op("1.log", [2], [5]), e.pir_fetch(4, "y"))
    check(found)
    exp, test, log = found.block.ops
    (write,) = test.writes
    assert write.before is exp.results[0] and log.operands == [write.after]
    assert [block.results for block in test.blocks] == [[test.blocks[0].ops[0].results[0]], [exp.results[0]]]
    assert found.outputs["y"] is write.after
