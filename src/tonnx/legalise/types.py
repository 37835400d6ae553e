"""The one type rule: older schemas accept fewer dtypes; compute in a wider one and cast back, where that loses nothing.

What "loses nothing" means here:

- Booleans and integers of up to 32 bits fit int64 and double; a result that is cast back wraps around like the narrow
  type would.
- float16 and bfloat16 fit float: a result is rounded once instead of at every step.
- int64 does not fit double. Sizes and token ids would, but graphs also hold INT64_MAX as "no limit", which comes back
  from double as INT64_MIN. So int64 is never moved through a float: Max, Min, Clip, Relu, Pad and Flatten have rules
  of their own that move int64 values untouched. Comparisons are made in double all the same: rounding is monotone, so
  it can hide a difference beyond 2⁵³ but never turns one around. And so is what is seen to be computed from sizes and
  positions (`exact_integers.py`), which below opset 6 is the only arithmetic of integers there is.
- A dtype that the target's Cast does not know (bfloat16 before 13, 8-bit floats before 19, 4-bit integers before 21)
  does not exist there, and the node is refused.
"""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from tonnx.ir.build import Builder, T
from tonnx.ir.rewrite import cast_around
from tonnx.ir.schema import Formal, Signature, signature
from tonnx.ir.target import CANON
from tonnx.legalise.exact_integers import is_count
from tonnx.legalise.node_view import Blocked

# What a dtype can be computed in without losing a value, in order of preference.
_SMALL = (T.INT32, T.INT64, T.FLOAT, T.DOUBLE)
_WIDER: dict[ir.DataType, tuple[ir.DataType, ...]] = {
    T.BOOL: (T.INT32, T.UINT8, T.INT64, T.FLOAT),
    T.INT8: _SMALL,
    T.UINT8: _SMALL,
    T.INT16: _SMALL,
    T.UINT16: _SMALL,
    T.INT32: (T.INT64, T.DOUBLE),
    T.UINT32: (T.INT64, T.DOUBLE),
    T.BFLOAT16: (T.FLOAT, T.DOUBLE),
    T.FLOAT16: (T.FLOAT, T.DOUBLE),
    T.FLOAT: (T.DOUBLE,),
}
_COMPARISONS = {"Less", "Greater", "LessOrEqual", "GreaterOrEqual"}


def fits(node: ir.Node, schema: Signature) -> bool:
    """Whether ``schema`` takes the dtypes of a node as they are."""
    return all(_accepted(value, formal) for value, formal in _parameters(node, schema))


def fit(op: Builder, node: ir.Node, schema: Signature) -> bool:
    """Make the dtypes of a node acceptable to ``schema``; True if something was cast."""
    computed_in: dict[str, ir.DataType] = {}
    for value, formal in _parameters(node, schema):
        if _accepted(value, formal) or formal.type_str in computed_in:
            continue
        if not isinstance(value.type, ir.TensorType) or not formal.homogeneous:
            raise Blocked(f"{node.op_type} does not take {value.type} there")
        assert value.dtype is not None
        if value.producer() is node and not _bound_by_input(formal, schema):
            raise Blocked(f"{node.op_type} does not give {_name(value.dtype)} there")
        computed_in[formal.type_str] = _wider(op, node, value.dtype, formal.dtypes)
    if not computed_in:
        return False
    cast_around(op, node, schema, computed_in)
    return True


def _parameters(node: ir.Node, schema: Signature) -> Iterator[tuple[ir.Value, Formal]]:
    """Every value that a node reads or makes, with the formal parameter that it is bound to."""
    for i, value in enumerate(node.inputs):
        if value is not None:
            yield value, schema.input(i)
    for i, output in enumerate(node.outputs):
        yield output, schema.output(i)


def _accepted(value: ir.Value, formal: Formal) -> bool:
    kind = value.type
    if kind is None:
        return True
    if isinstance(kind, ir.TensorType):
        return kind.dtype in formal.dtypes
    return _as_onnx_writes(kind) in formal.types


def _as_onnx_writes(kind: ir.TypeProtocol) -> str:
    if isinstance(kind, ir.SequenceType):
        return f"seq({_as_onnx_writes(kind.elem_type)})"
    if isinstance(kind, ir.OptionalType):
        return f"optional({_as_onnx_writes(kind.elem_type)})"
    return f"tensor({kind.dtype.name.lower()})"


def _bound_by_input(formal: Formal, schema: Signature) -> bool:
    return any(formal.type_str == other.type_str for other in schema.inputs)


def _wider(op: Builder, node: ir.Node, dtype: ir.DataType, allowed: frozenset[ir.DataType]) -> ir.DataType:
    cast = signature("Cast", op.opset)
    assert cast is not None
    if dtype not in cast.inputs[0].dtypes:
        raise Blocked(f"{_name(dtype)} does not exist there")
    candidates = _WIDER.get(dtype, ())
    if dtype in (T.INT64, T.UINT64) and node.op_type in _COMPARISONS:
        candidates = (T.DOUBLE,)
    elif dtype == T.UINT64 and node.op_type == "Equal":
        candidates = (T.INT64,)  # the same bits are equal
    elif dtype in (T.INT64, T.UINT64) and all(x is None or x.dtype != dtype or is_count(x) for x in node.inputs):
        candidates = (T.DOUBLE,)
    for candidate in candidates:
        if candidate in allowed:
            return candidate
    raise Blocked(f"{node.op_type} does not take {_name(dtype)} there, and nothing wider that holds all of its values")


def _name(dtype: ir.DataType) -> str:
    return dtype.name.lower()


def lowest_opset(node: ir.Node, above: int) -> int | None:
    """The lowest opset from which the operator takes the dtypes of this node."""
    for opset in range(above + 1, CANON + 1):
        schema = signature(node.op_type, opset)
        try:
            if schema is not None and all(_accepted(*pair) for pair in _parameters(node, schema)):
                return opset
        except TypeError:  # the node is written for an older version, with other inputs
            return None
    return None
