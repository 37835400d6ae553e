"""What passes that look for patterns of several nodes ask of a graph."""

from __future__ import annotations

import onnx_ir as ir

Operands = tuple[ir.Value | None, ir.Value | None]


def made_by(value: ir.Value | None, *op_types: str) -> ir.Node | None:
    """The node that makes a value, if it is one of these operators of ONNX."""
    node = None if value is None else value.producer()
    return node if node is not None and node.domain == "" and node.op_type in op_types else None


def only_reader(value: ir.Value, *op_types: str) -> ir.Node | None:
    """The one node that reads a value, if it is one of these operators and nobody outside reads it."""
    uses = value.uses()
    if len(uses) != 1 or value.is_graph_output():
        return None
    node = next(iter(uses)).node
    return node if node.domain == "" and node.op_type in op_types and node.graph is value.graph else None


def is_private(value: ir.Value) -> bool:
    """Whether one node reads it, and nobody outside."""
    return len(value.uses()) == 1 and not value.is_graph_output()


def orders(node: ir.Node) -> tuple[Operands, Operands]:
    """The operands of an operator that takes them in any order, both ways round."""
    first, second = node.inputs[:2]
    return (first, second), (second, first)
