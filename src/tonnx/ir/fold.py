"""What small constants evaluate to: the numpy meaning of the operators that shape arithmetic is made of.

The builder calls this while it builds, so shape computations on known sizes never become nodes at all. Weights are
not folded here: that is a pass with a size limit and a switch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ml_dtypes  # teaches numpy the dtypes that ONNX has and numpy has not
import numpy as np
import onnx_ir as ir

Array = np.ndarray
Attributes = Mapping[str, Any]
LIMIT = 1 << 16
"""Elements. What is larger stays a node, so that folding never inflates a file."""

_FILLED = 1 << 10
"""Elements of one number that are written down; more of them are what ConstantOfShape is for."""

_QUANTISED = 1 << 10
"""Elements. Fewer integers of 8 bits are taken for numbers, not for weights."""


def _cast(x: Array, attributes: Attributes) -> Array:
    to = attributes["to"]
    dtype = ir.DataType[to] if isinstance(to, str) else ir.DataType(to)  # a word before opset 6
    with np.errstate(all="ignore"):  # NaN to int, overflow: the same undefined result as at run time
        return x.astype(dtype.numpy())


def _axes(values: Array | None, rank: int) -> tuple[int, ...] | None:
    return None if values is None else tuple(int(a) % max(rank, 1) for a in values.reshape(-1))


def _unsqueeze(x: Array, axes: Array) -> Array:
    rank = x.ndim + axes.size
    return np.expand_dims(x, tuple(int(a) % rank for a in axes.reshape(-1)))


def _slice(x: Array, starts: Array, ends: Array, axes: Array | None = None, steps: Array | None = None) -> Array:
    where = [slice(None)] * x.ndim
    for i in range(starts.size):
        axis = int(axes.reshape(-1)[i]) if axes is not None else i
        step = int(steps.reshape(-1)[i]) if steps is not None else 1
        start, end = int(starts.reshape(-1)[i]), int(ends.reshape(-1)[i])
        # With a negative step, an end below the first element means "through the first".
        stop = None if step < 0 and end < -x.shape[axis] else end
        where[axis] = slice(start, stop, step)
    return x[tuple(where)]


def _reshape(x: Array, shape: Array, allowzero: int = 0) -> Array:
    sizes = [int(s) for s in shape]
    if not allowzero:
        sizes = [x.shape[i] if s == 0 else s for i, s in enumerate(sizes)]
    return x.reshape(sizes)


def _divide(x: Array, y: Array) -> Array | None:
    if not np.issubdtype(x.dtype, np.integer):
        return np.divide(x, y)
    if np.any(y == 0):
        return None
    # ONNX divides integers like C: towards zero.
    quotient = np.abs(x) // np.abs(y)
    return (quotient * np.sign(x) * np.sign(y)).astype(x.dtype)


def _mod(x: Array, y: Array, fmod: int = 0) -> Array | None:
    if np.issubdtype(x.dtype, np.integer) and np.any(y == 0):
        return None
    return np.fmod(x, y) if fmod else np.mod(x, y)


def _clip(x: Array, low: Array | None = None, high: Array | None = None, **before_11: float) -> Array | None:
    if before_11:
        return None
    above = x if low is None else np.maximum(x, low)
    return above if high is None else np.minimum(above, high)


def _reduce(function: Callable[..., Array]) -> Callable[..., Array]:
    def reduce(x: Array, axes: Array | None = None, keepdims: int = 1, noop_with_empty_axes: int = 0) -> Array:
        if axes is not None and axes.size == 0:
            axes = None
        if axes is None and noop_with_empty_axes:
            return x
        return np.asarray(function(x, axis=_axes(axes, x.ndim), keepdims=bool(keepdims))).astype(x.dtype)

    return reduce


def _length(x: Array, axis: tuple[int, ...] | None, keepdims: bool) -> Array:
    squares = np.square(x.astype(np.float64))
    return np.asarray(np.sqrt(np.sum(squares, axis=axis, keepdims=keepdims)))


def _range(start: Array, limit: Array, delta: Array) -> Array | None:
    if delta.item() == 0 or abs((limit.item() - start.item()) / delta.item()) > LIMIT:
        return None
    count = max(0, int(np.ceil((limit.item() - start.item()) / delta.item())))
    return (start + np.arange(count, dtype=start.dtype) * delta).astype(start.dtype)


def _pow(x: Array, y: Array) -> Array | None:
    if np.issubdtype(x.dtype, np.integer) and np.any(y < 0):
        return None
    return np.power(x, y).astype(x.dtype)


def _quantize(x: Array, scale: Array, zero: Array | None = None, axis: int = 1, **others: Any) -> Array | None:
    """Weights are stored as integers; the DequantizeLinear after them stays."""
    if others or zero is None or zero.dtype not in _WHOLE or scale.ndim > 1 or x.dtype != np.float32:
        return None
    if scale.ndim:
        shape = [-1 if i == axis % x.ndim else 1 for i in range(x.ndim)]
        scale, zero = scale.reshape(shape), zero.reshape(shape)
    limits = np.iinfo(zero.dtype)
    return np.clip(np.rint(x / scale) + zero.astype(np.float32), limits.min, limits.max).astype(zero.dtype)


def _filled(shape: Array, value: ir.TensorProtocol | None = None) -> Array | None:
    if np.prod(shape.astype(np.float64)) > _FILLED:
        return None
    number = np.zeros(1, np.float32) if value is None else value.numpy()
    return np.full(tuple(int(size) for size in shape), number.reshape(-1)[0], number.dtype)


def _gather_elements(x: Array, indices: Array, axis: int = 0) -> Array:
    return np.take_along_axis(x, np.where(indices < 0, indices + x.shape[axis], indices), axis)


def _gather_nd(x: Array, indices: Array, batch_dims: int = 0) -> Array | None:
    return None if batch_dims else x[tuple(np.moveaxis(indices, -1, 0))]


def _scatter_nd(x: Array, indices: Array, updates: Array, reduction: str = "none") -> Array | None:
    if reduction != "none":
        return None
    result = x.copy()
    result[tuple(np.moveaxis(indices, -1, 0))] = updates
    return result


def _cumulative_sum(x: Array, axis: Array, exclusive: int = 0, reverse: int = 0) -> Array:
    turned = np.flip(x, int(axis)) if reverse else x
    sums = np.cumsum(turned, int(axis), dtype=x.dtype) - (turned if exclusive else 0)
    return (np.flip(sums, int(axis)) if reverse else sums).astype(x.dtype)


def _tile(x: Array, repeats: Array, old_axis: Array | None = None) -> Array | None:  # which version 1 has
    if old_axis is not None or x.size * np.prod(repeats.astype(np.float64)) > LIMIT:
        return None
    return np.tile(x, repeats)


_WHOLE = (np.int8, np.uint8, np.int16, np.uint16)

_TABLE: dict[str, Callable[..., Array | None]] = {
    "Identity": lambda x: x,
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Div": _divide,
    "Mod": _mod,
    "Pow": _pow,
    "Round": np.rint,
    "Neg": np.negative,
    "Abs": np.absolute,
    "Sqrt": np.sqrt,
    "Exp": np.exp,
    "Log": np.log,
    "Sin": np.sin,
    "Cos": np.cos,
    "Tanh": np.tanh,
    "Sigmoid": lambda x: np.reciprocal(1 + np.exp(-x)),
    "Relu": lambda x: np.maximum(x, x.dtype.type(0)),
    "MatMul": lambda x, y: np.matmul(x, y) if x.dtype in (np.float32, np.float64) else None,
    "Sign": np.sign,
    "IsNaN": np.isnan,
    "Trilu": lambda x, k=None, upper=1: (np.triu if upper else np.tril)(x, 0 if k is None else int(k)),
    "Reciprocal": np.reciprocal,
    "Floor": np.floor,
    "Ceil": np.ceil,
    "Max": lambda *xs: np.maximum.reduce(np.broadcast_arrays(*xs)),
    "Min": lambda *xs: np.minimum.reduce(np.broadcast_arrays(*xs)),
    "Clip": _clip,
    "Equal": np.equal,
    "Less": np.less,
    "LessOrEqual": np.less_equal,
    "Greater": np.greater,
    "GreaterOrEqual": np.greater_equal,
    "And": np.logical_and,
    "Or": np.logical_or,
    "Xor": np.logical_xor,
    "Not": np.logical_not,
    "BitwiseAnd": np.bitwise_and,
    "BitwiseOr": np.bitwise_or,
    "BitwiseXor": np.bitwise_xor,
    "BitwiseNot": np.bitwise_not,
    "BitShift": lambda x, y, direction: (np.left_shift if direction == "LEFT" else np.right_shift)(x, y),
    "Where": np.where,
    "Concat": lambda *parts, axis: np.concatenate(parts, axis=axis),
    "Reshape": _reshape,
    "Squeeze": lambda x, axes=None: np.squeeze(x, _axes(axes, x.ndim)),
    "Unsqueeze": _unsqueeze,
    "Slice": _slice,
    "Gather": lambda x, indices, axis=0: np.take(x, indices, axis=axis),
    "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
    "ScatterND": _scatter_nd,
    "CumSum": _cumulative_sum,
    "Tile": _tile,
    "ConstantOfShape": _filled,
    "Transpose": lambda x, perm=None: np.transpose(x, perm),
    "Expand": lambda x, shape: x * np.ones(tuple(int(s) for s in shape), dtype=x.dtype),
    "Range": _range,
    "QuantizeLinear": _quantize,
    "ReduceProd": _reduce(np.prod),
    "ReduceSum": _reduce(np.sum),
    "ReduceMax": _reduce(np.max),
    "ReduceMin": _reduce(np.min),
    "ReduceMean": _reduce(np.mean),
    "ReduceL2": _reduce(_length),
}


FOLDED = frozenset(("Cast", *_TABLE))
"""The operators that are."""

_REDUCING = ("ReduceProd", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceMean", "ReduceL2")

_OLD = frozenset(("broadcast", "consumed_inputs"))
"""Attributes of opset 6 and before: what has them means something else by its operands."""

# Attributes that became inputs: name → position.
_BECAME_INPUTS = {
    **{name: {"axes": 1} for name in (*_REDUCING, "Squeeze", "Unsqueeze")},
    "Slice": {"starts": 1, "ends": 2, "axes": 3},
}


def _modern(
    op_type: str, inputs: Sequence[Array | None], attributes: Attributes
) -> tuple[Sequence[Array | None], Attributes]:
    """The node as a newer version writes it: the functions above know only that form."""
    positions = _BECAME_INPUTS.get(op_type, {})
    if not any(name in attributes for name in positions):
        return inputs, attributes
    moved = list(inputs)
    for name, position in positions.items():
        if name in attributes:
            moved += [None] * (position + 1 - len(moved))
            moved[position] = np.asarray(attributes[name], dtype=np.int64)
    return moved, {name: value for name, value in attributes.items() if name not in positions}


def _was_quantised(x: Array) -> bool:
    """Weights of 8 bits or fewer: as floats they would take the space again that was saved."""
    return x.itemsize == 1 and x.dtype != bool and x.size > _QUANTISED


def _bits(x: Array) -> int:
    return 4 if x.dtype in (ml_dtypes.int4, ml_dtypes.uint4) else 8 * x.itemsize


def fold(
    op_type: str, inputs: Sequence[Array | None], attributes: Attributes, limit: int | None = LIMIT
) -> Array | None:
    """The value of an operator on constant inputs, or None when it is not folded."""
    if op_type == "Cast":
        assert inputs[0] is not None
        cast = _cast(inputs[0], attributes)
        return None if _was_quantised(inputs[0]) and _bits(cast) > _bits(inputs[0]) else cast
    function = _TABLE.get(op_type)
    if function is None or not _OLD.isdisjoint(attributes):
        return None
    inputs, attributes = _modern(op_type, inputs, attributes)
    if op_type == "Expand":
        assert inputs[1] is not None
        if np.prod(inputs[1].astype(np.float64)) > LIMIT:
            return None
    try:
        with np.errstate(all="ignore"):
            result = function(*inputs, **attributes)
    except (ValueError, IndexError):  # it fails at run time as well, if it is ever reached: branches may not be
        return None
    if result is None or (limit is not None and result.size > limit):
        return None
    return np.asarray(result)
