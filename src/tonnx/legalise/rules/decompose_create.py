"""Casts, masks and tensors made of nothing."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from tonnx.ir.build import Builder, T
from tonnx.ir.fold import LIMIT
from tonnx.ir.schema import signature
from tonnx.legalise.axes import never_negative
from tonnx.legalise.node_view import Blocked, NodeView, constant_of, known, number_of
from tonnx.legalise.table import attributes_go, down
from tonnx.legalise.versioned_ops import FLOATS, arange, at_most, fixed, number, select, unsqueeze


@down("CastLike", 15)
def cast_like(op: Builder, node: NodeView) -> ir.Value:
    """A Cast to the type that the other input has."""
    dtype = node.dtype("target_type")
    cast = signature("Cast", op.opset)
    if cast is None or dtype not in cast.output(0).dtypes:
        raise Blocked(f"{dtype.name.lower()} does not exist there")
    return op.Cast(node.need("input"), to=int(dtype))


@down("Bernoulli", 15)
def bernoulli(op: Builder, node: NodeView) -> ir.Value:
    """1 where a random number is below the probability."""
    x = node.need("input")
    dtype = T(node.attr("dtype", int(node.dtype("input"))))
    random = op.RandomUniformLike(x, seed=node.attr("seed"), dtype=int(node.dtype("input")))
    return op.Cast(op.Less(random, x), to=int(dtype))


@down("Trilu", 14)
def triangle(op: Builder, node: NodeView) -> ir.Value:
    """The part on and above (or below) a diagonal, picked with a mask of row and column numbers."""
    x, k = node.need("input"), node["k"]
    rank = node.rank("input")
    rows = unsqueeze(op, arange(op, op.size(x, rank - 2)), 1)
    columns = arange(op, op.size(x, rank - 1))
    if k is not None:
        rows = op.Add(rows, k)
    keep = at_most(op, rows, columns) if node.attr("upper", 1) else at_most(op, columns, rows)
    if node.dtype("input") == T.BOOL:
        return op.And(x, keep)
    return op.Where(keep, x, number(op, 0, x))


@down("GreaterOrEqual", 12)
@down("LessOrEqual", 12)
def or_equal(op: Builder, node: NodeView) -> ir.Value:
    """Not the other way; of numbers that can be NaN, that way or equal."""
    a, b = node.need("A"), node.need("B")
    this, other = (op.Greater, op.Less) if node.op_type == "GreaterOrEqual" else (op.Less, op.Greater)
    return op.Or(this(a, b), op.Equal(a, b)) if node.dtype("A") in FLOATS else op.Not(other(a, b))


@down("Range", 11)
def counted(op: Builder, node: NodeView) -> ir.Value:
    """start + step·(0, 1, 2 …)."""
    start, limit, delta = node.need("start"), node.need("limit"), node.need("delta")
    dtype = node.dtype("start")
    if (numbers_now := _known_range(start, limit, delta)) is not None:
        return op.constant(numbers_now)
    step = number_of(delta)
    if step is None or abs(step) != 1 or dtype in FLOATS:
        wide = T.DOUBLE if dtype in (T.INT64, T.INT32, T.DOUBLE) else T.FLOAT
        span = op.cast(limit, wide) - op.cast(start, wide)
        # Relu: none when the limit is on the other side.
        count = op.Cast(op.Relu(op.Ceil(span / op.cast(delta, wide))), to=int(T.INT64))
    else:
        span = limit if number_of(start) == 0 and step == 1 else limit - start if step == 1 else start - limit
        count = op.cast(span, T.INT64)
        if not (span is limit and never_negative(limit)):
            count = op.Cast(op.Relu(op.Cast(count, to=int(T.DOUBLE))), to=int(T.INT64))
    numbers = op.cast(arange(op, op.Reshape(count, [1])), dtype)
    if step != 1:
        numbers = numbers * delta
    return numbers if number_of(start) == 0 else numbers + start


def _known_range(*bounds: ir.Value) -> np.ndarray | None:
    arrays = [constant_of(bound) for bound in bounds]
    if any(array is None for array in arrays):
        return None
    start, limit, delta = (array.reshape(-1)[0] for array in arrays if array is not None)
    count = max(0, int(np.ceil((limit - start) / delta)))
    if count > LIMIT:
        return None
    return (start + np.arange(count).astype(start.dtype) * delta).astype(start.dtype)


@down("EyeLike", 9)
def eye_like(op: Builder, node: NodeView) -> ir.Value:
    """Row and column numbers compared."""
    x = node.need("input")
    dtype = T(node.attr("dtype", int(node.dtype("input"))))
    columns = arange(op, op.size(x, 1))
    rows = unsqueeze(op, arange(op, op.size(x, 0)), 1)
    if k := node.attr("k", 0):
        rows = op.Add(rows, k)
    return op.cast(op.Equal(rows, columns), dtype)


@down("ConstantOfShape", 9)
def constant_of_shape(op: Builder, node: NodeView) -> ir.Value:
    """One element, expanded."""
    tensor = node.attr("value", None)
    value = np.zeros(1, np.float32) if tensor is None else tensor.numpy().reshape(-1)
    shape = node.need("input")
    sizes = constant_of(shape)
    if sizes is not None and np.prod(sizes) <= LIMIT:
        return op.constant(np.broadcast_to(value, [int(s) for s in sizes]))
    return op.Expand(op.constant(value.reshape(())), shape)


@down("Expand", 8)
def expand(op: Builder, node: NodeView) -> ir.Value:
    """Tile, when all sizes are known; else a product with ones, which broadcasts."""
    x, shape = node.need("input"), node.need("shape")
    target, dims = constant_of(shape), node.dims("input")
    if dims is not None and target is not None and all(isinstance(d, int) for d in dims):
        have = [1] * (len(target) - len(dims)) + [int(d) for d in dims if isinstance(d, int)]
        want = [1] * (len(have) - len(target)) + [int(s) for s in target]
        repeats = [w if h == 1 else 1 for h, w in zip(have, want, strict=True)]
        if len(have) > len(dims):
            x = op.Reshape(x, have)
        if not have:
            return op.Identity(x)
        return op.Tile(x, repeats) if any(r != 1 for r in repeats) else op.Identity(x) if x is node["input"] else x
    dtype = node.dtype("input")
    rank = known(fixed(shape, 0), "the rank of its result is not known")
    ones = op.constant(np.ones([1] * rank, np.float32), dtype if dtype != T.BOOL else T.INT32)
    spread = op.Tile(ones, shape) if rank else ones
    return op.cast(op.Mul(op.cast(x, T.INT32) if dtype == T.BOOL else x, spread), dtype)


@down("Where", 9)
def where(op: Builder, node: NodeView) -> ir.Value:
    """The choice as arithmetic; a NaN in the part that is not chosen shows through."""
    return select(op, node.need("condition"), node.need("X"), node.need("Y"))


# Cast and CastLike: attributes that only matter for 8-bit floats, which older versions do not have


for _since in (19, 24):  # saturate, round_mode
    _step = down(("Cast", "CastLike"), _since, up="a new attribute with the old behaviour as its default")
    _step(attributes_go)
