"""Python numbers, lists and arrays as operands and attributes of nodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx_ir as ir

from tonnx.ir.schema import Formal, Signature


def wanted_dtype(formal: Formal, bound: Mapping[str, ir.DataType], operand: Any) -> ir.DataType | None:
    """The dtype of a constant in the place of an input: that of the operands it has to agree with, if any."""
    if formal.type_str in bound and (not formal.variadic or formal.homogeneous):
        return bound[formal.type_str]
    if formal.fixed is not None:
        return formal.fixed
    if isinstance(operand, np.ndarray):
        return None
    if formal.dtypes and ir.DataType.INT64 in formal.dtypes and _is_integral(operand):
        return ir.DataType.INT64
    return None


def _is_integral(operand: Any) -> bool:
    if isinstance(operand, (list, tuple)):
        return all(_is_integral(item) for item in operand)
    return isinstance(operand, (int, np.integer)) and not isinstance(operand, bool)


def as_array(value: Any, dtype: ir.DataType | None) -> np.ndarray:
    """A Python value as an array; float32 where nobody says what floats are."""
    if isinstance(value, np.ndarray):
        return value if dtype is None else value.astype(dtype.numpy(), copy=False)
    if dtype is None:
        array = np.asarray(value)
        return array.astype(np.float32) if array.dtype == np.float64 else array
    with np.errstate(all="ignore"):
        # Through float64/object first: -1 as uint8 or 1e400 as float32 must not raise but wrap, as frameworks do.
        return np.asarray(value).astype(dtype.numpy())


def attribute(node: ir.Node, name: str, default: Any = None) -> Any:
    """The value of an attribute, or what it is when left out."""
    return node.attributes[name].value if name in node.attributes else default


def attributes_in(node: ir.Node) -> dict[str, Any]:
    """The values of all attributes that a node has."""
    return {name: attribute.value for name, attribute in node.attributes.items()}


def schema_attribute(schema: Signature, name: str, value: Any) -> ir.Attr:
    """An attribute of the kind that the operator's schema wants."""
    if name not in schema.attributes:
        raise TypeError(f"{schema.op_type}-{schema.since} has no attribute {name!r}")
    kind = schema.attributes[name].type
    if kind == ir.AttributeType.INT:
        value = int(value)
    elif kind == ir.AttributeType.FLOAT:
        value = float(value)
    elif kind == ir.AttributeType.INTS:
        value = [int(v) for v in value]
    elif kind == ir.AttributeType.FLOATS:
        value = [float(v) for v in value]
    elif kind == ir.AttributeType.TENSOR and not hasattr(value, "dtype"):
        raise TypeError(f"{schema.op_type}.{name} takes a tensor")
    return ir.Attr(name, kind, value)


def attribute_of(name: str, value: Any) -> ir.Attr:
    """An attribute of an operator without a schema: its kind follows from the Python value."""
    if isinstance(value, np.ndarray):
        return ir.AttrTensor(name, ir.Tensor(np.ascontiguousarray(value).reshape(value.shape)))
    if isinstance(value, (bool, np.bool_)) or (isinstance(value, (list, tuple)) and any(v is True for v in value)):
        value = int(value) if isinstance(value, (bool, np.bool_)) else [int(v) for v in value]
    if isinstance(value, ir.DataType):
        value = int(value)
    attributes = ir.convenience.convert_attributes({name: value})
    return attributes[0]
