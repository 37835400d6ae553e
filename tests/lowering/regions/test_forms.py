"""What two paths have in common, and how it crosses the border of an If or a Loop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from tests.legalise.harness import model_of
from tonnx.ir.build import Builder, Names
from tonnx.lowering.regions.emit import LoopBody, if_node, tensor
from tonnx.lowering.regions.forms import (
    NO_IDENTITY,
    UNSET,
    Container,
    Form,
    ListForm,
    NumberForm,
    OptionalForm,
    PartsForm,
    Rules,
    Same,
    Snapshot,
    TensorForm,
    Unjoinable,
    join,
    kinds,
    pack,
    unpack,
)
from tonnx.lowering.regions.lists import DynamicList, gathered
from tonnx.lowering.regions.settle import settle
from tonnx.proof.session import Session

T = ir.DataType
N, UNKNOWN = ir.SymbolicDim("n"), ir.SymbolicDim(None)
LIST, PAIR = Container("list"), Container("tuple")


def value(*dims: Any, dtype: ir.DataType = T.FLOAT) -> ir.Value:
    return ir.Value(name="v", type=ir.TensorType(dtype), shape=ir.Shape(dims))


def held(made: ir.Value | DynamicList) -> Snapshot:
    return Snapshot(NO_IDENTITY, made)


def parts(container: Container, *inside: Snapshot) -> Snapshot:
    return Snapshot(NO_IDENTITY, parts=inside, container=container)


X, Y, LONG = held(value(2, 3)), held(value(2, 4)), held(value(2, 3, 4))
FLAG, NUMBER = value(1, dtype=T.BOOL), Snapshot(value(1, dtype=T.INT64))
MAYBE = Snapshot(object(), parts=(X,), present=FLAG)
GROWN = held(DynamicList(value(UNKNOWN, 2, 3), T.FLOAT, (2, 3)))
RAGGED = held(DynamicList(value(), T.FLOAT, (2, UNKNOWN), stacked=False))
OF_X = TensorForm(T.FLOAT, (2, 3))


def rules() -> Rules:
    graph = ir.Graph([value("n", 3)], [], nodes=[], opset_imports={"": 23}, name="main")
    return Rules(Builder(graph, names=Names()))


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        (X, X, Same(X)),
        (Snapshot(3), Snapshot(3), Same(Snapshot(3))),
        (Snapshot("a"), Snapshot("a"), Same(Snapshot("a"))),
        (Snapshot(3), Snapshot(4), NumberForm(T.INT64)),
        (Snapshot(True), Snapshot(False), NumberForm(T.BOOL)),
        (NUMBER, Snapshot(4), NumberForm(T.INT64)),
        (X, Y, TensorForm(T.FLOAT, (2, UNKNOWN))),
        (X, LONG, TensorForm(T.FLOAT, None)),
        (X, Snapshot(UNSET), OF_X),
        (Snapshot(None), X, OptionalForm(OF_X)),
        (MAYBE, Snapshot(None), OptionalForm(OF_X)),
        (MAYBE, Y, OptionalForm(TensorForm(T.FLOAT, (2, UNKNOWN)))),
        (parts(PAIR, X, Snapshot(1)), parts(PAIR, X, Snapshot(2)), PartsForm(PAIR, (Same(X), NumberForm(T.INT64)))),
        (parts(LIST, X), parts(LIST, X, X), ListForm(T.FLOAT, (2, 3), stacked=True)),
        (parts(LIST), parts(LIST, X, Y), ListForm(T.FLOAT, (2, UNKNOWN), stacked=False)),
        (parts(LIST, Snapshot(1)), parts(LIST), ListForm(T.INT64, (), True, numbers=True)),
        (GROWN, parts(LIST, X), ListForm(T.FLOAT, (2, 3), stacked=True)),
        (GROWN, RAGGED, ListForm(T.FLOAT, (2, UNKNOWN), stacked=False)),
        (parts(LIST), parts(LIST, held(value(N, 3))), ListForm(T.FLOAT, (N, 3), stacked=True)),
        (parts(LIST), parts(LIST, held(value("m", 3))), ListForm(T.FLOAT, (ir.SymbolicDim("m"), 3), stacked=False)),
    ],
)
def test_join(one: Snapshot, other: Snapshot, both: Form) -> None:
    assert join(Same(one), Same(other), rules()) == both
    assert join(Same(other), Same(one), rules()) == both
    again = join(both, Same(other), rules())
    assert again == both, "a form that holds for both has to stay"


@pytest.mark.parametrize(
    ("one", "other", "what"),
    [
        (X, held(value(2, 3, dtype=T.DOUBLE)), "float on one path and double on the other"),
        (X, Snapshot(3), r"a tensor \(float\) on one path and a number \(int64\)"),
        (Snapshot("a"), Snapshot("b"), "'a' on one path and 'b' on the other"),
        (parts(PAIR, X), parts(PAIR, X, X), "a tuple of 1 on one path and a tuple of 2"),
        (parts(LIST), parts(LIST, parts(PAIR, X)), "elements are a tuple of 1"),
        (parts(LIST, X), parts(LIST, Snapshot(1), X), "elements are of different types"),
        (parts(Container("dict", ("a",)), X), parts(Container("dict", ("b",)), X), "a dict of 1 on one path"),
    ],
)
def test_unjoinable(one: Snapshot, other: Snapshot, what: str) -> None:
    with pytest.raises(Unjoinable, match=what):
        join(Same(one), Same(other), rules())


def test_what_one_path_made_crosses_even_if_it_looks_the_same() -> None:
    class Inner(Rules):
        def is_inner(self, thing: Any) -> bool:
            return thing is made

    made = object()
    one = Snapshot(made, value(2, 3))
    assert join(Same(one), Same(one), Inner(rules().op)) == OF_X


class Plain:
    """Makes Python's own values."""

    def number(self, value: ir.Value) -> Any:
        return value

    def tensor(self, value: ir.Value, sides: Sequence[Snapshot]) -> Any:
        return value

    def dynamic_list(self, value: DynamicList, sides: Sequence[Snapshot]) -> Any:
        return value

    def container(self, container: Container, parts: list[Any], sides: Sequence[Snapshot]) -> Any:
        return tuple(parts)

    def optional(self, present: ir.Value, inner: Any) -> Any:
        return present, inner


