"""Activation functions."""

from __future__ import annotations

import math

import onnx_ir as ir

from tonnx.build import Builder
from tonnx.legalise.call import Call
from tonnx.legalise.table import down


@down("Gelu", 20)
def gelu(op: Builder, node: Call) -> ir.Value:
    """x·Φ(x), in the form that runtimes fuse back."""
    x = node.need("X")
    if node.attr("approximate", "none") == "tanh":
        inner = (x + x * x * x * 0.044715) * math.sqrt(2 / math.pi)
        return x * 0.5 * (op.Tanh(inner) + 1.0)
    return x * (op.Erf(x / math.sqrt(2)) + 1.0) * 0.5
