"""Lists whose length only the run knows, against Python's own: in one tensor, as a sequence, and of numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from tests.legalise.harness import model_of
from tonnx.errors import LoweringError
from tonnx.ir.build import Builder
from tonnx.lowering.regions.lists import DynamicList, gathered, joined_dims, measured, zeros
from tonnx.proof.session import Session

T = ir.DataType
ROWS = [np.full(2, k, np.float32) for k in (1, 2, 3)]
NEW = np.full(2, 9, np.float32)
FORMS = ("stacked", "sequence", "numbers")

Use = Callable[[Builder, DynamicList, Any, Any], DynamicList]
USES: dict[str, tuple[Use, Callable[[list[Any], Any, int], list[Any]]]] = {
    "append": (lambda op, items, x, at: items.append(op, x), lambda items, x, at: [*items, x]),
    "insert": (lambda op, items, x, at: items.insert(op, at, x), lambda items, x, at: [*items[:at], x, *items[at:]]),
    "replace": (
        lambda op, items, x, at: items.replace(op, at, x),
        lambda items, x, at: [x if i == at % len(items) else item for i, item in enumerate(items)],
    ),
    "pop": (lambda op, items, x, at: items.pop(op, at)[1], lambda items, x, at: [*items[:at], *items[at:][1:]]),
    "popped": (
        lambda op, items, x, at: items.append(op, items.pop(op, at)[0]),
        lambda items, x, at: [*items, items[at]],
    ),
    "put": (
        lambda op, items, x, at: items.put(op, op.scalar(at), x),
        lambda items, x, at: [*items[:at], x, *items[at + 1 :]],
    ),
    "part": (lambda op, items, x, at: items.part(op, at, None), lambda items, x, at: items[at:]),
    "reversed": (lambda op, items, x, at: items.part(op, None, None, -1), lambda items, x, at: items[::-1]),
    "extend": (lambda op, items, x, at: items.extend(op, items), lambda items, x, at: items + items),
}
PLACES = {"put": (0, 2, 3), "replace": (0, 2, -1), "insert": (0, 1, 3), "pop": (0, 2), "popped": (1,), "part": (1,)}
ONLY_STACKED = ("part", "reversed", "extend")


def built(op: Builder, form: str, values: list[ir.Value]) -> DynamicList:
    if form == "numbers":
        return gathered(op, values, T.FLOAT, (), stacked=True, numbers=True)
    return gathered(op, values, T.FLOAT, (2,), stacked=form == "stacked", numbers=False)


def run(form: str, use: Use, at: int, fixed: bool) -> tuple[np.ndarray, int, np.ndarray]:
    """All elements after ``use``, how many there are, and the last one."""
    rows = [row[:1] for row in [*ROWS, NEW]] if form == "numbers" else [*ROWS, NEW]

    def build(op: Builder, *values: ir.Value) -> list[ir.Value]:
        *elements, x, index = values
        items = use(op, built(op, form, elements), x, at if fixed else index)
        whole = items.value if form == "numbers" else items.joined(op, 0, stack=True)
        return [whole, op.scalar(items.length(op)), items.element(op, -1)]

    inputs = [*rows, np.array([at])]
    session = Session(model_of(build, inputs, source=18).SerializeToString(), threads=1)
    whole, count, last = session.run({f"in{i}": array for i, array in enumerate(inputs)}).values()
    return whole, int(count), last


@pytest.mark.parametrize("fixed", [True, False], ids=["known", "at run time"])
@pytest.mark.parametrize(
    ("form", "name", "at"),
    [
        (form, name, at)
        for form in FORMS
        for name in USES
        for at in PLACES.get(name, (0,))
        if form != "sequence" or name not in ONLY_STACKED
    ],
)
def test_as_python(form: str, name: str, at: int, fixed: bool) -> None:
    use, plain = USES[name]
    whole, count, last = run(form, use, at, fixed)
    want = [row[0] if form == "numbers" else row for row in plain(ROWS, NEW, at)]
    np.testing.assert_array_equal(whole, np.stack(want))
    assert count == len(want)
    np.testing.assert_array_equal(last.reshape(np.shape(want[-1])), want[-1])


@pytest.mark.parametrize("name", ONLY_STACKED)
def test_sequences_refuse_what_onnx_lacks(name: str) -> None:
    with pytest.raises(LoweringError, match="of tensors of different shapes"):
        run("sequence", USES[name][0], 1, fixed=True)


@pytest.mark.parametrize(("axis", "stack"), [(0, True), (-1, True), (0, False), (1, False), (-1, False)])
@pytest.mark.parametrize("form", ["stacked", "sequence"])
def test_joined(form: str, axis: int, stack: bool) -> None:
    rows = [np.arange(6, dtype=np.float32).reshape(2, 3) + k for k in range(3)]

    def build(op: Builder, *values: ir.Value) -> ir.Value:
        made = gathered(op, values, T.FLOAT, (2, 3), form == "stacked", numbers=False).joined(op, axis, stack)
        assert made.shape is not None and made.shape.rank() == 2 + stack
        return made

    session = Session(model_of(build, rows, source=18).SerializeToString(), threads=1)
    (whole,) = session.run({f"in{i}": row for i, row in enumerate(rows)}).values()
    np.testing.assert_array_equal(whole, (np.stack if stack else np.concatenate)(rows, axis))


def test_another_shape_makes_a_sequence() -> None:
    def build(op: Builder, x: ir.Value, wide: ir.Value) -> ir.Value:
        items = gathered(op, [x], T.FLOAT, (2,), stacked=True, numbers=False)
        assert items.taking(op, x) is items
        longer = items.taking(op, wide).append(op, wide)
        assert not longer.stacked and longer.dims is not None and not isinstance(longer.dims[0], int)
        return longer.joined(op, 0, stack=False)

    inputs = [ROWS[0], np.ones(3, np.float32)]
    (whole,) = (
        Session(model_of(build, inputs, source=18).SerializeToString(), threads=1)
        .run({"in0": inputs[0], "in1": inputs[1]})
        .values()
    )
    np.testing.assert_array_equal(whole, np.concatenate(inputs))


def test_an_element_of_another_dtype_is_refused() -> None:
    with pytest.raises(LoweringError, match="another dtype"):
        run("stacked", lambda op, items, x, at: items.append(op, op.cast(x, T.DOUBLE)), 0, fixed=True)


# Shapes

N, UNKNOWN = ir.SymbolicDim("n"), ir.SymbolicDim(None)


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        ((2, 3), (2, 3), (2, 3)),
        ((2, 3), (2, 4), (2, UNKNOWN)),
        ((N, 3), (N, 3), (N, 3)),
        ((UNKNOWN,), (UNKNOWN,), (UNKNOWN,)),
        ((2,), (2, 1), None),
        (None, (2,), None),
    ],
)
def test_joined_dims(one: Any, other: Any, both: Any) -> None:
    assert joined_dims(one, other) == joined_dims(other, one) == both


def test_named_sizes_are_measured_where_they_are_known() -> None:
    x = ir.Value(name="x", type=ir.TensorType(T.FLOAT), shape=ir.Shape(["n", 3]))

    def build(op: Builder, value: ir.Value) -> list[ir.Value]:
        value.shape = x.shape
        inner = op.inner("then")
        assert isinstance(measured(inner, N), ir.Value)
        assert measured(op, ir.SymbolicDim("m")) is None and measured(op, UNKNOWN) is None
        return [zeros(op, T.FLOAT, [N, 2]), zeros(op, T.FLOAT, [UNKNOWN, 2])]

    given = np.ones((4, 3), np.float32)
    made = Session(model_of(build, [given], source=18).SerializeToString(), threads=1).run({"in0": given})
    assert [array.shape for array in made.values()] == [(4, 2), (0, 2)]
