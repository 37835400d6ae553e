"""Convolutions, and the functions that arrange windows like them: unfold and fold."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import onnx_ir as ir

from tonnx.errors import UnsupportedArgument
from tonnx.ir.build import Builder, Size, T
from tonnx.lowering import sizes
from tonnx.lowering.regions.emit import LoopBody
from tonnx.lowering.rules import lower
from tonnx.lowering.values import is_float

Ints = int | Sequence[int]


def spread(values: Ints, count: int, name: str = "argument") -> list[int]:
    """One integer an axis; torch lets a single one stand for all. ONNX takes them as attributes: fixed numbers."""
    numbers = [values] if isinstance(values, (int, ir.Value)) else list(values)
    if any(isinstance(v, ir.Value) for v in numbers):
        raise UnsupportedArgument(f"{name} depends on the size of an input, but ONNX wants a fixed number there")
    return numbers * count if len(numbers) == 1 else numbers


def batched(op: Builder, x: ir.Value, rank: int) -> tuple[ir.Value, bool]:
    """``x`` with a batch axis in front if it lacks one, and whether it did."""
    return (op.Unsqueeze(x, [0]), True) if op.rank(x) == rank - 1 else (x, False)


def _kernel(weight: ir.Value) -> list[int] | None:
    assert weight.shape is not None
    sizes = list(weight.shape.dims[2:])
    return sizes if all(isinstance(s, int) for s in sizes) else None  # type: ignore[return-value]


def _pads(padding: Ints | str, weight: ir.Value, stride: list[int], dilation: list[int]) -> list[int]:
    axes = len(stride)
    if padding == "valid":
        return [0] * 2 * axes
    if padding == "same":
        kernel = _kernel(weight)
        if kernel is None:
            raise UnsupportedArgument("padding='same' needs a kernel of fixed size")
        totals = [d * (k - 1) for d, k in zip(dilation, kernel, strict=True)]
        return [t // 2 for t in totals] + [t - t // 2 for t in totals]  # an odd one out goes to the end
    assert not isinstance(padding, str)
    return spread(padding, axes, "padding") * 2


def _data(op: Builder, x: ir.Value, weight: ir.Value) -> tuple[int, ir.Value, bool]:
    """The number of axes that windows slide along, the data with a batch axis, and whether it had none."""
    if not is_float(x.dtype):
        raise UnsupportedArgument(f"a convolution of {x.dtype} has no exact equivalent in ONNX")
    axes = op.rank(weight) - 2
    return axes, *batched(op, x, axes + 2)


Convolve = Callable[[Builder, ir.Value, ir.Value], ir.Value]


def _each_group(
    op: Builder, x: ir.Value, weight: ir.Value, bias: ir.Value | None, groups: Size, convolve: Convolve
) -> ir.Value:
    """As many groups as only the run knows, such as one a picture of the batch: a Loop, since ONNX wants a number."""
    before, after = op.sizes(x), op.sizes(weight)
    apart = op.reshape(x, [before[0], groups, -1, *before[2:]])
    kernels = op.reshape(weight, [groups, -1, *after[1:]])
    loop = LoopBody(op, [])
    with loop.inner as inner:
        y = convolve(inner, inner.Gather(apart, loop.iteration, axis=1), inner.Gather(kernels, loop.iteration, axis=0))
    (y,) = loop.close(groups, True, [], True, [], [y])
    axes = list(range(op.rank(y)))
    y = op.Transpose(y, perm=[1, 0, *axes[2:]])
    first, _, _, *rest = op.sizes(y)
    y = op.reshape(y, [first, -1, *rest])
    return y if bias is None else op.Add(y, op.Unsqueeze(bias, axes[1:-2]))


@lower("aten.conv1d", "aten.conv2d", "aten.conv3d", "aten._convolution_mode")
def conv(
    op: Builder,
    x: ir.Value,
    weight: ir.Value,
    bias: ir.Value | None = None,
    stride: Ints = 1,
    padding: Ints | str = 0,
    dilation: Ints = 1,
    groups: Size = 1,
) -> ir.Value:
    axes, x, single = _data(op, x, weight)
    strides, dilations = spread(stride, axes, "stride"), spread(dilation, axes, "dilation")
    attributes = {
        "kernel_shape": _kernel(weight),
        "strides": strides,
        "pads": _pads(padding, weight, strides, dilations),
        "dilations": dilations,
    }
    if isinstance(groups, ir.Value):
        y = _each_group(op, x, weight, bias, groups, lambda op, x, weight: op.Conv(x, weight, **attributes))
    else:
        y = op.Conv(x, weight, bias, **attributes, group=groups)
    return op.Squeeze(y, [0]) if single else y


@lower("aten.conv_transpose1d", "aten.conv_transpose2d", "aten.conv_transpose3d")
def conv_transpose(
    op: Builder,
    x: ir.Value,
    weight: ir.Value,
    bias: ir.Value | None = None,
    stride: Ints = 1,
    padding: Ints = 0,
    output_padding: Ints = 0,
    groups: Size = 1,
    dilation: Ints = 1,
) -> ir.Value:
    axes, x, single = _data(op, x, weight)
    strides, pads = spread(stride, axes, "stride"), spread(padding, axes, "padding")
    extra = spread(output_padding, axes, "output_padding")
    ends, beyond = pads, [0] * axes
    if any(e >= s for e, s in zip(extra, strides, strict=True)):  # with a dilation; ONNX Runtime refuses it
        # What is added at the end is cut off less there, and beyond the reach of the kernel it is 0.
        ends = [max(p - e, 0) for p, e in zip(pads, extra, strict=True)]
        beyond = [max(e - p, 0) for p, e in zip(pads, extra, strict=True)]
        extra = [0] * axes
    attributes = {
        "kernel_shape": _kernel(weight),
        "strides": strides,
        "pads": [*pads, *ends],
        "output_padding": extra if any(extra) else None,
        "dilations": spread(dilation, axes, "dilation"),
    }
    inside = None if any(beyond) else bias
    if isinstance(groups, ir.Value):
        y = _each_group(op, x, weight, inside, groups, lambda op, x, weight: op.ConvTranspose(x, weight, **attributes))
    else:
        y = op.ConvTranspose(x, weight, inside, **attributes, group=groups)
    if any(beyond):
        y = op.Pad(y, [*[0] * (axes + 4), *beyond])
        y = y if bias is None else op.Add(y, op.Unsqueeze(bias, list(range(1, axes + 1))))
    return op.Squeeze(y, [0]) if single else y


_KERNELS = "benchmark deterministic cudnn_enabled allow_tf32"


@lower("aten.convolution", "aten._convolution", "aten._convolution.deprecated", unused=_KERNELS)
def convolution(
    op: Builder,
    x: ir.Value,
    weight: ir.Value,
    bias: ir.Value | None,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    transposed: bool,
    output_padding: Ints,
    groups: Size,
) -> ir.Value:
    if transposed:
        return conv_transpose(op, x, weight, bias, stride, padding, output_padding, groups, dilation)
    return conv(op, x, weight, bias, stride, padding, dilation, groups)


# Unfold and fold


def _windows(op: Builder, size: Size, kernel: int, dilation: int, padding: int, stride: int) -> tuple[ir.Value, Size]:
    """For each offset in a window (rows) and each window (columns), the position in the padded axis; and how many."""
    span = sizes.add(op, size, 2 * padding - dilation * (kernel - 1) - 1)
    count = sizes.add(op, sizes.divide(op, span, stride), 1)
    offsets = np.arange(kernel, dtype=np.int64).reshape(-1, 1) * dilation
    starts = op.Mul(op.Range(0, op.scalar(count), 1), stride)
    return op.Add(starts, offsets), count


@lower("aten.im2col")
def im2col(op: Builder, x: ir.Value, kernel_size: Ints, dilation: Ints, padding: Ints, stride: Ints) -> ir.Value:
    """Unfold: gather the rows of every window, then the columns."""
    kernel, step = spread(kernel_size, 2), spread(stride, 2)
    spacing, pads = spread(dilation, 2), spread(padding, 2)
    x, single = batched(op, x, 4)
    batch, channels, height, width = op.sizes(x)
    rows, high = _windows(op, height, kernel[0], spacing[0], pads[0], step[0])
    columns, wide = _windows(op, width, kernel[1], spacing[1], pads[1], step[1])
    if any(pads):
        x = op.Pad(x, [0, 0, *pads, 0, 0, *pads])
    y = op.Gather(op.Gather(x, rows, axis=2), columns, axis=4)  # N, C, kernel rows, windows, kernel columns, windows
    y = op.Transpose(y, perm=[0, 1, 2, 4, 3, 5])
    y = op.reshape(y, [batch, op.product([channels, *kernel]), op.product([high, wide])])
    return op.Squeeze(y, [0]) if single else y


@lower("aten.col2im")
def col2im(
    op: Builder,
    x: ir.Value,
    output_size: Sequence[Size],
    kernel_size: Ints,
    dilation: Ints,
    padding: Ints,
    stride: Ints,
) -> ir.Value:
    if x.dtype in (T.DOUBLE, T.BFLOAT16):
        x = op.cast(x, T.FLOAT)  # ONNX Runtime's only kernel
    x, single = batched(op, x, 3)
    y = op.Col2Im(
        x,
        op.vector(output_size),
        spread(kernel_size, 2),
        dilations=spread(dilation, 2),
        pads=spread(padding, 2) * 2,
        strides=spread(stride, 2),
    )
    return op.Squeeze(y, [0]) if single else y
