"""Convolutions. Kernels are [out, in / groups, ...] whatever the layout of the data."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from tonnx.frontends.paddle.lower.rules import Ints, Sizes, Value, lower
from tonnx.ir.build import Builder, Size
from tonnx.lowering import sizes

EXPLICIT, SAME, VALID = "EXPLICIT", "SAME", "VALID"


def pads_of(paddings: Sequence[int], axes: int) -> list[int]:
    """ONNX's pads, all begins and then all ends, from one number an axis or from a pair an axis."""
    if len(paddings) == 2 * axes:
        return [*paddings[::2], *paddings[1::2]]
    if len(paddings) == 2 * axes + 4:  # with the pairs of batch and channels, in either layout: both are 0
        return pads_of([p for p in paddings if p] or [0] * axes, axes)
    return list(paddings) * 2 if len(paddings) == axes else [paddings[0]] * 2 * axes


def same_pads(op: Builder, x: ir.Value, kernel: Sequence[int], strides: Sequence[int]) -> list[int] | None:
    """What SAME adds so that ⌈size / stride⌉ elements result, an odd one at the end; None if sizes are dynamic."""
    begins, ends = [], []
    for axis, (k, s) in enumerate(zip(kernel, strides, strict=True), 2):
        size = op.size(x, axis)
        if not isinstance(size, int):
            return None
        total = max((-(-size // s) - 1) * s + k - size, 0)
        begins.append(total // 2)
        ends.append(total - total // 2)
    return begins + ends


def pads_for(
    op: Builder, x: ir.Value, kernel: Sequence[int], strides: Sequence[int], paddings: Sequence[int], algorithm: str
) -> list[int] | None:
    """ONNX's pads; None for SAME, if sizes are dynamic."""
    if algorithm == SAME:
        return same_pads(op, x, kernel, strides)
    return [0] * 2 * len(kernel) if algorithm == VALID else pads_of(paddings, len(kernel))


def padding(pads: list[int] | None) -> dict[str, object]:
    """The attribute ``pads`` or ``auto_pad`` of a convolution or pooling node."""
    return {"auto_pad": "SAME_UPPER"} if pads is None else {"pads": pads}


def _window(
    filter: ir.Value, strides: Sequence[int], dilations: Sequence[int], algorithm: str
) -> tuple[list[int], list[int], list[int]]:
    """The sizes of a kernel, its steps and its dilations, one number an axis."""
    assert filter.shape is not None
    kernel = sizes.known("a convolution by a kernel of a size", *filter.shape.dims[2:])
    steps, spacing = (list(each) * len(kernel) if len(each) == 1 else list(each) for each in (strides, dilations))
    # Paddle drops the dilation with SAME: UpdatePaddingAndDilation
    return kernel, steps, [1] * len(kernel) if algorithm == SAME else spacing


@lower("conv2d", "depthwise_conv2d", "conv3d", layout="data_format")
@lower("conv2d_bias", "depthwise_conv2d_bias", "conv3d_bias", "depthwise_conv3d_bias", layout="data_format")
def conv(
    op: Builder,
    input: Value,
    filter: Value,
    bias_tensor: Value | None = None,
    *,
    strides: Ints = (1, 1),
    paddings: Ints = (0, 0),
    padding_algorithm: str = EXPLICIT,
    dilations: Ints = (1, 1),
    groups: int = 1,
) -> ir.Value:
    kernel, steps, spacing = _window(filter, strides, dilations, padding_algorithm)
    return op.Conv(
        input,
        filter,
        bias_tensor,
        kernel_shape=kernel,
        strides=steps,
        dilations=spacing,
        group=groups,
        **padding(pads_for(op, input, kernel, steps, paddings, padding_algorithm)),
    )


@lower("conv2d_transpose", "depthwise_conv2d_transpose", "conv3d_transpose", layout="data_format")
@lower("conv2d_transpose_bias", operands="x filter bias output_size", layout="data_format")
def conv_transpose(
    op: Builder,
    x: Value,
    filter: Value,
    output_size: Sizes = (),
    *,
    bias: Value | None = None,
    strides: Ints = (1, 1),
    paddings: Ints = (0, 0),
    output_padding: Ints = (),
    padding_algorithm: str = EXPLICIT,
    groups: int = 1,
    dilations: Ints = (1, 1),
) -> ir.Value:
    kernel, steps, spacing = _window(filter, strides, dilations, padding_algorithm)
    pads = pads_for(op, x, kernel, steps, paddings, padding_algorithm)
    own_sizes = op.sizes(x)[2:]
    window = {"kernel_shape": kernel, "strides": steps, "dilations": spacing, "group": groups}
    if pads is None or (len(output_size) and not all(isinstance(size, int) for size in (*own_sizes, *output_size))):
        behind = [step - 1 for step in steps] if len(output_size) and max(steps) > 1 else None
        whole = op.ConvTranspose(x, filter, bias, output_padding=behind, **window)
        for i, (k, step) in enumerate(zip(kernel, steps, strict=True)):  # without padding, and cut at run time
            begin, end = (pads[i], pads[len(kernel) + i]) if pads else same_ends(op, own_sizes[i], k, step)
            length = op.size(whole, i + 2)
            stop = sizes.add(op, begin, output_size[i]) if len(output_size) else sizes.subtract(op, length, end)
            whole = sizes.cut(op, whole, i + 2, begin, stop)
        return whole
    extra = [0] * len(kernel) if len(output_size) else list(output_padding)
    for i, asked in enumerate(output_size):
        size, ends = own_sizes[i], pads[i] + pads[len(kernel) + i]
        assert isinstance(size, int) and isinstance(asked, int)
        extra[i] = asked - ((size - 1) * steps[i] - ends + spacing[i] * (kernel[i] - 1) + 1)
    return op.ConvTranspose(x, filter, bias, pads=pads, output_padding=extra if any(extra) else None, **window)


def same_ends(op: Builder, size: Size, k: int, step: int) -> tuple[Size, Size]:
    """How far the windows of SAME reach beyond the data, before its beginning and behind its end."""
    last = sizes.multiply(op, sizes.divide(op, sizes.add(op, size, -1), step), step)
    total = sizes.larger(op, sizes.subtract(op, sizes.add(op, last, k), size), 0)
    begin = sizes.divide(op, total, 2)
    return begin, sizes.subtract(op, total, begin)


@lower("row_conv")
def row_conv(op: Builder, x: Value, filter: Value) -> ir.Value:
    """Each feature from the steps that follow it: (sentences, steps, features)."""
    ahead, width = op.sizes(filter)
    kernel = op.Unsqueeze(op.Transpose(filter, perm=[1, 0]), [1])
    padded = op.Transpose(x, perm=[0, 2, 1])
    assert isinstance(ahead, int) and isinstance(width, int)
    y = op.Conv(padded, kernel, group=width, kernel_shape=[ahead], pads=[0, ahead - 1])
    return op.Transpose(y, perm=[0, 2, 1])
