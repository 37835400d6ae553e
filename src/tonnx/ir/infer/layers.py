"""Shapes of the layers of networks: convolutions, pooling, resizing, recurrent ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from tonnx.ir.infer.dims import UNKNOWN, Dim, Dims, constant, sizes_in
from tonnx.ir.infer.table import Inferred, PlannedNode, shape_from, shape_of

shape_of("SequenceLength", "OptionalHasElement")(lambda node: [])
shape_from("ConvTranspose", "ConvInteger", "QLinearConv", "DeformConv")(lambda node, dims: _first(dims, 1, UNKNOWN))
shape_from("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")(lambda node, dims: _first(dims, 2, 1))


def _first(dims: Dims, count: int, rest: Dim) -> Dims:
    return [*dims[:count], *[rest] * (len(dims) - count)]


@shape_from("Conv")
def _conv(node: PlannedNode, dims: Dims) -> Inferred:
    weight = node.dims(1)
    if weight is None:
        return _first(dims, 1, UNKNOWN)
    return [dims[0], weight[0], *slid(dims[2:], weight[2:], node.attributes)]


@shape_from("Resize", "Upsample")
def _resize(node: PlannedNode, dims: Dims) -> Inferred:
    scales, sizes = (*node.inputs[2 if len(node.inputs) > 2 else 1 :], None, None)[:2]
    factors, result = constant(scales), list(dims)
    if "scales" in node.attributes:  # of Upsample below opset 9
        factors = np.array(node.attributes["scales"])
    targets = sizes_in(sizes) if node.attributes.get("keep_aspect_ratio_policy", "stretch") == "stretch" else None
    for place, axis in enumerate(node.attributes.get("axes") or range(len(dims))):
        before = dims[axis]
        if targets:
            result[axis] = targets[place]
        elif factors is None or not factors.size or (factors[place] != 1 and not isinstance(before, int)):
            result[axis] = UNKNOWN
        elif isinstance(before, int):
            result[axis] = int(before * float(factors[place]))
    return result


@shape_from("GridSample")
def _grid_sample(node: PlannedNode, dims: Dims) -> Inferred:
    grid = node.dims(1)
    return _first(dims, 2, UNKNOWN) if grid is None else [*dims[:2], *grid[1:-1]]


@shape_from("DepthToSpace")
def _depth_to_space(node: PlannedNode, dims: Dims) -> Inferred:
    size = node.attributes.get("blocksize", 1)
    return [dims[0], *_scaled(dims[1:2], 1, size * size), *_scaled(dims[2:], size, 1)]


@shape_from("SpaceToDepth")
def _space_to_depth(node: PlannedNode, dims: Dims) -> Inferred:
    size = node.attributes.get("blocksize", 1)
    return [dims[0], *_scaled(dims[1:2], size * size, 1), *_scaled(dims[2:], 1, size)]


@shape_from("MaxPool", "AveragePool", "LpPool")
def _pool(node: PlannedNode, dims: Dims) -> Inferred:
    shape = [*dims[:2], *slid(dims[2:], node.attributes.get("kernel_shape"), node.attributes)]
    return [shape] * node.outputs


def _scaled(dims: Dims, factor: int, divisor: int) -> Dims:
    return [d * factor // divisor if isinstance(d, int) else UNKNOWN for d in dims]


@shape_from("LSTM", "GRU", "RNN")
def _recurrent(node: PlannedNode, dims: Dims) -> Inferred:
    directions = 2 if node.attributes.get("direction") == "bidirectional" else 1
    hidden = node.attributes.get("hidden_size", UNKNOWN)
    if node.attributes.get("layout", 0):
        batch_first: Dims = [dims[0], directions, hidden]
        return [[dims[0], dims[1], directions, hidden], batch_first, batch_first]
    state: Dims = [directions, dims[1], hidden]
    return [[dims[0], directions, dims[1], hidden], state, state]


# The spatial sizes that convolution and pooling leave, where they follow from what is known


def slid(dims: Sequence[Dim], kernel: Sequence[Dim] | None, attributes: Mapping[str, Any]) -> list[Dim]:
    """The sizes after windows of ``kernel`` have slid over ``dims``, the axes behind batch and channels."""
    result: list[Dim] = []
    for i, size in enumerate(dims):
        window = kernel[i] if kernel is not None and i < len(kernel) else None
        result.append(_slid(size, window, i, len(dims), attributes))
    return result


def _slid(size: Dim, window: Dim | None, i: int, axes: int, attributes: Mapping[str, Any]) -> Dim:
    unknown = ir.SymbolicDim(None)
    stride, dilation = _at(attributes, "strides", i), _at(attributes, "dilations", i)
    if not isinstance(window, int):
        return unknown
    pads = attributes.get("pads") or [0] * 2 * axes
    auto = attributes.get("auto_pad", "NOTSET")
    if auto in ("SAME_UPPER", "SAME_LOWER"):
        return -(-size // stride) if isinstance(size, int) else size if stride == 1 else unknown
    if auto == "VALID":
        pads = [0] * 2 * axes
    change = pads[i] + pads[axes + i] - dilation * (window - 1) - 1
    if not isinstance(size, int):
        return size if stride == 1 and change == -1 else unknown
    span = size + change
    if not attributes.get("ceil_mode"):
        return span // stride + 1
    count = -(-span // stride) + 1
    return count - 1 if (count - 1) * stride >= size + pads[i] else count  # no window starts behind the data


def _at(attributes: Mapping[str, Any], name: str, i: int) -> int:
    values = attributes.get(name)
    return int(values[i]) if values else 1
