"""The nodes: If and Loop, whose graphs make every output themselves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import onnx_ir as ir

from tonnx.ir import facts
from tonnx.ir.build import Builder, Size, T
from tonnx.ir.infer import UNKNOWN, Dim, dims_of
from tonnx.lowering.complex import REAL_OF, dtype_of

Kind = tuple[ir.TypeProtocol, Sequence[Dim] | None]
"""The type and the shape, for the model, of a value that crosses the border of a graph. Complex numbers do as pairs."""


def tensor(dtype: ir.DataType | None, dims: Sequence[Dim] | None) -> Kind:
    assert dtype is not None
    return ir.TensorType(dtype), dims


def kind_like(value: ir.Value) -> Kind:
    dims = None if value.shape is None else value.shape.dims
    return tensor(dtype_of(value), dims[:-1] if dims and value in facts.COMPLEX else dims)


def truth(op: Builder, condition: Any) -> ir.Value:
    """A condition as ONNX wants it: bool, rank 0."""
    if not isinstance(condition, ir.Value):
        return op.constant(bool(condition), T.BOOL)
    condition = op.cast(condition, T.BOOL)
    return condition if dims_of(condition) == [] else op.reshape(condition, [])


def _stamped(values: Sequence[ir.Value], kinds: Sequence[Kind]) -> list[ir.Value]:
    for value, (type_, dims) in zip(values, kinds, strict=True):
        if type_.dtype in REAL_OF:
            type_, dims = ir.TensorType(REAL_OF[type_.dtype]), None if dims is None else [*dims, 2]
            facts.COMPLEX.add(value)
        value.type, value.shape = type_, None if dims is None else ir.Shape(dims)
    return list(values)


def if_node(
    op: Builder, condition: ir.Value, sides: Sequence[tuple[Builder, Sequence[ir.Value]]], kinds: Sequence[Kind]
) -> list[ir.Value]:
    """The values of an If over two graphs that were begun, given what each side has at its end."""
    if not kinds:
        for builder, _ in sides:
            builder.discard()
        return []
    for builder, values in sides:
        for value in values:
            builder.add_output(value)
    attributes = [ir.AttrGraph(f"{name}_branch", side.graph) for name, (side, _) in zip(("then", "else"), sides)]  # noqa: B905
    outputs = op.node("If", [truth(op, condition)], attributes, [(None, None)] * len(kinds))
    return _stamped(outputs, kinds)


class LoopBody:
    """The graph of a Loop, which carries values of some kinds."""

    def __init__(self, op: Builder, kinds: Sequence[Kind]) -> None:
        self.outer = op
        self.kinds = list(kinds)
        self.inner = op.inner("loop", [("iteration", T.INT64, []), ("go_on", T.BOOL, [])])
        self.iteration, self.go_on = self.inner.graph.inputs
        facts.NONNEGATIVE.add(self.iteration)
        names = self.inner.names
        self.carried = _stamped([ir.Value(name=names.unique("carried")) for _ in kinds], self.kinds)
        self.inner.graph.inputs.extend(self.carried)

    def drop(self, value: ir.Value) -> None:
        """Carry a value no more, of which nobody has asked."""
        place = self.carried.index(value)
        del self.carried[place], self.kinds[place]
        self.inner.graph.inputs.remove(value)

    def close(
        self,
        trips: Size | None,
        condition: Any,
        starts: Sequence[ir.Value],
        go_on: Any,
        ends: Sequence[ir.Value],
        collected: Sequence[ir.Value] = (),
    ) -> list[ir.Value]:
        """The node's values: what it carried, then ``collected`` of every pass, along a new first axis.

        It makes ``trips`` passes (None: any number) while ``condition``, and then the last pass's ``go_on``, holds.
        """
        op, inner = self.outer, self.inner
        for value in (truth(inner, go_on), *ends, *collected):
            inner.add_output(value)
        limit = None if trips is None else op.scalar(trips)
        each = [kind_like(value) for value in collected]
        kinds = [*self.kinds, *((type_, None if dims is None else [UNKNOWN, *dims]) for type_, dims in each)]
        body = [ir.AttrGraph("body", inner.graph)]
        outputs = op.node("Loop", [limit, truth(op, condition), *starts], body, [(None, None)] * len(kinds))
        return _stamped(outputs, kinds)


Step = Callable[[Builder, list[ir.Value], ir.Value], Sequence[ir.Value]]


def repeat(
    op: Builder,
    trips: Size | None,
    states: Sequence[ir.Value],
    step: Step,
    while_: Callable[[Builder, list[ir.Value]], ir.Value] | None = None,
) -> list[ir.Value]:
    """``states`` after ``states = step(op, states, i)`` for i = 0 … trips - 1, as long as ``while_(op, states)``."""
    loop = LoopBody(op, [kind_like(state) for state in states])
    with loop.inner:
        ends = list(step(loop.inner, loop.carried, loop.iteration))
        go_on = loop.go_on if while_ is None else while_(loop.inner, ends)
    condition = True if while_ is None else while_(op, list(states))
    return loop.close(trips, condition, states, go_on, ends)
