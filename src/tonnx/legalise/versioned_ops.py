"""Operators whose inputs and attributes changed places, written as the builder's opset wants them.

A decomposition is a rule of one version step, so it knows its opset; what several of them share does not.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import onnx_ir as ir

from tonnx.ir import facts
from tonnx.ir.build import Builder, Size, T
from tonnx.legalise.node_view import Blocked, NodeView, constant_of, known, number_of

# What came with which opset.
_AXES_INPUT = 18
_AXES_INPUT_OF_SUM = 13


def reduce(op: Builder, kind: str, x: ir.Value, axes: Sequence[int], *, keepdims: bool = True) -> ir.Value:
    """``kind`` ("ReduceMean" …) over fixed axes."""
    emit = getattr(op, kind)
    if op.opset >= (_AXES_INPUT_OF_SUM if kind == "ReduceSum" else _AXES_INPUT):
        return emit(x, list(axes), keepdims=int(keepdims))
    return emit(x, axes=list(axes), keepdims=int(keepdims))


def unsqueeze(op: Builder, x: ir.Value, *axes: int) -> ir.Value:
    """New axes of size 1; counted in the result."""
    if op.opset >= 13:
        return op.Unsqueeze(x, list(axes))
    if x.shape is not None:  # negative axes came with opset 11
        axes = tuple(sorted(a % (x.shape.rank() + len(axes)) for a in axes))
    return op.Unsqueeze(x, axes=list(axes))


def squeeze(op: Builder, x: ir.Value, *axes: int) -> ir.Value:
    if op.opset >= 13:
        return op.Squeeze(x, list(axes))
    if x.shape is not None:
        axes = tuple(sorted(a % x.shape.rank() for a in axes))
    return op.Squeeze(x, axes=list(axes))


def split(op: Builder, x: ir.Value, axis: int, sizes: Sequence[int]) -> tuple[ir.Value, ...]:
    if op.opset >= 13:
        return op.Split(x, list(sizes), axis=axis, _outputs=len(sizes))
    return op.Split(x, split=list(sizes), axis=axis, _outputs=len(sizes))


END = 2**63 - 1
"""As the end of a slice: to the end, whatever the size."""


def cut(op: Builder, x: ir.Value, axis: int, start: Size, end: Size = END, step: int = 1) -> ir.Value:
    """``x[..., start:end:step, ...]`` along one axis."""
    if op.opset >= 10:
        inputs = [s if isinstance(s, ir.Value) else [s] for s in (start, end)]
        return op.Slice(x, *inputs, [axis], *([[step]] if step != 1 else []))
    if step != 1:
        raise Blocked("Slice has no steps before opset 10")
    bounds = []
    for bound in (start, end):
        array = constant_of(bound) if isinstance(bound, ir.Value) else np.asarray(bound)
        if array is None:
            raise Blocked("Slice takes bounds computed at run time only from opset 10 on")
        bounds.append(int(array.reshape(-1)[0]))
    return op.Slice(x, axes=[axis], starts=bounds[:1], ends=bounds[1:])


def number(op: Builder, value: float, like: ir.Value) -> ir.Value:
    """A scalar of the dtype of another value."""
    return op.constant(value, known(like.dtype, f"the element type of {like.name} is not known"))


def arange(op: Builder, count: Size) -> ir.Value:
    """The int64 vector 0, 1 … count-1."""
    if isinstance(count, int):
        return op.constant(np.arange(count, dtype=np.int64))
    if op.opset >= 11:
        return op.Range(0, op.scalar(count), 1)
    if op.opset >= 9:
        # The places where a vector of ones is not zero, counted up.
        ones = op.ConstantOfShape(count, value=ir.Tensor(np.ones(1, dtype=np.int64)))
        places = op.NonZero(ones)
        facts.COUNTS.add(places.producer())
        return squeeze(op, places, 0)
    return counted_by_loop(op, op.scalar(count))


def counted_by_loop(op: Builder, count: ir.Value, *, zeros: bool = False) -> ir.Value:
    """0, 1, 2 … or so many zeros: before opset 9 only a Loop knows how often it ran, before 6 only it makes a size."""
    body = op.inner("count", [("i", T.INT64, []), ("again", T.BOOL, []), ("carried", T.INT64, [])])
    turn, again, carried = body.graph.inputs
    with body:
        body.graph.outputs.extend(body.Identity(value) for value in (again, carried, carried if zeros else turn))
    start = op.constant(0, T.INT64) if zeros else count
    _, numbers = op.Loop(count, op.constant(True), start, body=body.graph, _outputs=2)
    numbers.dtype, numbers.shape = T.INT64, ir.Shape([None])
    facts.COUNT.add(numbers)
    return numbers


def rounded(op: Builder, x: ir.Value) -> ir.Value:
    """The nearest whole number, halves to the even one."""
    if op.opset >= 11:
        return op.Round(x)
    low = op.Floor(x)
    rest = x - low
    odd = low - op.Floor(low * 0.5) * 2.0
    half = number(op, 0.5, x)
    up = op.Or(op.Greater(rest, half), op.And(op.Not(op.Less(rest, half)), op.Greater(odd, half)))
    assert x.dtype is not None
    return low + op.Cast(up, to=int(x.dtype))


def not_a_number(op: Builder, x: ir.Value) -> ir.Value:
    """Where ``x`` is NaN: every number is below 1 or above 0."""
    if op.opset >= 9:
        return op.IsNaN(x)
    is_nan: ir.Value = op.Not(op.Or(op.Less(x, number(op, 1, x)), op.Greater(x, number(op, 0, x))))
    facts.NAN.add(is_nan)
    return is_nan


def clip(op: Builder, x: ir.Value, low: float, high: float) -> ir.Value:
    if op.opset >= 11:
        return op.Clip(x, number(op, low, x), number(op, high, x))
    return op.Clip(x, min=low, max=high)


FLOATS = (T.FLOAT, T.DOUBLE, T.FLOAT16, T.BFLOAT16)


def select(op: Builder, condition: ir.Value, a: ir.Value, b: ir.Value) -> ir.Value:
    """``a`` where the condition holds, ``b`` elsewhere.

    Before opset 9 without Where. Numbers go through Min and Max with ±inf, which keeps infinities apart, but a NaN in
    the part that is not chosen shows through. Where 0 is put in the place of something, or the choice is made by what
    is NaN, that is what it is for: there, x⁰ = 1 is used, which holds of a NaN, too.
    """
    if op.opset >= 9:
        return op.Where(condition, a, b)
    dtype = known(a.dtype, f"the element type of {a.name} is not known")
    if dtype == T.BOOL:
        return op.Or(op.And(condition, a), op.And(op.Not(condition), b))
    chosen = op.Cast(condition, to=int(dtype))
    if dtype not in FLOATS:
        return op.Add(b, op.Mul(chosen, op.Sub(a, b)))
    if condition in facts.NAN:
        return op.Mul(op.Pow(a, chosen), op.Pow(b, op.Sub(1.0, chosen)))
    left, right = _lone_number(a), _lone_number(b)
    for lone, kept, other in ((right, a, left), (left, b, right)):
        is_nan = lone is not None and np.isnan(lone)
        if is_nan or (lone == 0 and other is None):
            here = chosen if kept is a else op.Sub(1.0, chosen)
            # 0 / 0 is no number; x⁰ is 1
            return op.Mul(kept, op.Div(here, here)) if is_nan else op.Mul(here, op.Pow(kept, here))
    if left is not None and right is not None:
        if np.isfinite(left) and np.isfinite(right):
            # Two products and not one with the difference, which would round.
            other = op.Sub(1.0, chosen)
            return op.Add(op.Mul(chosen, left), op.Mul(other, right)) if right else op.Mul(chosen, left)
        if left == 0 and right == -np.inf:
            return op.Log(chosen)
    # +inf where a is to come through, -inf where b is.
    gate = op.Mul(op.Sub(chosen, 0.5), np.inf)
    if left == np.inf:
        return op.Max(b, gate)
    if right == -np.inf:
        return op.Min(a, gate)
    against = op.Neg(gate)
    if left == -np.inf:
        return op.Min(b, against)
    if right == np.inf:
        return op.Max(a, against)
    return op.Max(op.Min(a, gate), op.Min(b, against))


def _lone_number(value: ir.Value) -> float | None:
    node = value.producer()
    while node is not None and (node.domain, node.op_type) in (("", "Cast"), ("", "Identity")):
        source = node.inputs[0]
        assert source is not None
        value, node = source, source.producer()
    return number_of(value)


def at_most(op: Builder, a: ir.Value, b: ir.Value) -> ir.Value:
    """a <= b, for numbers that are never NaN."""
    return op.LessOrEqual(a, b) if op.opset >= 12 else op.Not(op.Greater(a, b))


def fixed(value: ir.Value | None, axis: int) -> int | None:
    """The size of an axis if it is known now."""
    if value is None or value.shape is None:
        return None
    dim = value.shape[axis]
    return dim if isinstance(dim, int) else None


def evaluated(node: NodeView) -> np.ndarray | None:
    """What onnx's reference computes from a node's constant inputs; None if one is known only at run time."""
    from onnx.reference import ReferenceEvaluator  # slow to import, and rarely needed

    feeds: dict[str, np.ndarray] = {}
    for value in node.inputs:
        if value is None:
            continue
        array = constant_of(value)
        if array is None:
            return None
        feeds[value.name or ""] = array
    proto = ir.to_proto(node.node)
    inputs = [
        onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in feeds.items()
    ]
    outputs = [onnx.ValueInfoProto(name=proto.output[0])]
    graph = onnx.helper.make_graph([proto], "node", inputs, outputs)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", node.signature.since)])
    return np.asarray(ReferenceEvaluator(model).run(None, feeds)[0])
