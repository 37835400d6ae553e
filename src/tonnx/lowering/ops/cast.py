"""Casts, and the copies that are none in a graph without memory."""

from __future__ import annotations

import onnx_ir as ir

from tonnx.errors import UnsupportedArgument
from tonnx.ir.build import Builder
from tonnx.lowering.rules import lower

T = ir.DataType

type_as = lower("aten.to.other", "aten.type_as")(lambda op, x, other: op.cast(x, other.dtype))


@lower("aten.to", "aten._to_copy", "aten._autocast_to_reduced_precision", "aten._autocast_to_full_precision")
def to(op: Builder, x: ir.Value, dtype: ir.DataType | None = None) -> ir.Value:
    # Where no dtype is named, the walk casts to the one that PyTorch reports.
    return x if dtype is None else op.cast(x, dtype)


_COPIES = """clone contiguous detach detach_copy alias alias_copy lift lift_fresh lift_fresh_copy positive pin_memory
    _lazy_clone _to_cpu"""


@lower(*(f"aten.{name}" for name in _COPIES.split()))
def unchanged(op: Builder, x: ir.Value) -> ir.Value:
    return x


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
