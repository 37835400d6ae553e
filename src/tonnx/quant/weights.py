"""Weights as integers: DequantizeLinear stands where they stood, and the network computes with floats as before.

1. MatMul and Gemm: blocks along the axis that is summed over.
2. Gather of rows of a table: one scale for each row, 8 bits. What is gathered is integers, not the whole table as
   floats. A Mul makes floats of them: a DequantizeLinear would be fused by ONNX Runtime with the product that follows,
   as if it had one scale.
3. Conv and ConvTranspose: one scale for each channel of the result, 8 bits; with fewer they stay floats.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

import numpy as np
import onnx_ir as ir

from tonnx.errors import InvalidArgument
from tonnx.ir.build import Builder
from tonnx.ir.operands import attribute
from tonnx.ir.rewrite import builder_of, replace_node, use_instead
from tonnx.quant.gptq import by_moments
from tonnx.quant.integers import Form, Stored, by_channel, in_blocks
from tonnx.quant.moments import Moments
from tonnx.quant.qdq import stored_floats, stored_parts

T = ir.DataType
ROUNDINGS = ("nearest", "gptq")
"""Each number for itself; or so that they make up for each other in what the data multiply them with."""
SINCE = 21
"""The first opset that has blocks and 4 bits."""
_SMALLEST = 1024  # numbers; of less there is nothing to gain
_FLOATS = (T.FLOAT, T.FLOAT16, T.BFLOAT16)


@dataclass(frozen=True)
class Layer:
    """A weight, and where it is read."""

    name: str
    nodes: tuple[ir.Node, ...]
    stored: Stored | None
    """None: it stays what it is."""
    why: str = ""


@dataclass(frozen=True)
class _Reading:
    """How a node reads a weight: the axis along which numbers share a scale, or that of the channels that have one."""

    operator: str
    axis: int
    channels: bool = False


def store_weights(model: ir.Model, form: Form, skip: Sequence[str] = (), moments: Moments | None = None) -> list[Layer]:
    """Replace the weights of the main graph that are worth it. ``skip``: patterns of the names of weights or nodes.

    ``moments``: of what they are multiplied with; matrices are rounded by these then.
    """
    layers = []
    used: set[str] = set()
    op = builder_of(model)
    order = {node: place for place, node in enumerate(model.graph)}
    for value in list(model.graph.initializers.values()):
        readings, tensor = list(_readings(value)), value.const_value
        if not readings or value.dtype not in _FLOATS or tensor is None or tensor.size < _SMALLEST:
            continue
        nodes = tuple(sorted({node for node, _ in value.uses()}, key=lambda node: order.get(node, 0)))
        pattern = _matching(skip, [str(value.name), *(str(node.name) for node in nodes)])
        if pattern is not None:
            used.add(pattern)
        why = f"left out by {pattern}" if pattern is not None else _objection(value, readings, form)
        seen = None if why or moments is None else _moments(moments, value, readings[0])
        stored = None if why else _stored(tensor.numpy(), readings[0], form, seen)
        layers.append(Layer(str(value.name), nodes, stored, why))
        if stored is not None:
            _replace(op, value, stored, nodes, gathered=readings[0].operator == "Gather")
    if unused := [pattern for pattern in skip if pattern not in used]:
        names = ", ".join(layer.name for layer in layers[:8])
        raise InvalidArgument(f"no weight or node has a name like {unused[0]!r}", hint=f"there are {names}")
    return layers


def _matching(patterns: Sequence[str], names: Sequence[str]) -> str | None:
    return next((pattern for pattern in patterns if any(fnmatchcase(name, pattern) for name in names)), None)


def _readings(value: ir.Value) -> Iterator[_Reading]:
    """How nodes read it, as far as they do so in a way that is known."""
    rank = value.shape.rank() if value.shape is not None else 0
    for node, index in value.uses():
        if node.domain != "" or node.graph is not value.graph:
            continue
        if node.op_type == "MatMul" and rank > 1:
            yield _Reading("MatMul", rank - 2 if index == 1 else rank - 1)
        elif node.op_type == "Gemm" and index == 1:
            transposed = attribute(node, "transB", 0)
            yield _Reading("Gemm", 1 if transposed else 0)
        elif node.op_type == "Conv" and index == 1:
            yield _Reading("Conv", 0, channels=True)
        elif node.op_type == "ConvTranspose" and index == 1 and "group" not in node.attributes:
            yield _Reading("ConvTranspose", 1, channels=True)
        elif node.op_type == "Gather" and index == 0 and rank == 2:
            axis = attribute(node, "axis", 0)
            if axis in (0, -2):
                yield _Reading("Gather", 1)


def _objection(value: ir.Value, readings: list[_Reading], form: Form) -> str:
    """Why a weight stays what it is; empty if it does not."""
    if len(readings) < len(value.uses()) or value.is_graph_output() or value.is_graph_input():
        return "read in another way, too"
    if len(set(readings)) > 1:
        return f"read by {' and '.join(sorted({reading.operator for reading in readings}))}, along different axes"
    if readings[0].channels and form.bits < 8:
        return f"a convolution with {form.bits} bits loses too much"
    array = value.const_value.numpy() if value.const_value is not None else np.zeros(0)
    return "" if np.isfinite(array.astype(np.float32)).all() else "not finite"


def _moments(moments: Moments, value: ir.Value, reading: _Reading) -> np.ndarray | None:
    """Of all that a matrix is multiplied with from the left."""
    if reading.operator not in ("MatMul", "Gemm") or value.shape is None or value.shape.rank() != 2:
        return None
    if any(index != 1 for _, index in value.uses()):
        return None
    factors = [node.inputs[0] for node, _ in value.uses() if not _is_transposed(node)]
    return moments.of([str(factor.name) for factor in factors if factor is not None])


def _is_transposed(node: ir.Node) -> bool:
    return bool(attribute(node, "transA", 0))


def _stored(array: np.ndarray, reading: _Reading, form: Form, moments: np.ndarray | None) -> Stored:
    if moments is not None:
        return by_moments(array, reading.axis, form, moments)
    if reading.channels:
        return by_channel(array, reading.axis, form)
    if reading.operator == "Gather":
        form = replace(form, bits=8, block=0)
    return in_blocks(array, reading.axis, form)


def _replace(op: Builder, value: ir.Value, stored: Stored, nodes: Sequence[ir.Node], gathered: bool) -> None:
    name = str(value.name)
    op.graph.initializers.pop(name)
    if not gathered:
        with op.at(nodes[0]):
            use_instead(value, stored_floats(op, name, stored))
        return
    dtype, tensors = value.dtype, stored_parts(op, name, stored)
    for node in nodes:
        with op.at(node):
            rows = [None if tensor is None else op.Gather(tensor, node.inputs[1], axis=0) for tensor in tensors]
            integers, scale, zero_point = (None if row is None else op.cast(row, dtype) for row in rows)
            replace_node(node, [op.Mul(integers if zero_point is None else op.Sub(integers, zero_point), scale)])