@pytest.mark.parametrize("taken", [True, False])
def test_across_an_if(taken: bool) -> None:
    """A list that grew on one side, an Optional, a number, and what is the same."""
    x = np.arange(6, dtype=np.float32).reshape(2, 3)

    def build(op: Builder, row: ir.Value, condition: ir.Value) -> list[ir.Value]:
        then, other = op.inner("then"), op.inner("else")
        double = then.Add(row, row)
        sides = [
            [parts(LIST, held(row), held(double)), held(double), Snapshot(1), held(row)],
            [parts(LIST, held(row)), Snapshot(None), Snapshot(2), held(row)],
        ]
        forms = [join(Same(a), Same(b), Rules(op)) for a, b in zip(*sides, strict=True)]
        packed = [
            (inner, [v for end, form in zip(ends, forms, strict=True) for v in pack(inner, end, form)])
            for inner, ends in zip((then, other), sides, strict=True)
        ]
        values = iter(if_node(op, condition, packed, [kind for form in forms for kind in kinds(form)]))
        grown, (present, inside), number, same = (unpack(form, values, Plain()) for form in forms)
        assert same is NO_IDENTITY
        return [grown.joined(op, 0, stack=True), present, inside, number]

    inputs = [x, np.array([taken])]
    session = Session(model_of(build, inputs, source=18).SerializeToString(), threads=1)
    grown, present, inside, number = session.run({"in0": x, "in1": inputs[1]}).values()
    np.testing.assert_array_equal(grown, np.stack([x, 2 * x] if taken else [x]))
    assert (present.item(), number.item()) == ((True, 1) if taken else (False, 2))
    assert inside.shape == x.shape
    if taken:
        np.testing.assert_array_equal(inside, 2 * x)


