"""Binds the arguments of one operator call to the parameters of its rule, from the operator's schema.

Rules never parse arguments. What they get: tensors as `ir.Value`; sizes and integers as int, or as an int64 value of
shape [1] when known only at run time; other numbers as Python numbers, or as a value of rank 0; dtypes as
`ir.DataType`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import onnx_ir as ir
import torch

from tonnx.errors import UnsupportedArgument
from tonnx.frontends.torch.versions import adapted
from tonnx.ir.build import Builder
from tonnx.lowering.rules import Rule

DTYPES = {
    torch.float32: ir.DataType.FLOAT,
    torch.float64: ir.DataType.DOUBLE,
    torch.float16: ir.DataType.FLOAT16,
    torch.bfloat16: ir.DataType.BFLOAT16,
    torch.float8_e4m3fn: ir.DataType.FLOAT8E4M3FN,
    torch.float8_e4m3fnuz: ir.DataType.FLOAT8E4M3FNUZ,
    torch.float8_e5m2: ir.DataType.FLOAT8E5M2,
    torch.float8_e5m2fnuz: ir.DataType.FLOAT8E5M2FNUZ,
    torch.int8: ir.DataType.INT8,
    torch.int16: ir.DataType.INT16,
    torch.int32: ir.DataType.INT32,
    torch.int64: ir.DataType.INT64,
    torch.uint8: ir.DataType.UINT8,
    torch.uint16: ir.DataType.UINT16,
    torch.uint32: ir.DataType.UINT32,
    torch.uint64: ir.DataType.UINT64,
    torch.bool: ir.DataType.BOOL,
    torch.complex64: ir.DataType.COMPLEX64,
    torch.complex128: ir.DataType.COMPLEX128,
    torch.qint8: ir.DataType.INT8,
    torch.quint8: ir.DataType.UINT8,
    torch.qint32: ir.DataType.INT32,
}

TORCH_OF = {onnx: dtype for dtype, onnx in DTYPES.items() if not str(dtype).startswith(("torch.qint", "torch.quint"))}
"""The torch dtype of an ONNX element type."""

_NUMBERS = {bool: ir.DataType.BOOL, int: ir.DataType.INT64, float: ir.DataType.FLOAT}

# Where a tensor lives and how it is laid out is the runtime's business.
_IGNORED = frozenset(
    ("device", "layout", "memory_format", "pin_memory", "generator", "non_blocking", "copy", "implicit", "out")
)


def to_onnx_dtype(dtype: torch.dtype) -> ir.DataType:
    if dtype not in DTYPES:
        raise UnsupportedArgument(f"ONNX has no element type for {dtype}")
    return DTYPES[dtype]


def stored_dtype(dtype: torch.dtype) -> ir.DataType:
    """The element type of the values that hold a tensor: of complex ones, that of their parts."""
    return to_onnx_dtype(dtype.to_real() if dtype.is_complex else dtype)


@dataclass(frozen=True)
class _Argument:
    name: str
    kind: str
    has_default: bool
    default: Any


@cache
def _arguments(target: torch._ops.OpOverload) -> tuple[_Argument, ...]:
    return tuple(
        _Argument(a.name, kind_of(a.type), a.has_default_value(), a.default_value if a.has_default_value() else None)
        for a in target._schema.arguments
    )


def kind_of(declared: Any) -> str:
    """The type of an argument, whether it may be left out or not."""
    text = str(declared).replace("Optional[", "").replace("?", "").rstrip("]")
    return "Scalar" if text in ("number", "Scalar") else text


def bind(
    target: torch._ops.OpOverload,
    rule: Rule,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    op: Builder,
    resolve: Callable[[Any], Any],
) -> dict[str, Any]:
    """The keyword arguments for the rule. ``resolve`` turns the graph's references into values."""
    bound: dict[str, Any] = {}
    arguments = _arguments(target)
    for i, argument in enumerate(arguments):
        name = rule.renamed.get(argument.name, argument.name)
        name = "x" if i == 0 and "x" in rule.parameters and name not in rule.parameters else name
        passed = i < len(args) or argument.name in kwargs
        raw = args[i] if i < len(args) else kwargs.get(argument.name, argument.default)
        if name in rule.parameters:
            if passed or argument.has_default:
                bound[name] = convert(raw, argument.kind, op, resolve)
                if type(raw) in _NUMBERS and argument.kind == "Tensor" and _is_alone(arguments):
                    bound[name] = op.constant(raw, _NUMBERS[type(raw)])
        elif passed and argument.name not in _IGNORED | rule.unused and not _is_default(raw, argument):
            raise UnsupportedArgument(f"{target}: the argument {argument.name}={raw!r} is not supported")
    bound = adapted(target._schema.name, op, bound)
    if lacking := [name for name in rule.required if name not in bound]:
        raise UnsupportedArgument(
            f"{target} has no argument {', '.join(lacking)} in PyTorch {torch.__version__}",
            why=f"its schema is {target._schema}",
        )
    return bound


def _is_alone(arguments: Sequence[_Argument]) -> bool:
    """Whether an operator takes one tensor: a number in its place has no other to take the dtype from."""
    return sum(argument.kind.endswith("Tensor") for argument in arguments) == 1


def _is_default(raw: Any, argument: _Argument) -> bool:
    if raw is None or not argument.has_default:
        return raw is None
    # Lists of a graph are of a class of their own, and False is not the number 0.
    return isinstance(raw, bool) == isinstance(argument.default, bool) and bool(raw == argument.default)


def convert(raw: Any, kind: str, op: Builder, resolve: Callable[[Any], Any]) -> Any:
    """One argument in the form that rules take."""
    if isinstance(raw, (list, tuple)):
        inner = kind[5:] if kind.startswith("List[") else kind
        return [convert(item, inner, op, resolve) for item in raw]
    if isinstance(raw, torch.dtype):
        return to_onnx_dtype(raw)
    value = resolve(raw)
    wants_scalar = kind in ("Scalar", "float", "bool") or (kind == "Tensor" and _is_number(raw))
    if wants_scalar and isinstance(value, ir.Value) and value.shape is not None and value.shape.rank() == 1:
        return op.Squeeze(value, [0])  # a symbolic number has shape [1]
    return value


def _is_number(raw: Any) -> bool:
    """Whether an argument is a symbolic number, which may stand in the place of a tensor."""
    meta = raw.meta.get("val") if isinstance(raw, torch.fx.Node) else raw
    return isinstance(meta, (torch.SymInt, torch.SymFloat, torch.SymBool))
