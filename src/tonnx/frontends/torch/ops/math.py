"""Pointwise arithmetic, comparison and transcendental functions."""

from __future__ import annotations

import onnx_ir as ir

from tonnx.build import Builder
from tonnx.frontends.torch.rules import lower
from tonnx.frontends.torch.values import Operand, as_value, promote, result_type, to_float

T = ir.DataType


@lower("aten.add")
def add(op: Builder, x: Operand, other: Operand, alpha: Operand = 1) -> ir.Value:
    if alpha != 1:
        other = mul(op, other, alpha)
    a, b = promote(op, x, other)
    return op.Or(a, b) if a.dtype == T.BOOL else op.Add(a, b)


@lower("aten.mul")
def mul(op: Builder, x: Operand, other: Operand) -> ir.Value:
    a, b = promote(op, x, other)
    return op.And(a, b) if a.dtype == T.BOOL else op.Mul(a, b)


@lower("aten.relu")
def relu(op: Builder, x: ir.Value) -> ir.Value:
    return op.Relu(x)
