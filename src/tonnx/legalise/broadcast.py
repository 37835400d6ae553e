"""Broadcasting as it was before opset 7: only the right operand, over a run of the left one's axes, when asked for.

    A (2, 3, 4, 5), B (4, 5)               broadcast=1
    A (2, 3, 4, 5), B (3, 4)               broadcast=1, axis=1
    A (2, 3, 4, 5), B of one element       broadcast=1

What numpy's broadcasting does beyond the first and the last is written out: the operands change places, axes of size 1
are taken away, axes are moved to the end, and what has to grow is repeated. The second is never written: onnx's own
version converter (1.23) counts `axis` wrong, and makes a file of it that does not load.

Sizes that are known only at run time are taken to be equal unless one of them is known to be 1; where that is not so, a
runtime says that the shapes do not fit.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from tonnx.ir.build import Builder, T
from tonnx.ir.fold import LIMIT
from tonnx.ir.infer import UNKNOWN, Dim, Dims, dims_of, same_dims
from tonnx.legalise.node_view import Blocked, constant_of

_FLOATS = (T.FLOAT16, T.FLOAT, T.DOUBLE, None)  # None: not known, behind a node of another domain
_UNSIGNED = (T.UINT8, T.UINT16, T.UINT32, T.UINT64)
_COMMUTATIVE = ("Add", "Mul", "And", "Or", "Xor", "Equal")
_MIRRORED = {"Less": "Greater", "Greater": "Less"}
_TO_BOOL = ("Equal", "Less", "Greater", "And", "Or", "Xor")


def limited(op: Builder, kind: str, a: ir.Value, b: ir.Value) -> ir.Value:
    """``kind(a, b)`` with numpy's broadcasting, for opset 6 and below."""
    if equal_shapes(a, b):
        return _emit(op, kind, a, b, {})
    if _single(b):
        return _with_one(op, kind, a, b)
    if _single(a) and (mirror := _mirrored(op, kind, a, b)) is not None:
        return _with_one(op, *mirror)
    if a.shape is None or b.shape is None:
        raise Blocked("the rank of its inputs is not known, and before opset 7 broadcasting depends on it")
    rank = max(a.shape.rank(), b.shape.rank())
    left, right = _aligned(a, rank), _aligned(b, rank)
    grow_left = [i for i in range(rank) if left[i] == 1 and right[i] != 1]
    grow_right = [i for i in range(rank) if right[i] == 1 and left[i] != 1]
    if grow_left and not grow_right and (mirror := _mirrored(op, kind, a, b)) is not None:
        kind, a, b = mirror
        return _over_a_run(op, kind, _of_rank(op, a, rank), b)
    a = _of_rank(op, a, rank)
    if grow_left:
        a = _grown(op, a, b, grow_left, both=bool(grow_right))
    return _over_a_run(op, kind, a, b)


def equal_shapes(a: ir.Value, b: ir.Value) -> bool:
    """Whether two values are known to have the same shape."""
    return same_dims(dims_of(a), dims_of(b))


def _emit(op: Builder, kind: str, a: ir.Value, b: ir.Value, attributes: dict[str, int]) -> ir.Value:
    dtype = T.BOOL if kind in _TO_BOOL else a.dtype
    written = [ir.AttrInt64(name, value) for name, value in attributes.items()]
    dims = dims_of(a)
    right = dims_of(b)
    if dims is not None and right is not None and len(right) <= len(dims):
        start = len(dims) - len(right)
        dims = [_better(d, right[i - start]) if i >= start else d for i, d in enumerate(dims)]
    (result,) = op.node(kind, [a, b], written, [(dtype, dims)])
    return result


def _better(dim: Dim, other: Dim) -> Dim:
    unknown = isinstance(dim, ir.SymbolicDim) and dim.value is None
    return other if unknown and other != 1 else dim


def _single(value: ir.Value) -> bool:
    dims = dims_of(value)
    return dims is not None and all(dim == 1 for dim in dims)


