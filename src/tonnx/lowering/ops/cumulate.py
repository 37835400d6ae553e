"""Running sums, products and extremes along an axis."""

from __future__ import annotations

import math
from collections.abc import Callable

import onnx_ir as ir

from tonnx.ir.build import Builder
from tonnx.lowering.ops.reduce import summed
from tonnx.lowering.ops.special import log_add_exp
from tonnx.lowering.rules import lower
from tonnx.lowering.values import axis_of, is_float, opmath

T = ir.DataType
Step = Callable[[Builder, list[ir.Value], ir.Value], list[ir.Value]]


@lower("aten.cumsum")
def cumsum(op: Builder, x: ir.Value, dim: int, dtype: ir.DataType | None = None) -> ir.Value:
    x = summed(op, x, dtype)
    return op.CumSum(x, op.constant(axis_of(op, x, dim), T.INT64)) if op.rank(x) else x


@lower("aten.cumprod")
def cumprod(op: Builder, x: ir.Value, dim: int, dtype: ir.DataType | None = None) -> ir.Value:
    x = summed(op, x, dtype)
    if op.rank(x) == 0 or op.size(x, dim) == 0:  # below opset 26 it is a Scan, and those do not run on nothing
        return x
    return op.CumProd(x, op.constant(axis_of(op, x, dim), T.INT64))


@lower("aten.logcumsumexp", "aten._logcumsumexp")
def logcumsumexp(op: Builder, x: ir.Value, dim: int) -> ir.Value:
    if op.rank(x) == 0:
        return x
    x = opmath(op, x)
    nothing = op.Expand(op.constant(-math.inf, x.dtype), op.Shape(_first(op, x, dim)))
    (result,) = _scan(op, x, dim, [nothing], lambda op, state, item: [log_add_exp(op, state[0], item)])
    return result


@lower("aten.cummax", better="GreaterOrEqual")
@lower("aten.cummin", better="LessOrEqual")
def running_extreme(op: Builder, x: ir.Value, dim: int, *, better: str) -> list[ir.Value]:
    """The extreme so far and where it was met last."""
    if op.rank(x) == 0:
        return [x, op.constant(0, T.INT64)]

    def step(op: Builder, state: list[ir.Value], item: ir.Value) -> list[ir.Value]:
        extreme, place, now = state
        is_better = getattr(op, better)(item, extreme)
        if is_float(item.dtype):  # once met, no number is the extreme for good
            is_better = op.Or(op.IsNaN(item), op.And(is_better, op.Not(op.IsNaN(extreme))))
        return [op.Where(is_better, item, extreme), op.Where(is_better, now, place), op.Add(now, 1)]

    first = _first(op, x, dim)
    zero = op.Expand(op.constant(0, T.INT64), op.Shape(first))
    values, places, _ = _scan(op, x, dim, [first, zero, op.constant(0, T.INT64)], step)
    return [values, places]


def _first(op: Builder, x: ir.Value, dim: int) -> ir.Value:
    return op.Gather(x, 0, axis=axis_of(op, x, dim))


def _scan(op: Builder, x: ir.Value, dim: int, initial: list[ir.Value], step: Step) -> list[ir.Value]:
    """The states after every item along an axis."""
    axis = axis_of(op, x, dim)
    assert x.shape is not None
    item_dims = [d for i, d in enumerate(x.shape.dims) if i != axis]
    dims = [item_dims if op.rank(state) else [] for state in initial]
    kinds = [("state", state.dtype, d) for state, d in zip(initial, dims, strict=True)]
    body = op.inner("scan", [*kinds, ("item", x.dtype, item_dims)])  # type: ignore[list-item]
    *states, item = body.graph.inputs
    results = step(body, states, item)
    traces = [body.Identity(result) for result in results]  # an output has one name, and each is needed twice
    body.graph.outputs.extend([*results, *traces])
    stacked = [[*d[:axis], x.shape[axis], *d[axis:]] for d in dims]
    outputs = op.node(
        "Scan",
        [*initial, x],
        [
            ir.AttrGraph("body", body.graph),
            ir.AttrInt64("num_scan_inputs", 1),
            ir.AttrInt64s("scan_input_axes", [axis]),
            ir.AttrInt64s("scan_output_axes", [axis if d else 0 for d in dims]),
        ],
        [(state.dtype, d) for state, d in zip([*initial, *initial], [*dims, *stacked], strict=True)],
    )
    return list(outputs[len(initial) :])
