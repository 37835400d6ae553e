"""Tensors from nothing: filled, counted, triangular; casts and copies."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from tonnx.errors import UnsupportedArgument
from tonnx.ir.build import Builder, Size, T
from tonnx.ir.fold import LIMIT
from tonnx.lowering import sizes
from tonnx.lowering.rules import lower
from tonnx.lowering.values import Operand, as_value, is_integer

_SMALL = 1024  # elements; more are cheaper to compute than to store

# Filled

scalar_tensor = lower("aten.scalar_tensor")(lambda op, s, dtype=None: as_value(op, s, dtype or T.FLOAT))


def full(op: Builder, sizes: Sequence[Size], value: Operand, dtype: ir.DataType | None) -> ir.Value:
    if isinstance(value, ir.Value) and value.const_value is None:
        return op.Expand(op.cast(value, dtype), op.vector(sizes)) if sizes else op.cast(value, dtype)
    filler = as_value(op, value, dtype)
    assert filler.const_value is not None
    array = filler.const_value.numpy()
    fixed = [size for size in sizes if isinstance(size, int)]
    if len(fixed) == len(sizes) and math.prod(fixed) <= _SMALL:
        return op.constant(np.full(fixed, array.reshape(()), dtype=array.dtype))
    if dtype == T.BFLOAT16:  # which ConstantOfShape gives only from opset 20 on
        return op.cast(full(op, sizes, value, T.FLOAT), dtype)
    return op.ConstantOfShape(op.vector(sizes), value=ir.Tensor(array.reshape(1)))


def full_like(op: Builder, x: ir.Value, value: Operand, dtype: ir.DataType | None = None) -> ir.Value:
    return full(op, op.sizes(x), value, dtype or x.dtype)


def _default_dtype(value: Operand) -> ir.DataType:
    if isinstance(value, ir.Value):
        return value.dtype  # type: ignore[return-value]
    return T.BOOL if isinstance(value, bool) else T.INT64 if isinstance(value, int) else T.FLOAT


@lower("aten.full")
@lower("aten.zeros", "aten.empty.memory_format", fill_value=0.0)
@lower("aten.empty_permuted", "aten.empty_strided", fill_value=0.0, unused="physical_layout stride")
@lower("aten.ones", fill_value=1.0)
def full_(op: Builder, size: Sequence[Size], fill_value: Operand, dtype: ir.DataType | None = None) -> ir.Value:
    return full(op, size, fill_value, dtype or _default_dtype(fill_value))


@lower("aten.full_like")
@lower("aten.fill", renamed="value=fill_value")
@lower("aten.zeros_like", "aten.empty_like", "aten.zero", fill_value=0)
@lower("aten.ones_like", fill_value=1)
def full_like_(op: Builder, x: ir.Value, fill_value: Operand, dtype: ir.DataType | None = None) -> ir.Value:
    return full_like(op, x, fill_value, dtype)


@lower("aten.new_full")
@lower("aten.new_zeros", "aten.new_empty", fill_value=0)
@lower("aten.new_empty_strided", fill_value=0, unused="stride")
@lower("aten.new_ones", fill_value=1)
def new_full(
    op: Builder, x: ir.Value, size: Sequence[Size], fill_value: Operand, dtype: ir.DataType | None = None
) -> ir.Value:
    return full(op, size, fill_value, dtype or x.dtype)


# Counted


@lower("aten.arange")
def arange(
    op: Builder, end: Operand, start: Operand = 0, step: Operand = 1, dtype: ir.DataType | None = None
) -> ir.Value:
    whole = all(_is_whole(number) for number in (start, end, step))
    dtype = dtype or (T.INT64 if whole else T.FLOAT)
    if whole:
        return op.cast(op.Range(*(_cut(op, number) for number in (start, end, step))), dtype)
    numbers = [as_value(op, number, T.DOUBLE) for number in (start, end, step)]
    # By counting, not with a Range of floats: that adds up its rounding errors.
    first, last, by = numbers
    count = op.cast(op.Ceil(op.Div(op.Sub(last, first), by)), T.INT64)
    places = _counted(op, count)
    if is_integer(dtype):  # counted with the fractions, stepped without them
        places, by, first = (op.cast(number, T.INT64) for number in (places, by, first))
    return op.cast(op.Add(op.Mul(places, by), first), dtype)


def _cut(op: Builder, number: Operand) -> ir.Value:
    return op.cast(number, T.INT64) if isinstance(number, ir.Value) else op.constant(int(number), T.INT64)  # type: ignore[arg-type]


def _is_whole(number: Operand) -> bool:
    return number.dtype == T.INT64 if isinstance(number, ir.Value) else isinstance(number, int)


def _counted(op: Builder, count: Size) -> ir.Value:
    """0, 1, … as doubles, as many as ``count``."""
    return op.cast(sizes.arange(op, count), T.DOUBLE)


@lower("aten.range")
def inclusive_range(
    op: Builder, start: float, end: float, step: float = 1, dtype: ir.DataType | None = None
) -> ir.Value:
    count = int((end - start) / step) + 1
    return op.cast(op.Add(op.Mul(_counted(op, count), step), start), dtype or T.FLOAT)


@lower("aten.linspace")
def linspace(op: Builder, start: Operand, end: Operand, steps: Size, dtype: ir.DataType | None = None) -> ir.Value:
    dtype = dtype or T.FLOAT
    # Among integers, torch cuts the ends to integers before it divides what lies between.
    ends = T.INT64 if is_integer(dtype) else T.DOUBLE
    first, last = (op.cast(as_value(op, number, ends), T.DOUBLE) for number in (start, end))
    if isinstance(steps, ir.Value):
        count, gaps = _counted(op, steps), op.cast(op.Sub(op.scalar(steps), 1), T.DOUBLE)
        gap = op.Div(op.Sub(last, first), op.Max(gaps, 1.0))
    elif steps <= 1:
        return op.cast(op.Reshape(first, [1]) if steps else full(op, [0], 0, T.DOUBLE), dtype)
    else:
        count, gaps = op.constant(np.arange(steps), T.DOUBLE), op.constant(steps - 1, T.DOUBLE)
        gap = op.Div(op.Sub(last, first), gaps)
    # From both ends, as torch does: the last one is `end` exactly, and a whole number stays one.
    back = op.Sub(gaps, count)
    upper = op.Sub(last, op.Mul(back, gap))
    return op.cast(op.Where(op.LessOrEqual(count, back), op.Add(op.Mul(count, gap), first), upper), dtype)


@lower("aten.logspace")
def logspace(
    op: Builder, start: Operand, end: Operand, steps: Size, base: float = 10.0, dtype: ir.DataType | None = None
) -> ir.Value:
    dtype = dtype or T.FLOAT
    if is_integer(dtype):
        start, end = as_value(op, start, T.INT64), as_value(op, end, T.INT64)
    exponents = linspace(op, start, end, steps, T.DOUBLE)
    return op.cast(op.Pow(op.constant(base, T.DOUBLE), exponents), dtype)


# Triangular


@lower("aten.eye")
def eye(op: Builder, n: Size, m: Size | None = None, dtype: ir.DataType | None = None) -> ir.Value:
    sizes = [n, n if m is None else m]
    fixed = [size for size in sizes if isinstance(size, int)]
    if len(fixed) == 2 and math.prod(fixed) <= _SMALL:
        return op.constant(np.eye(*fixed, dtype=np.float32), dtype or T.FLOAT)
    square = op.EyeLike(op.ConstantOfShape(op.vector(sizes)))
    return op.cast(square, dtype or T.FLOAT)


@lower("aten.tril", upper=False)
@lower("aten.triu", upper=True)
def triangle(op: Builder, x: ir.Value, diagonal: Size = 0, *, upper: bool) -> ir.Value:
    return op.Trilu(x, op.scalar(diagonal), upper=int(upper))


@lower("aten.tril_indices", upper=False, unused="dtype")
@lower("aten.triu_indices", upper=True, unused="dtype")
def triangle_indices(op: Builder, row: Size, col: Size, offset: int = 0, *, upper: bool) -> ir.Value:
    if isinstance(row, int) and isinstance(col, int) and row * col <= LIMIT:
        indices = np.triu_indices(row, offset, col) if upper else np.tril_indices(row, offset, col)
        return op.constant(np.stack(indices), T.INT64)
    # NonZero lists row by row, which is torch's order.
    return op.NonZero(op.Trilu(full(op, [row, col], True, T.BOOL), op.scalar(offset), upper=int(upper)))


# Windows of signals


def _cosines(along: np.ndarray, *weights: float) -> np.ndarray:
    """Σ ± weight · cos(2π · i · along), the signs in turn."""
    return np.sum([w * (-1) ** i * np.cos(2 * np.pi * i * along) for i, w in enumerate(weights)], axis=0)


def _kaiser(along: np.ndarray, beta: float) -> np.ndarray:
    return np.i0(beta * np.sqrt(np.maximum(1 - (2 * along - 1) ** 2, 0))) / np.i0(beta)


@lower("aten.hann_window", kind="hann")
@lower("aten.hamming_window", kind="hamming", beta=0.46)
@lower("aten.hamming_window.periodic_alpha_beta", kind="hamming")
@lower("aten.blackman_window", kind="blackman")
@lower("aten.bartlett_window", kind="bartlett")
@lower("aten.kaiser_window", kind="kaiser")
def window(
    op: Builder,
    window_length: Size,
    periodic: bool = True,
    alpha: float = 0.54,
    beta: float = 12.0,
    dtype: ir.DataType | None = None,
    *,
    kind: str,
) -> ir.Value:
    if not isinstance(window_length, int):
        raise UnsupportedArgument("a window whose length is known only at run time")
    last = max(window_length if periodic else window_length - 1, 1)
    along = np.arange(window_length) / last
    shapes = {
        "hann": lambda: _cosines(along, 0.5, 0.5),
        "hamming": lambda: _cosines(along, alpha, beta),
        "blackman": lambda: _cosines(along, 0.42, 0.5, 0.08),
        "bartlett": lambda: 1 - np.abs(2 * along - 1),
        "kaiser": lambda: _kaiser(along, beta),
    }
    values = shapes[kind]() if window_length != 1 else np.ones(1)
    return op.constant(values.astype((dtype or T.FLOAT).numpy()))


# Casts, and the copies that are none in a graph without memory


type_as = lower("aten.to.other", "aten.type_as")(lambda op, x, other: op.cast(x, other.dtype))


@lower("aten.to", "aten._to_copy", "aten._autocast_to_reduced_precision", "aten._autocast_to_full_precision")
def to(op: Builder, x: ir.Value, dtype: ir.DataType | None = None) -> ir.Value:
    # Where no dtype is named, the walk casts to the one that PyTorch reports.
    return x if dtype is None else op.cast(x, dtype)


_COPIES = """clone contiguous detach detach_copy alias alias_copy lift lift_fresh lift_fresh_copy positive pin_memory
    _lazy_clone _to_cpu"""


unchanged = lower(*(f"aten.{name}" for name in _COPIES.split()))(lambda op, x: x)


@lower("aten.real", "aten.conj", "aten.conj_physical", "aten._conj", "aten.resolve_conj", "aten.resolve_neg")
def conjugate(op: Builder, x: ir.Value) -> ir.Value:
    if x.dtype in (T.COMPLEX64, T.COMPLEX128):
        raise UnsupportedArgument("complex numbers have no arithmetic in ONNX")
    return x


@lower("aten.copy")
def copy(op: Builder, x: ir.Value, src: ir.Value) -> ir.Value:
    from tonnx.lowering.ops.shape import expand_as

    return expand_as(op, op.cast(src, x.dtype), x)


_CASTS = {
    "Byte": T.UINT8, "Char": T.INT8, "Double": T.DOUBLE, "Float": T.FLOAT, "Half": T.FLOAT16, "Int": T.INT32,
    "Long": T.INT64, "Short": T.INT16,
}  # fmt: skip
for _name, _dtype in _CASTS.items():
    lower(f"aten._cast_{_name}", dtype=_dtype)(to)