def _with_one(op: Builder, kind: str, a: ir.Value, b: ir.Value) -> ir.Value:
    """The right operand is one element, whose rank may not be higher; if it is, that is the rank of the result."""
    rank = op.rank(b)
    if a.shape is None:
        if rank > 1:
            raise Blocked("the rank of its input is not known, and before opset 7 broadcasting depends on it")
    elif a.shape is not None:
        a = _of_rank(op, a, max(rank, a.shape.rank()))
    return _emit(op, kind, a, b, {"broadcast": 1})


def _mirrored(op: Builder, kind: str, a: ir.Value, b: ir.Value) -> tuple[str, ir.Value, ir.Value] | None:
    """The same with the operands the other way round, exactly; None if there is no such thing."""
    if kind in _COMMUTATIVE:
        return kind, b, a
    if kind in _MIRRORED:
        return _MIRRORED[kind], b, a
    if kind == "Sub" and b.dtype not in _UNSIGNED:
        return "Add", op.Neg(b), a
    if kind == "Div" and b.dtype in _FLOATS:
        number = constant_of(a)
        if number is not None and number.size == 1 and number.item() == 1:
            return "Mul", op.Reciprocal(b), a
    return None


def _aligned(value: ir.Value, rank: int) -> Dims:
    dims = dims_of(value) or []
    return [*[1] * (rank - len(dims)), *dims]


def _of_rank(op: Builder, value: ir.Value, rank: int) -> ir.Value:
    """New axes of size 1 in front."""
    missing = rank - (value.shape.rank() if value.shape is not None else rank)
    if not missing:
        return value
    if (array := constant_of(value)) is not None and array.size <= LIMIT:
        return op.constant(array.reshape([1] * missing + list(array.shape)))
    return op.Unsqueeze(value, axes=list(range(missing)))


def without_axes(op: Builder, value: ir.Value, axes: Sequence[int]) -> ir.Value:
    if not axes:
        return value
    if (array := constant_of(value)) is not None and array.size <= LIMIT:
        return op.constant(array.reshape([size for i, size in enumerate(array.shape) if i not in axes]))
    return op.Squeeze(value, axes=list(axes))


def _over_a_run(op: Builder, kind: str, a: ir.Value, b: ir.Value) -> ir.Value:
    """``a`` has the rank and the sizes of the result: over which of its axes does ``b`` run?"""
    dims = dims_of(a) or []
    rank, offset = len(dims), len(dims) - op.rank(b)
    right = _aligned(b, rank)
    own = [i for i in range(rank) if right[i] != 1]
    if not own:
        return _with_one(op, kind, a, b)
    first, last = own[0], own[-1]
    gaps = [i for i in range(first, last) if right[i] == 1 and dims[i] != 1]
    if gaps:
        array = constant_of(b)
        sizes = [d if isinstance(d, int) else LIMIT for d in dims[first : last + 1]]
        if array is None or np.prod(sizes, dtype=np.float64) > LIMIT:
            return _axes_moved(op, kind, a, b, own)
        shape = [dims[i] if i in gaps else right[i] for i in range(offset, rank)]
        b = op.constant(np.broadcast_to(array, shape).copy())  # type: ignore[arg-type]
    if all(dim == 1 for dim in dims[last + 1 :]):  # both are 1 there: no need to take the axes away
        last = rank - 1
        while first > offset and dims[first - 1] == 1:
            first -= 1
    if first == last == 1 < rank - 1:
        vector = without_axes(op, b, [i - offset for i in range(offset, rank) if i != 1])
        if (layer := _per_channel(op, kind, a, vector)) is not None:
            return layer
    if not all(isinstance(dim, int) for dim in dims[last + 1 :]):
        return _axes_moved(op, kind, a, b, range(first, last + 1))
    for axis in range(last + 1, rank):
        b = op.Gather(b, np.zeros(int(dims[axis]), dtype=np.int64), axis=axis - offset)  # type: ignore[arg-type]
    b = without_axes(op, b, list(range(first - offset)))
    return _emit(op, kind, a, b, {} if equal_shapes(a, b) else {"broadcast": 1})