def test_nothing_that_differs_needs_no_node() -> None:
    op = rules().op
    sides = [(op.inner("then"), []), (op.inner("else"), [])]
    used = op.graph.inputs[0]
    sides[0][0].Neg(used)
    assert if_node(op, value(dtype=T.BOOL), sides, []) == []
    assert not list(op.graph) and not used.uses()


# Loops


def test_a_loop_settles_on_the_sizes_that_stay() -> None:
    """``y = [x]; for _ in range(n): y = concat(y, y) ; k += 1``: the first axis grows, the second stays."""

    def build(op: Builder, x: ir.Value, trips: ir.Value) -> list[ir.Value]:
        begin = {"y": (held(x), Same(held(x))), "k": (Snapshot(5), Same(Snapshot(5))), "x": (held(x), Same(held(x)))}
        seen = []

        def attempt(carried: Any) -> Any:
            loop = LoopBody(op, [kind for _, form in carried.values() for kind in kinds(form)])
            values, inner = iter(loop.carried), loop.inner
            now = {key: unpack(form, values, Plain()) for key, (_, form) in carried.items()}
            y = x if now["y"] is NO_IDENTITY else now["y"]
            ends = {"y": held(inner.Concat(y, y, axis=0)), "k": Snapshot(_next(inner, now["k"])), "x": held(x)}
            wider = {k: (start, join(form, Same(ends[k]), Rules(op))) for k, (start, form) in carried.items()}
            seen.append(inner)
            return wider, inner, (loop, ends)

        carried, (loop, ends) = settle(begin, attempt)
        forms = {key: form for key, (_, form) in carried.items()}
        assert forms["y"] == TensorForm(T.FLOAT, (UNKNOWN, 3)) and isinstance(forms["x"], Same)
        assert forms["k"] == NumberForm(T.INT64)
        assert all(not list(inner.graph) for inner in seen[:-1]), "an earlier trial still uses what is outside"
        starts = [v for start, form in carried.values() for v in pack(op, start, form)]
        last = [v for key, form in forms.items() for v in pack(loop.inner, ends[key], form)]
        return loop.close(trips, True, starts, loop.go_on, last, [loop.iteration])

    inputs = [np.ones((1, 3), np.float32), np.array([3])]
    session = Session(model_of(build, inputs, source=18).SerializeToString(), threads=1)
    y, k, passes = session.run({"in0": inputs[0], "in1": inputs[1]}).values()
    assert (y.shape, k.tolist(), passes.tolist()) == ((8, 3), [8], [0, 1, 2])


def _next(op: Builder, number: Any) -> Any:
    return number + 1 if isinstance(number, int) else op.Add(number, 1)


def test_what_nobody_asks_for_is_dropped() -> None:
    op = rules().op
    loop = LoopBody(op, [tensor(T.FLOAT, [2]), tensor(T.INT64, [1])])
    loop.drop(loop.carried[0])
    (k,) = loop.close(3, True, [op.constant([1])], loop.go_on, [loop.inner.Add(loop.carried[0], 1)])
    assert len(loop.inner.graph.inputs) == 3 and k.dtype == T.INT64


def test_sequences_keep_their_type() -> None:
    """Through a Loop that hands one on, and an If of which one side does."""
    op = rules().op
    kind = ir.SequenceType(ir.TensorType(T.FLOAT)), None
    items = gathered(op, [op.graph.inputs[0]], T.FLOAT, (N, 3), stacked=False, numbers=False).value
    loop = LoopBody(op, [kind])
    (out,) = loop.close(3, True, [items], loop.go_on, loop.carried)
    sides = [(op.inner("then"), [out]), (op.inner("else"), [items])]
    (chosen,) = if_node(op, op.constant(True), sides, [kind])
    bodies = [loop.inner.graph.outputs[1], *(side.graph.outputs[0] for side, _ in sides)]
    assert all(isinstance(made.type, ir.SequenceType) for made in (out, chosen, *loop.carried, *bodies))


def test_a_loop_that_never_settles_is_refused() -> None:
    op = rules().op

    def attempt(count: int) -> tuple[int, Builder, None]:
        return count + 1, op.inner("loop"), None

    with pytest.raises(Exception, match="does not settle"):
        settle(0, attempt)
