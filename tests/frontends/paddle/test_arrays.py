"""Tensor arrays: each form against a plain list, with places that are known only at run time."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

import tonnx
from tests.frontends.paddle import encode as e
from tests.legalise.harness import model_of
from tonnx.errors import LoweringError
from tonnx.frontends.paddle.lower.arrays import Array, Dynamic, Listed
from tonnx.ir.build import Builder
from tonnx.proof.session import Session

A, B, C = (np.arange(6, dtype=np.float32).reshape(2, 3) * k for k in (1, 10, 100))
X = -np.ones((2, 3), np.float32)
ELEMENTS = [A, B, C]

FORMS: dict[str, Callable[[Builder, Listed], Array]] = {
    "listed": lambda op, array: array,
    "stacked": lambda op, array: array.flexible(op),
    "chained": lambda op, array: Dynamic(array.flexible(op).items.as_sequence(op)),
}
KINDS = {"listed": None, "stacked": True, "chained": False}


def results(
    form: str, use: Callable[[Builder, Array, ir.Value, ir.Value], list[ir.Value]], place: int
) -> list[np.ndarray]:
    """What ``use(op, array, x, place)`` gives, where the array has three elements and the place is an input."""

    def build(op: Builder, *values: ir.Value) -> list[ir.Value]:
        *elements, x, index = values
        array = FORMS[form](op, Listed(tuple(elements)))
        assert (array.items.stacked if isinstance(array, Dynamic) else None) == KINDS[form]
        return use(op, array, x, index)

    inputs = [*ELEMENTS, X, np.array([place], np.int64)]
    session = Session(model_of(build, inputs).SerializeToString(), threads=1)
    feeds = {f"in{i}": array for i, array in enumerate(inputs)}
    return list(session.run(feeds).values())


def plain(place: int) -> list[np.ndarray]:
    changed = list(ELEMENTS)
    changed[place : place + 1] = [X]
    return changed


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("place", [0, 1, 2, 3])
def test_write_and_read_at_run_time(form: str, place: int) -> None:
    def use(op: Builder, array: Array, x: ir.Value, at: ir.Value) -> list[ir.Value]:
        changed = array.write(op, at, x)
        stacked, _ = changed.joined(op, 1, stack=True)
        return [changed.read(op, at), changed.length(op), stacked, changed.joined(op, 0, stack=False)[0]]

    element, length, stacked, joined = results(form, use, place)
    want = plain(place)
    np.testing.assert_array_equal(element, X)
    assert (length.shape, int(length)) == ((), len(want))
    np.testing.assert_array_equal(stacked, np.stack(want, 1))
    np.testing.assert_array_equal(joined, np.concatenate(want, 0))


@pytest.mark.parametrize("form", FORMS)
def test_append_and_sizes(form: str) -> None:
    def use(op: Builder, array: Array, x: ir.Value, at: ir.Value) -> list[ir.Value]:
        longer = array.write(op, array.length(op), x)
        whole, sizes = longer.joined(op, -1, stack=False)
        found = [longer.read(op, at), whole]
        return found if sizes is None else [*found, sizes]

    element, whole, *sizes = results(form, use, 1)
    np.testing.assert_array_equal(element, B)
    np.testing.assert_array_equal(whole, np.concatenate([*ELEMENTS, X], -1))
    for found in sizes:
        np.testing.assert_array_equal(found, np.full(4, 3, np.int32))
    assert bool(sizes) == (form != "chained")


@pytest.mark.parametrize("form", ["listed", "stacked"])
def test_part(form: str) -> None:
    part = results(form, lambda op, array, x, at: [array.part(op, 1, 3).joined(op, 0, stack=True)[0]], 0)[0]
    np.testing.assert_array_equal(part, np.stack(ELEMENTS[1:]))


def test_elements_of_another_shape_make_a_sequence() -> None:
    def use(op: Builder, array: Array, x: ir.Value, at: ir.Value) -> list[ir.Value]:
        wide = op.Concat(x, x, axis=0)
        changed = array.write(op, at, wide)
        assert isinstance(changed, Dynamic) and not changed.items.stacked
        return [changed.joined(op, 0, stack=False)[0], changed.read(op, at)]

    joined, element = results("stacked", use, 2)
    np.testing.assert_array_equal(joined, np.concatenate([A, B, X, X]))
    np.testing.assert_array_equal(element, np.concatenate([X, X]))


@pytest.mark.parametrize(
    ("use", "what"),
    [
        (lambda op, array, x, at: array.read(op, op.constant(7, ir.DataType.INT64)), "the element 7 of a list with 3"),
        (lambda op, array, x, at: array.write(op, op.constant([5], ir.DataType.INT64), x), "the element 5 of a list"),
        (lambda op, array, x, at: array.part(op, at, 3), "a part of a list"),
        (lambda op, array, x, at: Listed().joined(op, 0, stack=True), "without elements"),
        (lambda op, array, x, at: Listed().flexible(op), "the type of what it is to hold is not known"),
    ],
)
def test_refused(use: Callable[..., ir.Value], what: str) -> None:
    with pytest.raises(LoweringError, match=what):
        results("listed", lambda op, array, x, at: [use(op, array, x, at)], 0)


# Operators that Paddle's tracer writes seldom


def test_array_operators_of_pir(tmp_path: Path) -> None:
    def number(result: int, value: int) -> dict:
        attrs = [
            e.pir_attr("shape", "1.a_intarray", [1]),
            e.pir_attr("value", "0.a_f64", float(value)),
            e.pir_attr("dtype", "1.a_dtype", "int64"),
        ]
        return e.pir_op("1.full", [], [result], *attrs)

    ops = [
        e.pir_data(1, "x"),
        e.pir_op("1.create_array", [], [2]),
        *[number(10 + k, k) for k in range(4)],
        e.pir_op("1.relu", [1], [3]),
        e.pir_op("1.array_write_", [2, 1, 10], [4]),
        e.pir_op("1.array_write_", [4, 3, 11], [5]),
        e.pir_op("1.array_write_", [5, 1, 12], [6]),
        e.pir_op("1.array_pop", [6], [7, 8], e.pir_attr("index", "0.a_i32", 0)),
        e.pir_op("1.slice_array", [7, 10, 11], [20]),
        e.pir_op("1.slice_array_dense", [7, 11], [21]),
        e.pir_op("1.array_to_tensor", [20], [22, 23], e.pir_attr("axis", "0.a_i32", 0)),
        e.pir_op("1.array_length", [7], [24]),
        *[e.pir_fetch(k, f"y{k}", column) for column, k in enumerate((8, 21, 22, 24))],
    ]
    file = tmp_path / "made.json"
    file.write_text(json.dumps(e.pir(ops)))
    out = tmp_path / "out.onnx"
    tonnx.export(file, f=out, opset_version=11, verify=False)
    x = np.array([[1, -2, 3], [-4, 5, -6]], np.float32)
    popped, dense, joined, length = Session(out, threads=1).run({"x": x}).values()
    np.testing.assert_array_equal(popped, x)
    np.testing.assert_array_equal(dense, x)
    np.testing.assert_array_equal(joined, np.maximum(x, 0))
    assert length.tolist() == [2]


def test_select_output_gives_its_input(tmp_path: Path) -> None:
    variables = [e.variable("x", 2, 3), e.variable("mask", 1, dtype=2), e.variable("a", 2, 3), e.variable("b", 2, 3)]
    ops = [
        e.feed("x", 0),
        e.feed("mask", 1),
        e.op("select_output", {"X": ["x"], "Mask": ["mask"]}, {"Out": ["a", "b"]}),
        e.op("select_input", {"X": ["a", "b"], "Mask": ["mask"]}, {"Out": ["c"]}),
        e.fetch("c"),
    ]
    file = tmp_path / "made.pdmodel"
    file.write_bytes(e.program(e.block(0, -1, [*variables, e.variable("c", 2, 3)], ops)))
    out = tmp_path / "out.onnx"
    result = tonnx.export(file, f=out, opset_version=11, verify=False)
    feeds = {"x": A, "mask": np.array([1], np.int32)}
    used = {value.name for value in result.model.graph.inputs}
    (got,) = Session(out, threads=1).run({name: array for name, array in feeds.items() if name in used}).values()
    np.testing.assert_array_equal(got, A)