def _per_channel(op: Builder, kind: str, a: ir.Value, b: ir.Value) -> ir.Value | None:
    """One number a channel, as the bias of the convolution before it or as a normalisation that changes nothing else.

    Readers of files this old know layers better than they know axes.
    """
    channels = fixed_size(b)
    if channels is None or channels != (dims_of(a) or [])[1] or a.dtype not in (T.FLOAT, T.DOUBLE):
        return None
    conv = a.producer()
    if kind == "Add" and conv is not None and _takes_a_bias(conv, a, b):
        inputs = [*conv.inputs, b]
        attributes = list(conv.attributes.values())
        return op.node(conv.op_type, inputs, attributes, [(a.dtype, dims_of(a))])[0]
    one, zero = (op.constant(np.full(channels, number), a.dtype) for number in (1.0, 0.0))
    if kind in ("Add", "Sub"):
        scale, shift = one, op.Neg(b) if kind == "Sub" else b
    elif kind == "Mul":
        scale, shift = b, zero
    else:
        return None
    return op.BatchNormalization(a, scale, shift, zero, one, epsilon=0.0, is_test=1)


def fixed_size(vector: ir.Value) -> int | None:
    """How long a vector is, if that is known."""
    dims = dims_of(vector)
    return dims[0] if dims is not None and len(dims) == 1 and isinstance(dims[0], int) else None


def _takes_a_bias(node: ir.Node, result: ir.Value, bias: ir.Value) -> bool:
    plain = node.domain == "" and node.op_type in ("Conv", "ConvTranspose") and len(node.inputs) == 2
    return plain and len(result.uses()) == 1 and not result.is_graph_output() and constant_of(bias) is not None


def _axes_moved(op: Builder, kind: str, a: ir.Value, b: ir.Value, own: Sequence[int]) -> ir.Value:
    """The axes over which ``b`` runs come last, and go back afterwards."""
    rank, offset = op.rank(a), op.rank(a) - op.rank(b)
    order = [i for i in range(rank) if i not in own] + list(own)
    b = without_axes(op, b, [i - offset for i in range(offset, rank) if i not in own])
    moved = _emit(op, kind, op.Transpose(a, perm=order), b, {"broadcast": 1})
    return op.Transpose(moved, perm=[order.index(i) for i in range(rank)])


def _grown(op: Builder, a: ir.Value, b: ir.Value, axes: Sequence[int], *, both: bool) -> ir.Value:
    """``a`` repeated along ``axes`` as often as ``b`` is long there."""
    rank = op.rank(a)
    right = _aligned(b, rank)
    array = constant_of(a)
    if array is not None and all(isinstance(right[i], int) for i in axes):
        shape = [right[i] if i in axes else size for i, size in enumerate(array.shape)]
        if np.prod(shape, dtype=np.float64) <= LIMIT:  # type: ignore[arg-type]
            return op.constant(np.broadcast_to(array, shape).copy())  # type: ignore[arg-type]
    if not both and a.dtype in _FLOATS and b.dtype == a.dtype:
        # x⁰ is 1, of a NaN and of infinity, too: ones in the shape of the other.
        ones = _emit(op, "Pow", _of_rank(op, b, rank), op.constant(0.0, a.dtype), {"broadcast": 1})
        return _over_a_run(op, "Mul", ones, a)
    for axis in axes:
        a = op.Gather(a, _zeros(op, b, axis - (rank - op.rank(b)), right[axis]), axis=axis)
    return a


def _zeros(op: Builder, b: ir.Value, axis: int, size: Dim) -> ir.Value:
    """As many zeros as ``b`` is long, as indices."""
    if isinstance(size, int):
        return op.constant(np.zeros(size, dtype=np.int64))
    number = op.cast(b, T.FLOAT)
    others = [i for i in range(op.rank(b)) if i != axis]
    line = op.ReduceSum(number, axes=others, keepdims=0) if others else number
    line.shape = ir.Shape([UNKNOWN])
    ones = _emit(op, "Pow", line, op.constant(0.0, T.FLOAT), {"broadcast": 1})
    return op.cast(_emit(op, "Sub", ones, op.constant(1.0, T.FLOAT), {"broadcast": 1}), T.INT64)


def with_number(op: Builder, kind: str, x: ir.Value, number: float) -> ir.Value:
    """``kind(x, number)``, for opset 6 and below."""
    if x.dtype is None:
        raise Blocked(f"the element type of {x.name} is not known")
    return _emit(op, kind, x, op.constant(number, x.dtype), {"broadcast": 1})
