"""Optionals and sequences."""

from __future__ import annotations

import onnx_ir as ir

from tonnx.ir.build import Builder
from tonnx.legalise.node_view import NodeView
from tonnx.legalise.table import down


@down("OptionalHasElement", 18, up="a wider meaning")
def has_element_of_a_plain_value(op: Builder, node: NodeView) -> ir.Value | None:
    """What is not an optional always has an element, and what is absent never has."""
    value = node["input"]
    if value is None:
        return op.constant(False)
    if value.type is not None and not isinstance(value.type, ir.OptionalType):
        return op.constant(True)
    return None
