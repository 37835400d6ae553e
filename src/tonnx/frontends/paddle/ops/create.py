"""Tensors from nothing: filled, counted, given, and casts."""

from __future__ import annotations

from functools import partial

import numpy as np
import onnx_ir as ir

from tonnx.errors import UnsupportedArgument
from tonnx.frontends.paddle.lower.bind import holding
from tonnx.frontends.paddle.lower.rules import Floats, Ints, Number, Sizes, Value, direct, lower
from tonnx.frontends.paddle.ops.complex import PARTS, paired
from tonnx.frontends.paddle.read.graph import Op
from tonnx.ir import facts
from tonnx.ir.build import Builder, Size, T
from tonnx.lowering.ops import create as like_torch
from tonnx.lowering.values import is_integer

# Given

direct("assign_out(x, output=None)", lambda op, x, output: x)


_PRINTED = """first_n message summarize print_tensor_name print_tensor_type print_tensor_shape print_tensor_layout
    print_tensor_lod print_phase is_forward"""


@lower("assign", "share_data", "share_data_", unused="dst_place_type")
@lower("memcpy", "memcpy_d2h", "memcpy_h2d", "npu_identity", "depend", unused="dst_place_type format")
@lower("print", unused=_PRINTED)
def unchanged(op: Builder, x: Value) -> ir.Value:
    return x


@lower("cast")
def cast(op: Builder, x: Value, *, dtype: ir.DataType) -> ir.Value:
    if dtype in PARTS:
        return paired(op, op.cast(x, PARTS[dtype]))
    result = op.cast(x, dtype)
    return holding(result, facts.PADDLE_SIZES.get(x)) if is_integer(dtype) else result


@lower("view_dtype")
def view_dtype(op: Builder, input: Value, *, dtype: ir.DataType) -> ir.Value:
    if input.dtype != dtype:
        raise UnsupportedArgument(f"the bits of {input.dtype} read as {dtype}")
    return input


@lower("assign_value")
def assign_value(
    op: Builder, output: Value | None = None, *, shape: Ints = (), dtype: ir.DataType, values: Floats = ()
) -> ir.Value:
    return op.constant(np.asarray(list(values)).reshape(list(shape)).astype(dtype.numpy()))


# Filled

direct("full(*, shape: Ints = (), value: Number, dtype: ir.DataType)", like_torch.full)
direct(
    "full_int_array(*, value: Ints, dtype: ir.DataType = None)",
    lambda op, value, dtype: op.constant(list(value), dtype or T.INT64),
)
direct("full_like(x, value: Number = 0.0, *, dtype: ir.DataType = None)", like_torch.full_like)
direct("zeros_like(x, *, dtype: ir.DataType = None)", lambda op, x, dtype: like_torch.full_like(op, x, 0, dtype))
direct("ones_like(x, *, dtype: ir.DataType = None)", lambda op, x, dtype: like_torch.full_like(op, x, 1, dtype))
direct("empty_like(x, *, dtype: ir.DataType = None)", lambda op, x, dtype: like_torch.full_like(op, x, 0, dtype))
direct(
    "full_with_tensor(value: Number, shape: Sizes, *, dtype: ir.DataType)", like_torch.full, order="shape value dtype"
)
direct("zeros(shape: Sizes = (), *, dtype: ir.DataType)", lambda op, shape, dtype: like_torch.full(op, shape, 0, dtype))
direct("ones(shape: Sizes = (), *, dtype: ir.DataType)", lambda op, shape, dtype: like_torch.full(op, shape, 1, dtype))
direct("empty(shape: Sizes = (), *, dtype: ir.DataType)", lambda op, shape, dtype: like_torch.full(op, shape, 0, dtype))


@lower("fill_constant")
def fill_constant(
    op: Builder,
    shape: Sizes = (),
    *,
    value: Number = 0.0,
    value_tensor: Number | None = None,
    str_value: str = "",
    dtype: ir.DataType,
) -> ir.Value:
    filler = value_tensor if value_tensor is not None else _parsed(str_value, dtype) if str_value else value
    return like_torch.full(op, list(shape), filler, dtype)


def _parsed(text: str, dtype: ir.DataType) -> Number:
    """A number as text: large integers have no room in the float attribute."""
    return int(text) if is_integer(dtype) and text.lstrip("-").isdigit() else float(text)


@lower("fill_any", "fill")
def fill_any(op: Builder, x: Value, value: Number = 0.0, *, value_float: float = 0.0, value_int: int = 0) -> ir.Value:
    return like_torch.full_like(op, x, value or value_float or value_int)


@lower("full_batch_size_like")
def full_batch_size_like(
    op: Builder,
    input: Value,
    *,
    shape: Ints,
    dtype: ir.DataType,
    value: Number = 0.0,
    input_dim_idx: int = 0,
    output_dim_idx: int = 0,
    str_value: str = "",
) -> ir.Value:
    sizes: list[Size] = list(shape)
    sizes[output_dim_idx] = op.size(input, input_dim_idx)
    return like_torch.full(op, sizes, _parsed(str_value, dtype) if str_value else value, dtype)


# Counted

direct("linspace(start: Number, stop: Number, number: Size, *, dtype: ir.DataType = None)", like_torch.linspace)
direct(
    "logspace(start: Number, stop: Number, num: Size, base: float = 10.0, *, dtype: ir.DataType = None)",
    like_torch.logspace,
)


@lower("arange")
def arange(
    op: Builder, start: Number, end: Number, step: Number = 1, *, dtype: ir.DataType | None = None, node: Op
) -> ir.Value:
    result = next(iter(node.outputs.values()))[0]
    kind = dtype or (result.dtype if result is not None else None) or T.INT64
    numbers = [_whole(op, n) if is_integer(kind) else n for n in (start, end, step)]
    return like_torch.arange(op, numbers[1], numbers[0], numbers[2], kind)


def _whole(op: Builder, number: Number) -> Number:
    return op.cast(number, T.INT64) if isinstance(number, ir.Value) else int(number)


@lower("eye")
def eye(op: Builder, num_rows: Size, num_columns: Size = -1, *, dtype: ir.DataType | None = None) -> ir.Value:
    same = isinstance(num_columns, int) and num_columns < 0
    return like_torch.eye(op, num_rows, None if same else num_columns, dtype)


# Triangles

direct("tril(x, *, diagonal: int = 0)", partial(like_torch.triangle, upper=False))
direct("triu(x, *, diagonal: int = 0)", partial(like_torch.triangle, upper=True))
direct(
    "tril_triu(x, *, diagonal: int = 0, lower: bool = True)",
    lambda op, x, diagonal, lower: like_torch.triangle(op, x, diagonal, upper=not lower),
)
_lower_indices, _upper_indices = (partial(like_torch.triangle_indices, upper=upper) for upper in (False, True))
direct("tril_indices(*, rows: int, cols: int, offset: int = 0)", _lower_indices, unused="dtype")
direct("triu_indices(*, row: int, col: int, offset: int = 0)", _upper_indices, unused="dtype")
