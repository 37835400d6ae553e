"""Casts, and the copies that are none in a graph without memory."""

from __future__ import annotations

import onnx_ir as ir

from tonnx.errors import UnsupportedArgument
from tonnx.ir.build import Builder
from tonnx.lowering.rules import lower

T = ir.DataType


@lower("aten.to", "aten._to_copy", "aten._autocast_to_reduced_precision", "aten._autocast_to_full_precision")
def to(op: Builder, x: ir.Value, dtype: ir.DataType | None = None) -> ir.Value:
    # Where no dtype is named, the walk casts to the one that PyTorch reports.
    return x if dtype is None else op.cast(x, dtype)


@lower("aten.to.other", "aten.type_as")
def type_as(op: Builder, x: ir.Value, other: ir.Value) -> ir.Value:
    return op.cast(x, other.dtype)  # type: ignore[arg-type]


@lower(
    "aten.clone",
    "aten.contiguous",
    "aten.detach",
    "aten.detach_copy",
    "aten.alias",
    "aten.alias_copy",
    "aten.lift",
    "aten.lift_fresh",
    "aten.lift_fresh_copy",
    "aten.positive",
    "aten.pin_memory",
    "aten._lazy_clone",
    "aten._to_cpu",
)
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

    return expand_as(op, op.cast(src, x.dtype), x)  # type: ignore[arg-type]


_CASTS = {
    "Byte": T.UINT8,
    "Char": T.INT8,
    "Double": T.DOUBLE,
    "Float": T.FLOAT,
    "Half": T.FLOAT16,
    "Int": T.INT32,
    "Long": T.INT64,
    "Short": T.INT16,
}


def _enter(name: str, dtype: ir.DataType) -> None:
    @lower(f"aten._cast_{name}")
    def cast(op: Builder, x: ir.Value) -> ir.Value:
        return op.cast(x, dtype)


for _name, _dtype in _CASTS.items():
    _enter(_name, _dtype)
