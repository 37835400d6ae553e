"""Operators that ONNX has no words for, as nodes of PyTorch's own domain: ``operator_export_type`` asks for them.

Such a node is ``ATen`` of the domain ``org.pytorch.aten``, with the operator's name and overload as attributes and all
its arguments as inputs, in the order of its schema. With ONNX_FALLTHROUGH the operator itself is the node's type.
No runtime has these operators; the file is for tools that know PyTorch's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import onnx_ir as ir

from tonnx.errors import Occurrence, UnsupportedArgument, UnsupportedOp
from tonnx.ir import facts
from tonnx.ir.build import Builder

ATEN = "org.pytorch.aten"
REFUSE, FALLBACK, EVERY, FALLTHROUGH = "ONNX", "ONNX_ATEN_FALLBACK", "ONNX_ATEN", "ONNX_FALLTHROUGH"
"""The four values of ``operator_export_type``."""


def foreign_node(
    op: Builder, schema: Any, arguments: Mapping[str, Any], outputs: int, export_type: str
) -> tuple[ir.Value, ...]:
    """The call of an operator as one node; its results have no type yet."""
    namespace, name = schema.name.split("::")
    inputs: list[ir.Value | None] = []
    attributes: list[ir.Attr] = []
    for argument in schema.arguments:
        value = arguments.get(argument.name, argument.default_value if argument.has_default_value() else None)
        if isinstance(value, str):
            attributes.append(ir.AttrString(argument.name, value))
        else:
            inputs.append(_input(op, value, schema.name))
    while inputs and inputs[-1] is None:
        inputs.pop()
    types = [(None, None)] * outputs
    if export_type == FALLTHROUGH:
        attributes.append(ir.AttrString("overload_name", schema.overload_name))
        return op.node(name, inputs, attributes, types, domain=ATEN if namespace == "aten" else namespace)
    operator = name if namespace == "aten" else schema.name
    named = [ir.AttrString("operator", operator), ir.AttrString("overload_name", schema.overload_name)]
    return op.node("ATen", inputs, [*named, *attributes], types, domain=ATEN)


def _input(op: Builder, value: Any, operator: str) -> ir.Value | None:
    if value is None or isinstance(value, ir.Value):
        return value
    if isinstance(value, ir.DataType):
        return op.constant(int(value), ir.DataType.INT64)
    if isinstance(value, (bool, int)):
        return op.constant(value, ir.DataType.BOOL if isinstance(value, bool) else ir.DataType.INT64)
    if isinstance(value, float):
        return op.constant(value, ir.DataType.DOUBLE)
    if isinstance(value, (list, tuple)):
        return _list(op, list(value), operator)
    if type(value).__module__.startswith("torch"):  # a layout, a memory format, a device: the runtime's business
        return None
    raise UnsupportedArgument(f"{operator}: an argument of type {type(value).__name__} cannot stand in an ONNX file")


def _list(op: Builder, items: list[Any], operator: str) -> ir.Value:
    if all(isinstance(item, (bool, int)) for item in items):
        return op.constant(items, ir.DataType.INT64)
    if all(isinstance(item, (int, float)) for item in items):
        return op.constant(items, ir.DataType.DOUBLE)
    if all(isinstance(item, int) or (isinstance(item, ir.Value) and item in facts.DIM) for item in items):
        return op.vector(items)
    if all(isinstance(item, ir.Value) for item in items):
        (sequence,) = op.node("SequenceConstruct", items, [], [(None, None)])
        sequence.type = ir.SequenceType(ir.TensorType(items[0].dtype or ir.DataType.FLOAT))
        return sequence
    raise UnsupportedArgument(f"{operator}: a list of different things, or with None in it, cannot stand in a file")


def unsupported_operators(occurrences: Sequence[Occurrence]) -> UnsupportedOp:
    """The error for operators without a rule, which shows how to write one."""
    namespace, name = occurrences[0].operator.split(".")[:2]
    return UnsupportedOp(
        occurrences,
        hint=f'write a lowering for it: @tonnx.lower("{namespace}::{name}"), see docs/custom-operators.md; or keep it '
        'as a node that no runtime has: operator_export_type="ONNX_ATEN_FALLBACK"',
    )
