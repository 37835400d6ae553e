"""Opsets 1 to 6, element by element: broadcasting on request (7), ``consumed_inputs`` (6), other defaults."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from tonnx.ir.build import Builder
from tonnx.ir.infer import UNKNOWN, Dims, same_dim
from tonnx.legalise.broadcast import equal_shapes, limited, without_axes
from tonnx.legalise.node_view import Blocked, NodeView, constant_of, schema_default
from tonnx.legalise.table import DOWN, attributes_go, down, impossible, same, up

T = ir.DataType

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


@down("Clip", 6)
def clip_without_defaults(op: Builder, node: NodeView) -> None:
    """Version 1 has no defaults: a bound that is not given is written down."""
    for name, bound in (("min", -_LARGEST), ("max", _LARGEST)):
        if name not in node.node.attributes:
            node.node.attributes.add(ir.AttrFloat32(name, bound))


@up("Clip", 6)
def clip_without_bound(op: Builder, node: NodeView) -> None:
    """A bound that is not given is infinite."""
    for name, bound in (("min", -math.inf), ("max", math.inf)):
        if name not in node.node.attributes:
            node.node.attributes.add(ir.AttrFloat32(name, bound))


def _selu_defaults(node: NodeView, opset: int) -> None:
    for name in ("alpha", "gamma"):
        if name not in node.node.attributes:
            node.node.attributes.add(ir.AttrFloat32(name, schema_default("Selu", opset, name)))


@down("Selu", 6)
def selu_new_defaults(op: Builder, node: NodeView) -> None:
    """The defaults had fewer digits: they are written down."""
    _selu_defaults(node, 6)


@up("Selu", 6)
def selu_old_defaults(op: Builder, node: NodeView) -> None:
    """The defaults had fewer digits: they are written down."""
    _selu_defaults(node, 1)


# PRelu


@down("PRelu", 7)
def prelu_per_channel(op: Builder, node: NodeView) -> ir.Value:
    """The slope is one number; any other is written out.

    Before 7 it can also be one a channel, but onnx's version converter takes that for the last axis.
    """
    x, slope = node.need("X"), node.need("slope")
    dims = node.dims("slope")
    if dims is None:
        raise Blocked("the shape of its slope is not known")
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
    dims = node.dims("C")
    if dims is None:
        raise Blocked("the shape of C is not known")
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
    dtype = {dtype.name: dtype for dtype in T}.get(name.upper())
    if dtype is None:
        raise Blocked(f"there is no type {name!r}")
    node.node.attributes.add(ir.AttrInt64("to", int(dtype)))


# What came with 7

impossible("Multinomial", 7, "nothing older draws from a distribution that is an input")
