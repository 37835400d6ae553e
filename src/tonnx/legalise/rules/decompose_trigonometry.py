"""Sines and their inverses, before opset 7: computed in float64, which is more than float32 needs."""

from __future__ import annotations

import math

import onnx_ir as ir

from tonnx.ir.build import Builder
from tonnx.legalise.broadcast import with_number
from tonnx.legalise.node_view import Blocked, NodeView
from tonnx.legalise.table import down

T = ir.DataType

# π in three parts: the products of the first two with a whole number below 2²⁵ are exact.
_PI = (3.1415926218032837, 3.1786509424591713e-08, 1.2246467991473532e-16)
_TERMS = 8  # of the series of the sine up to π/2, and of the arcus tangent up to tan(π/16): right to 1e-11
_HALVINGS = 3
_AS_GOOD_AS_INFINITE = 1e15


def _wide(op: Builder, node: NodeView) -> ir.Value:
    if node.dtype("input") == T.DOUBLE:
        raise Blocked(f"{node.op_type} can be written out with the precision of float32, not of float64")
    return op.cast(node.need("input"), T.DOUBLE)


def _polynomial(op: Builder, x: ir.Value, coefficients: list[float]) -> ir.Value:
    """c₀x + c₁x³ + c₂x⁵ …"""
    square = op.Mul(x, x)
    result = with_number(op, "Mul", square, coefficients[-1])
    for coefficient in coefficients[-2:0:-1]:
        result = op.Mul(with_number(op, "Add", result, coefficient), square)
    return op.Mul(with_number(op, "Add", result, coefficients[0]), x)


def _sine(op: Builder, x: ir.Value) -> ir.Value:
    """±sin of what is left of x after whole multiples of π; right for numbers up to 10⁸."""
    turns = op.Floor(with_number(op, "Add", with_number(op, "Mul", x, 1 / math.pi), 0.5))
    rest = x
    for part in _PI:
        rest = op.Sub(rest, with_number(op, "Mul", turns, part))
    half = op.Floor(with_number(op, "Mul", turns, 0.5))
    odd = op.Sub(turns, with_number(op, "Mul", half, 2.0))
    sign = with_number(op, "Add", with_number(op, "Mul", odd, -2.0), 1.0)
    series = [(-1.0) ** k / math.factorial(2 * k + 1) for k in range(_TERMS)]
    return op.Mul(_polynomial(op, rest, series), sign)


@down("Sin", 7)
def sine(op: Builder, node: NodeView) -> ir.Value:
    """What is left after whole multiples of π, and the sine's series."""
    return op.cast(_sine(op, _wide(op, node)), node.dtype("input"))


@down("Cos", 7)
def cosine(op: Builder, node: NodeView) -> ir.Value:
    """sin(x + π/2)."""
    x = _wide(op, node)
    return op.cast(_sine(op, with_number(op, "Add", x, math.pi / 2)), node.dtype("input"))


@down("Tan", 7)
def tangent(op: Builder, node: NodeView) -> ir.Value:
    """sin(x) / cos(x)."""
    x = _wide(op, node)
    return op.cast(op.Div(_sine(op, x), _sine(op, with_number(op, "Add", x, math.pi / 2))), node.dtype("input"))


def _arcus_tangent(op: Builder, x: ir.Value, halvings: int) -> ir.Value:
    """atan(x) = 2·atan(x / (1 + √(1 + x²))), so often that the series is short."""
    for _ in range(halvings):
        root = op.Sqrt(with_number(op, "Add", op.Mul(x, x), 1.0))
        x = op.Div(x, with_number(op, "Add", root, 1.0))
    series = _polynomial(op, x, [(-1.0) ** k / (2 * k + 1) for k in range(_TERMS)])
    return with_number(op, "Mul", series, 2.0**halvings)


@down("Atan", 7)
def arcus_tangent(op: Builder, node: NodeView) -> ir.Value:
    """Angles halved until the series of the arcus tangent is short."""
    x, dtype = node.need("input"), node.dtype("input")
    if dtype == T.DOUBLE:
        raise Blocked("Atan can be written out with the precision of float32, not of float64")
    within = op.Clip(op.cast(x, T.FLOAT), min=-_AS_GOOD_AS_INFINITE, max=_AS_GOOD_AS_INFINITE)
    return op.cast(_arcus_tangent(op, op.cast(within, T.DOUBLE), _HALVINGS), dtype)


def _arcus_sine(op: Builder, x: ir.Value) -> ir.Value:
    """2·atan(x / (1 + √(1 − x²)))."""
    root = op.Sqrt(with_number(op, "Add", op.Neg(op.Mul(x, x)), 1.0))
    tangent_of_half = op.Div(x, with_number(op, "Add", root, 1.0))
    return with_number(op, "Mul", _arcus_tangent(op, tangent_of_half, _HALVINGS - 1), 2.0)


@down("Asin", 7)
def arcus_sine(op: Builder, node: NodeView) -> ir.Value:
    """2·atan(x / (1 + √(1 − x²)))."""
    return op.cast(_arcus_sine(op, _wide(op, node)), node.dtype("input"))


@down("Acos", 7)
def arcus_cosine(op: Builder, node: NodeView) -> ir.Value:
    """π/2 − asin(x)."""
    angle = op.Neg(_arcus_sine(op, _wide(op, node)))
    return op.cast(with_number(op, "Add", angle, math.pi / 2), node.dtype("input"))
