"""What autograd calls on the way back, in models that compute with gradients themselves; the rest is decomposed."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from tonnx.errors import UnsupportedArgument
from tonnx.ir.build import Builder, Size
from tonnx.lowering import sizes
from tonnx.lowering.ops import conv, scatter
from tonnx.lowering.ops.create import full
from tonnx.lowering.rules import lower


@lower("aten.select_backward")
def select_backward(op: Builder, x: ir.Value, input_sizes: Sequence[Size], dim: int, index: Size) -> ir.Value:
    return scatter.select_scatter(op, full(op, input_sizes, 0, x.dtype), x, dim, index)


@lower("aten.slice_backward")
def slice_backward(
    op: Builder, x: ir.Value, input_sizes: Sequence[Size], dim: int, start: Size, end: Size, step: Size
) -> ir.Value:
    return scatter.slice_scatter(op, full(op, input_sizes, 0, x.dtype), x, dim, start, end, step)


@lower("aten.diagonal_backward")
def diagonal_backward(
    op: Builder, x: ir.Value, input_sizes: Sequence[Size], offset: int, dim1: int, dim2: int
) -> ir.Value:
    return scatter.diagonal_scatter(op, full(op, input_sizes, 0, x.dtype), x, offset, dim1, dim2)


@lower("aten.convolution_backward", unused="bias_sizes output_padding")
def convolution_backward(
    op: Builder,
    x: ir.Value,
    input: ir.Value,
    weight: ir.Value,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    groups: int,
    output_mask: Sequence[bool],
) -> list[ir.Value | None]:
    """Of the data alone: weights do not learn in a file."""
    if output_mask[1] or output_mask[2]:
        raise UnsupportedArgument("a convolution's gradient by its weights is asked for, which no rule computes")
    if transposed:
        return [conv.conv(op, x, weight, None, stride, padding, dilation, groups), None, None]
    axes = op.rank(weight) - 2
    steps, pads = conv.spread(stride, axes), conv.spread(padding, axes)
    whole = conv.conv_transpose(op, x, weight, None, steps, 0, 0, groups, dilation)
    # What no window reached lies beyond the end: less than a step.
    whole = op.Pad(whole, [*[0] * (axes + 4), *[step - 1 + pad for step, pad in zip(steps, pads, strict=True)]])
    ends = [sizes.add(op, size, pad) for size, pad in zip(op.sizes(input)[2:], pads, strict=True)]
    return [op.Slice(whole, pads, op.vector(ends), list(range(2, axes + 2))), None, None]


@lower("aten.max_pool2d_with_indices_backward", unused="kernel_size stride padding dilation ceil_mode")
def max_pool2d_backward(op: Builder, x: ir.Value, self: ir.Value, indices: ir.Value) -> ir.Value:
    """Every gradient goes to the place that its maximum came from; windows may share one."""
    before, after = op.sizes(self), op.sizes(x)
    flat, lead = [*after[:-2], -1], before[:-2]
    nothing = full(op, [*lead, op.product(before[-2:])], 0, x.dtype)
    parts = op.reshape(indices, flat), op.reshape(x, flat)
    return op.reshape(op.ScatterElements(nothing, *parts, axis=len(lead), reduction="add"), before)
