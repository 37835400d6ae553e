"""Weights that a model holds as integers and unpacks while it runs: taken as they are, as DequantizeLinear of integers.

GPTQ's and AWQ's layers, torchao's and many others say in their own operators that a matrix is (integers - zero points)
times scales: words are shifted and masked, rows gathered, blocks reshaped. What depends on constants only is followed
here with that form kept apart, so that neither the words nor floats are stored, but the integers themselves:

1. Integers of up to 8 bits that become floats, or from which integers are subtracted, are such a form.
2. Sums with and products by constants change its zero point and its scale; what only moves numbers moves all three.
   Factors of the columns of a product are scales, too.
3. Where a layer multiplies by the result, it is written with one scale for all, for each slice, or for each block
   along an axis. Rows whose groups are in no order (GPTQ's ``desc_act``) are sorted, and what they multiply with them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from math import gcd
from typing import Any

import ml_dtypes
import numpy as np
import onnx_ir as ir

from tonnx.ir.build import Builder
from tonnx.ir.fold import fold
from tonnx.ir.operands import attributes_in
from tonnx.ir.rewrite import builder_of, replace_node, use_instead
from tonnx.quant.integers import Stored
from tonnx.quant.qdq import stored_floats

_SMALLEST = 256  # numbers; fewer are no weight
_MOVING = frozenset("Reshape Transpose Squeeze Unsqueeze Slice Gather Expand Identity".split())
_LAYERS = frozenset("MatMul Gemm Conv ConvTranspose".split())
_KINDS: tuple[tuple[Any, int, int], ...] = (
    (ml_dtypes.int4, -8, 7), (ml_dtypes.uint4, 0, 15), (np.int8, -128, 127), (np.uint8, 0, 255)
)  # fmt: skip
_BODIES = ("If", "Loop", "Scan", "SequenceMap")
_SMALLEST_BLOCK = 16  # ONNX Runtime's
_NEAR = 1e-4  # of a whole number: what is left of a zero point that was multiplied by its scale


@dataclass(frozen=True)
class _Steps:
    """(integers - zero) · scale, in floats or integers of a dtype."""

    integers: np.ndarray
    scale: np.ndarray
    zero: np.ndarray
    dtype: np.dtype

    def moved(self, node: ir.Node, others: Sequence[np.ndarray | None]) -> _Steps | None:
        """What an operator that only moves numbers makes of it."""
        integers, scale, zero = (
            _plain(node, [np.broadcast_to(part, self.integers.shape), *others])
            for part in (self.integers, self.scale, self.zero)
        )
        return None if integers is None or scale is None or zero is None else _Steps(integers, scale, zero, self.dtype)

    def values(self) -> np.ndarray:
        return np.asarray((self.integers - self.zero).astype(self.dtype) * self.scale.astype(self.dtype))


def keep_packed(model: ir.Model) -> int:
    """Write weights of the main graph that unpack themselves with DequantizeLinear; returns how many."""
    sources = [value for value in model.graph.initializers.values() if _is_source(value)]
    if not sources:
        return 0
    op = builder_of(model)
    forms, reached, written = _Forms(), set(sources), 0
    for node in list(model.graph):
        if node.domain != "" or len(node.outputs) != 1 or reached.isdisjoint(node.inputs):
            continue
        value = node.outputs[0]
        form = forms.of(value)
        if form is not None:
            reached.add(value)
        if isinstance(form, _Steps) and form.dtype.kind == "f" and (form.scale == 1).all():
            form = _scaled_before(value, form, forms)
        if isinstance(form, _Steps) and form.dtype.kind not in "iu" and (form.scale != 1).any() and _is_weight(value):
            written += _written(op, value, form)
            forms = _Forms()  # what other weights are made of is other memory
    return written


def _scaled_before(weight: ir.Value, form: _Steps, forms: _Forms) -> _Steps:
    """A weight with the factors of its columns that follow a product, and are left out there; torchao has them so."""
    uses = list(weight.uses())
    product = uses[0][0] if len(uses) == 1 and uses[0][1] == 1 and form.integers.ndim == 2 else None
    if product is None or product.op_type != "MatMul" or product.outputs[0].is_graph_output():
        return form
    readers = list(product.outputs[0].uses())
    times, place = readers[0] if len(readers) == 1 else (None, 0)
    factors = forms.of(other) if times is not None and (other := times.inputs[1 - place]) is not None else None
    if times is None or times.op_type != "Mul" or not isinstance(factors, np.ndarray) or factors.dtype != form.dtype:
        return form
    columns = form.integers.shape[1]
    if factors.ndim > 2 or factors.size not in (1, columns) or (factors.ndim and factors.shape[-1] != factors.size):
        return form
    replace_node(times, [product.outputs[0]])
    return replace(form, scale=np.broadcast_to(factors.reshape(1, -1), (1, columns)))


def _is_source(value: ir.Value) -> bool:
    tensor = value.const_value
    is_integer = value.dtype is not None and value.dtype.is_integer()
    return is_integer and tensor is not None and tensor.size * 8 >= _SMALLEST and not value.is_graph_input()


def _is_weight(value: ir.Value) -> bool:
    """Whether a layer multiplies by it, at once or in another float type."""
    return any(
        user.op_type in _LAYERS or (user.op_type == "Cast" and _is_weight(user.outputs[0])) for user, _ in value.uses()
    )


class _Forms:
    """What values that depend on constants only hold: numbers, or integers with scales."""

    def __init__(self) -> None:
        self._known: dict[ir.Value, np.ndarray | _Steps | None] = {}

    def of(self, value: ir.Value) -> np.ndarray | _Steps | None:
        """None: it depends on the inputs, or its form is lost."""
        if value not in self._known:
            self._known[value] = self._compute(value)
        return self._known[value]

    def _compute(self, value: ir.Value) -> np.ndarray | _Steps | None:
        node = value.producer()
        if node is None:
            tensor = value.const_value
            return None if tensor is None or value.is_graph_input() else tensor.numpy()
        if node.domain != "" or len(node.outputs) != 1 or node.op_type in _BODIES:
            return None
        parts = [None if source is None else self.of(source) for source in node.inputs]
        if any(part is None and source is not None for part, source in zip(parts, node.inputs, strict=True)):
            return None
        return _result(node, parts)


def _result(node: ir.Node, parts: Sequence[np.ndarray | _Steps | None]) -> np.ndarray | _Steps | None:
    first = parts[0] if parts else None
    if isinstance(first, np.ndarray) and _begins(node, first, parts[1:]):
        first = _Steps(first, np.ones((), np.float32), np.zeros((), np.int64), first.dtype)
    if not isinstance(first, _Steps) and len(parts) == 2 and node.op_type in ("Mul", "Add"):
        parts = parts[::-1]  # the form comes first
        first = parts[0]
    others = [part.values() if isinstance(part, _Steps) else part for part in parts[1:]]
    if not isinstance(first, _Steps):
        return _plain(node, [first, *others])
    form = _changed(node, first, others)
    if form is None and first.dtype.kind in "iu":
        return _plain(node, [first.values(), *others])
    return form


def _begins(node: ir.Node, array: np.ndarray, others: Sequence[Any]) -> bool:
    """Whether integers of 8 bits become floats here, or the distance from others."""
    if array.dtype.kind not in "iu" and array.dtype not in (ml_dtypes.int4, ml_dtypes.uint4):
        return False
    if array.size < _SMALLEST or array.min() < -128 or array.max() > 255:
        return False
    return node.op_type == "Cast" or (node.op_type == "Sub" and isinstance(others[0], np.ndarray))


def _changed(node: ir.Node, form: _Steps, others: Sequence[np.ndarray | None]) -> _Steps | None:
    """The form after an operator; None where it is lost."""
    if node.op_type in _MOVING:
        return form.moved(node, others)
    if node.op_type == "Cast":
        dtype = ir.DataType(node.attributes["to"].as_int()).numpy()
        return replace(form, dtype=dtype) if (form.scale == 1).all() and np.dtype(dtype).kind != "u" else None
    other = others[0] if len(others) == 1 else None
    if other is None or np.broadcast_shapes(form.integers.shape, other.shape) != form.integers.shape:
        return None
    if node.op_type in ("Mul", "Div") and form.dtype.kind not in "iu":
        wide = other.astype(np.float64)
        return replace(form, scale=form.scale * wide if node.op_type == "Mul" else form.scale / wide)
    if node.op_type in ("Sub", "Add"):
        sign = 1 if node.op_type == "Sub" else -1
        exact = form.zero + sign * other.astype(np.float64) / form.scale
        whole = np.rint(exact)
        if (np.abs(exact - whole) >= _NEAR).any() or _overflows(form.integers - whole, form.dtype):
            return None
        return replace(form, zero=whole.astype(np.int64))
    return None


def _overflows(numbers: np.ndarray, dtype: np.dtype) -> bool:
    """Whether integers of this type would wrap around."""
    if dtype.kind not in "iu":
        return False
    limits = np.iinfo(dtype)
    return bool(numbers.min() < limits.min or numbers.max() > limits.max)


def _plain(node: ir.Node, arrays: Sequence[np.ndarray | None]) -> np.ndarray | None:
    if node.op_type == "Cast" and arrays[0] is not None:  # `fold` leaves those of small integers to the run
        return np.asarray(arrays[0].astype(ir.DataType(node.attributes["to"].as_int()).numpy()))
    if node.op_type == "Expand" and arrays[0] is not None and arrays[1] is not None:  # and large ones
        sizes = tuple(int(size) for size in arrays[1])
        return np.broadcast_to(arrays[0], np.broadcast_shapes(arrays[0].shape, sizes))
    attributes = attributes_in(node)
    return fold(node.op_type, arrays, attributes, limit=None)


def _written(op: Builder, value: ir.Value, form: _Steps) -> bool:
    """Let layers read DequantizeLinear of the integers, if ONNX can say the form."""
    scale = np.broadcast_to(form.scale.astype(form.dtype), form.integers.shape)
    zero = np.broadcast_to(form.zero, form.integers.shape)
    if not (scale > 0).all():
        return False
    name, node = str(value.name), value.producer()
    assert node is not None
    for integers, points in ((form.integers, zero), (form.integers - zero, np.zeros_like(zero))):
        for order, axis in _orders(scale, points):
            sorted_parts = (integers, scale, points) if order is None else (
                np.take(part, order, axis) for part in (integers, scale, points))  # fmt: skip
            stored = _stored(*sorted_parts)
            if stored is not None:
                with op.at(node):
                    floats = stored_floats(op, name, stored)
                _used(op, value, floats, order, axis)
                return True
    return False


def _orders(scale: np.ndarray, points: np.ndarray) -> Iterator[tuple[np.ndarray | None, int]]:
    """As it is; and for each axis its indices by the groups that share all scales, where groups are of one size."""
    yield None, 0
    for axis in range(scale.ndim):
        length = scale.shape[axis]
        rows = [np.moveaxis(part, axis, 0).reshape(length, -1).astype(np.float64) for part in (scale, points)]
        _, group, counts = np.unique(np.hstack(rows), axis=0, return_inverse=True, return_counts=True)
        if len(set(counts.tolist())) == 1 and counts[0] >= _SMALLEST_BLOCK:
            yield np.argsort(group.reshape(-1), kind="stable"), axis


def _stored(integers: np.ndarray, scale: np.ndarray, points: np.ndarray) -> Stored | None:
    """The integers in the fewest bits, with one scale for all, a slice, or a block; None where that does not say it."""
    kind = next(
        (kind for kind, low, high in _KINDS
         if min(integers.min(), points.min()) >= low and max(integers.max(), points.max()) <= high), None,
    )  # fmt: skip
    if kind is None:
        return None
    blocks = [gcd(_block(scale, axis), _block(points, axis)) for axis in range(integers.ndim)]
    shared = [block >= length for block, length in zip(blocks, integers.shape, strict=True)]
    packed, zero_point = integers.astype(np.int16).astype(kind), points.astype(np.int16).astype(kind)
    without = not points.any()
    if sum(shared) >= integers.ndim - 1:  # one axis, or none, along which they change
        axis = shared.index(False) if not all(shared) else 0
        first = tuple(slice(None) if i == axis else 0 for i in range(integers.ndim))
        return Stored(packed, scale[first].copy(), None if without else zero_point[first].copy(), axis, 0)
    axis = int(np.argmax(blocks))
    if blocks[axis] < _SMALLEST_BLOCK:
        return None
    first = tuple(slice(None, None, blocks[axis]) if i == axis else slice(None) for i in range(integers.ndim))
    return Stored(packed, scale[first].copy(), None if without else zero_point[first].copy(), axis, blocks[axis])


def _block(array: np.ndarray, axis: int) -> int:
    """How many numbers along an axis are always the same; all of them if there is no change."""
    rows = np.moveaxis(array, axis, 0)
    changes = np.flatnonzero((rows[1:] != rows[:-1]).any(tuple(range(1, rows.ndim)))) + 1
    return reduce(gcd, (int(place) for place in changes), 0) or max(len(rows), 1) * (1 << 20)


def _used(op: Builder, value: ir.Value, floats: ir.Value, order: np.ndarray | None, axis: int) -> None:
    """Layers read the floats. Sorted rows meet what they multiply in the same order; elsewhere they are put back."""
    if order is None:
        use_instead(value, floats)
        return
    places = op.constant(order.astype(np.int32))
    for user, index in list(value.uses()):
        if index == 1 and user.op_type in ("MatMul", "Gemm") and axis == _summed(user, len(floats.shape or ())):
            with op.at(user):
                user.replace_input_with(0, op.Gather(user.inputs[0], places, axis=-1))
            user.replace_input_with(1, floats)
    if value.uses():
        node = value.producer()
        assert node is not None
        with op.at(node):
            use_instead(value, op.Gather(floats, op.constant(np.argsort(order).astype(np.int64)), axis=axis))


def _summed(node: ir.Node, rank: int) -> int:
    """The axis of the second factor that is summed over; -1 where the first one's is not its last."""
    if node.op_type == "MatMul":
        return rank - 2
    flags = {name: node.attributes[name].as_int() for name in ("transA", "transB") if name in node.attributes}
    return -1 if flags.get("transA") else 1 if flags.get("transB") else 0
