"""Opsets 1 to 6, element by element: broadcasting on request (7), ``consumed_inputs`` (6), other defaults."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir as ir

from tonnx.ir.build import Builder, T
from tonnx.ir.infer import UNKNOWN, Dims, same_dim
from tonnx.legalise.broadcast import equal_shapes, limited, with_number, without_axes
from tonnx.legalise.node_view import Blocked, NodeView, constant_of, known, schema_default
from tonnx.legalise.table import DOWN, attributes_go, down, impossible, same, up

# Broadcasting

_BINARY = ("Add", "Sub", "Mul", "Div", "Pow", "And", "Or", "Xor", "Equal", "Less", "Greater")
_FORMALS = {"Pow": ("X", "Y")}


@down(_BINARY, 7)
def broadcast_on_request(op: Builder, node: NodeView) -> ir.Value | None:
    """Only the right operand is broadcast, over a run of axes, and that has to be said."""
    a, b = (node.need(name) for name in _FORMALS.get(node.op_type, ("A", "B")))
    return None if equal_shapes(a, b) else limited(op, node.op_type, a, b)


@up(_BINARY, 7)
def broadcast_always(op: Builder, node: NodeView) -> ir.Value | None:
    """The axis from which on the right operand runs becomes axes of size 1 behind it."""
    a, b = (node.need(name) for name in _FORMALS.get(node.op_type, ("A", "B")))
    axis = node.attr("axis") if node.attr("broadcast", 0) else None
    if axis is not None and not (b.shape is not None and all(d == 1 for d in b.shape)):
        if a.shape is None or b.shape is None:
            raise Blocked("the rank of its inputs is not known, and its axis counts in it")
        behind = a.shape.rank() - axis % a.shape.rank() - b.shape.rank()
        if behind > 0:
            b = op.Unsqueeze(b, axes=list(range(b.shape.rank(), b.shape.rank() + behind)))
            return getattr(op, node.op_type)(a, b)
    return None


# consumed_inputs: which inputs may be overwritten. Nobody has to.

_CONSUMING = (
    "Abs", "Add", "Ceil", "Div", "Dropout", "Elu", "Exp", "Floor", "HardSigmoid", "InstanceNormalization", "LeakyRelu",
    "Log", "Max", "Mean", "Min", "Mul", "Neg", "PRelu", "Reciprocal", "Relu", "Sigmoid", "Sqrt", "Sub", "Sum", "Tanh",
)  # fmt: skip


up(_CONSUMING, 6)(attributes_go)
same(_CONSUMING, 6, "consumed_inputs is optional, and types are the type rule's", direction=DOWN)

# Clip and Selu: other defaults

_LARGEST = float(np.finfo(np.float32).max)


def _written_down(step: Callable[[Any], Any], summary: str, **defaults: float) -> None:
    """Enter a rule that says what is not said, since the other version has another default."""

    def rule(op: Builder, node: NodeView) -> None:
        for name, value in defaults.items():
            if name not in node.node.attributes:
                node.node.attributes.add(ir.AttrFloat32(name, value))

    rule.__doc__ = summary
    step(rule)


_BOUNDS = "Version 1 has no defaults: a bound that is not given is written down."
_written_down(down("Clip", 6), _BOUNDS, min=-_LARGEST, max=_LARGEST)
_written_down(up("Clip", 6), "A bound that is not given is infinite.", min=-math.inf, max=math.inf)
for _step, _opset in ((down, 6), (up, 1)):
    _selu = {name: schema_default("Selu", _opset, name) for name in ("alpha", "gamma")}
    _written_down(_step("Selu", 6), "The defaults had fewer digits.", **_selu)


# PRelu


@down("PRelu", 7)
def prelu_per_channel(op: Builder, node: NodeView) -> ir.Value:
    """The slope is one number; any other is written out.

    Before 7 it can also be one a channel, but onnx's version converter takes that for the last axis.
    """
    x, slope = node.need("X"), node.need("slope")
    dims = known(node.dims("slope"), "the shape of its slope is not known")
    if all(dim == 1 for dim in dims):
        return op.PRelu(x, _as_vector(op, slope))
    # max(x, 0) − slope·max(−x, 0)
    below = limited(op, "Mul", op.Relu(op.Neg(x)), slope)
    return op.Sub(op.Relu(x), below)


def _as_vector(op: Builder, slope: ir.Value) -> ir.Value:
    if (array := constant_of(slope)) is not None:
        return slope if array.ndim == 1 else op.constant(array.reshape(1))
    rank = op.rank(slope)
    if rank == 0:
        return op.Unsqueeze(slope, axes=[0])
    return without_axes(op, slope, list(range(rank - 1)))


@up("PRelu", 7)
def prelu_broadcast(op: Builder, node: NodeView) -> ir.Value | None:
    """One slope a channel gets axes of size 1 behind it."""
    x, slope = node.need("X"), node.need("slope")
    dims = node.dims("slope")
    if dims is not None and all(dim == 1 for dim in dims):
        return None
    behind = node.rank("X") - 2
    if node.rank("slope") != 1 or behind <= 0:
        return None
    return op.PRelu(x, op.Unsqueeze(slope, axes=list(range(1, behind + 1))))


# Gemm


@down("Gemm", 7)
def gemm_broadcast(op: Builder, node: NodeView) -> ir.Value:
    """C is broadcast on request, and only as a row or as one number."""
    a, b, c = (node.need(name) for name in ("A", "B", "C"))
    attributes = node.attributes()
    dims = known(node.dims("C"), "the shape of C is not known")
    result = _gemm_shape(node)
    if len(dims) == 2 and all(same_dim(d, r) for d, r in zip(dims, result, strict=True)):
        return op.Gemm(a, b, c, **attributes)
    if len(dims) == 2 and dims[0] == 1 and dims[1] != 1:
        c = without_axes(op, c, [0])
    elif len(dims) == 2 and dims[1] == 1 and dims[0] != 1:
        columns = result[1]
        if not isinstance(columns, int):
            raise Blocked("C is a column, and how many there are is known only at run time")
        c = op.Gather(c, np.zeros(columns, dtype=np.int64), axis=1)
    return op.Gemm(a, b, c, broadcast=1, **attributes)


def _gemm_shape(node: NodeView) -> Dims:
    a, b = node.dims("A"), node.dims("B")
    rows = UNKNOWN if a is None else a[1 if node.attr("transA", 0) else 0]
    columns = UNKNOWN if b is None else b[0 if node.attr("transB", 0) else 1]
    return [rows, columns]


up("Gemm", 7)(attributes_go)  # C is always broadcast
same("Gemm", 6, "nothing but the text changed")

# Cast


@down("Cast", 6)
def cast_to_name(op: Builder, node: NodeView) -> None:
    """The type is written as a word."""
    node.node.attributes.add(ir.AttrString("to", T(node.attr("to")).name))


@up("Cast", 6)
def cast_to_number(op: Builder, node: NodeView) -> None:
    """The word becomes a number."""
    name = node.attr("to")
    dtype = known({dtype.name: dtype for dtype in T}.get(name.upper()), f"there is no type {name!r}")
    node.node.attributes.add(ir.AttrInt64("to", int(dtype)))


# What came with 7

impossible("Multinomial", 7, "nothing older draws from a distribution that is an input")


# Sines and their inverses: computed in float64, which is more than float32 needs


# π in three parts: the products of the first two with a whole number below 2²⁵ are exact.
_PI = (3.1415926218032837, 3.1786509424591713e-08, 1.2246467991473532e-16)
_TERMS = 8  # of the series of the sine up to π/2, and of the arcus tangent up to tan(π/16): right to 1e-11
_HALVINGS = 3
_AS_GOOD_AS_INFINITE = 1e15


def _in_double(op_type: str, summary: str, function: Callable[[Builder, ir.Value], ir.Value]) -> None:
    """Enter a function of float64, for an operator on float32."""

    def rule(op: Builder, node: NodeView) -> ir.Value:
        dtype = node.dtype("input")
        if dtype == T.DOUBLE:
            raise Blocked(f"{op_type} can be written out with the precision of float32, not of float64")
        return op.cast(function(op, op.cast(node.need("input"), T.DOUBLE)), dtype)

    rule.__doc__ = summary
    down(op_type, 7)(rule)


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


def _cosine(op: Builder, x: ir.Value) -> ir.Value:
    return _sine(op, with_number(op, "Add", x, math.pi / 2))


_in_double("Sin", "What is left after whole multiples of π, and the sine's series.", _sine)
_in_double("Cos", "sin(x + π/2).", _cosine)
_in_double("Tan", "sin(x) / cos(x).", lambda op, x: op.Div(_sine(op, x), _cosine(op, x)))


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


_in_double("Asin", "2·atan(x / (1 + √(1 − x²))).", _arcus_sine)
_in_double("Acos", "π/2 − asin(x).", lambda op, x: with_number(op, "Add", op.Neg(_arcus_sine(op, x)), math.pi / 2))
