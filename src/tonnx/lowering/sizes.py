"""Arithmetic on sizes: on plain integers now, on run-time sizes in the graph."""

from __future__ import annotations

import operator
from collections.abc import Callable

import onnx_ir as ir

from tonnx.errors import UnsupportedArgument
from tonnx.ir.build import Builder, Size

END = (1 << 63) - 1
"""The end of an axis, whatever its size, as Slice writes it."""


def _binary(op_type: str, function: Callable[[int, int], int]) -> Callable[[Builder, Size, Size], Size]:
    def compute(op: Builder, a: Size, b: Size) -> Size:
        if isinstance(a, ir.Value) or isinstance(b, ir.Value):
            return getattr(op, op_type)(a, b)
        return function(a, b)

    return compute


add = _binary("Add", operator.add)
subtract = _binary("Sub", operator.sub)
multiply = _binary("Mul", operator.mul)
divide = _binary("Div", operator.floordiv)
"""Only for sizes that are not negative: ONNX divides towards zero."""
modulo = _binary("Mod", operator.mod)
smaller = _binary("Min", min)
larger = _binary("Max", max)


def known(what: str, *sizes: Size | ir.SymbolicDim) -> list[int]:
    """The sizes, where ``what`` cannot be said without them."""
    fixed = [size for size in sizes if isinstance(size, int)]
    if len(fixed) < len(sizes):
        raise UnsupportedArgument(f"{what} that is known only at run time")
    return fixed


def arange(op: Builder, end: Size, start: Size = 0, step: int = 1) -> ir.Value:
    """The integers from ``start`` up to ``end``, as int64."""
    return op.Range(op.scalar(start), op.scalar(end), op.scalar(step))


def cut(op: Builder, x: ir.Value, axis: int, start: Size = 0, end: Size = END, step: Size = 1) -> ir.Value:
    """``x[start:end:step]`` along one axis, with Python's meaning of negative and too large bounds."""
    dim = x.shape[axis] if x.shape is not None else None
    if step == 1 and isinstance(start, int) and isinstance(end, int):
        if start == 0 and (end == END or (isinstance(dim, int) and end >= dim)):
            return x
        if isinstance(dim, int) and slice(start, end).indices(dim)[:2] == (0, dim):
            return x
    steps = None if step == 1 else op.vector([step])
    return op.Slice(x, op.vector([start]), op.vector([end]), [axis], steps)
