"""Optionals and sequences."""

from __future__ import annotations

import onnx_ir as ir

from tonnx.ir.build import Builder
from tonnx.legalise.call import Call
from tonnx.legalise.table import UP, down, same


@down("OptionalHasElement", 18)
def has_element_of_a_plain_value(op: Builder, node: Call) -> ir.Value | None:
    """What is not an optional always has an element, and what is absent never has."""
    value = node["input"]
    if value is None:
        return op.constant(False)
    if value.type is not None and not isinstance(value.type, ir.OptionalType):
        return op.constant(True)
    return None


same("OptionalHasElement", 18, "a wider meaning", direction=UP)
