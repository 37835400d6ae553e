"""Tensor arrays. What they are is in `arrays`; which form one has is found out while lowering."""

from __future__ import annotations

import onnx_ir as ir

from tonnx.errors import UnsupportedArgument
from tonnx.frontends.paddle.lower.arrays import Array, Listed
from tonnx.frontends.paddle.lower.rules import Ints, Value, direct, lower
from tonnx.frontends.paddle.read.graph import Op
from tonnx.ir.build import Builder, Size, T

direct("create_array()", lambda op: Listed(), unused="dtype")
direct("assign@array(x: Array)", lambda op, x: x)
direct("assign_out@array(x: Array, output: Array = None)", lambda op, x, output: x)
direct("array_read(array: Array, i)", lambda op, array, i: array.read(op, i))
direct("array_length(x: Array = None)", lambda op, x: op.reshape((x or Listed()).length(op), [1]))
direct(
    "array_to_tensor(x: Array, *, axis: int = 0, use_stack: bool = False)",
    lambda op, x, axis, use_stack: x.joined(op, axis, use_stack),
)
direct("slice_array_dense(input: Array, starts)", lambda op, array, start: array.read(op, start))
direct("slice_array(input: Array, starts: Size, ends: Size)", lambda op, array, start, end: array.part(op, start, end))


@lower("create_array_like")
def create_array_like(op: Builder, x: Array, *, val: float = 0.0) -> Array:
    if not isinstance(x, Listed):
        raise UnsupportedArgument("a list like one whose length is known only at run time is not supported")
    return Listed(tuple(op.Mul(element, 0) if val == 0 else op.Add(op.Mul(element, 0), val) for element in x.elements))


@lower("array_write")
def array_write(op: Builder, array: Array | None = None, x: Value | None = None, i: Value | None = None) -> Array:
    assert x is not None and i is not None
    return (array or Listed()).write(op, i, x)  # old programs begin one by writing to it


@lower("array_pop")
def array_pop(op: Builder, input: Array, *, index: int = -1) -> tuple[Array, ir.Value]:
    if not isinstance(input, Listed):
        raise UnsupportedArgument("pop of a list whose length is known only at run time is not supported")
    elements = list(input.elements)
    taken = elements.pop(index)
    return Listed(tuple(elements)), taken


@lower("slice@array", unused="axes")
def slice_old_array(
    op: Builder, input: Array, starts: Size, ends: Size, *, decrease_axis: Ints = ()
) -> Array | ir.Value:
    """Old programs slice arrays as they slice tensors; ``decrease_axis`` takes a single element."""
    if len(decrease_axis):
        return input.read(op, starts if isinstance(starts, ir.Value) else op.constant([starts], T.INT64))
    return input.part(op, starts, ends)


@lower("select_output")
def select_output(op: Builder, x: Value, mask: Value, *, node: Op) -> list[ir.Value]:
    """One of the outputs gets the value, and nobody may read the others: all of them can have it."""
    return [x] * len(node.outputs["Out"])
