"""Pooling: fixed windows, adaptive windows, and one window for all."""

from __future__ import annotations

import math
from collections.abc import Sequence

import onnx_ir as ir

from tonnx.build import Builder, Size
from tonnx.errors import UnsupportedArgument
from tonnx.frontends.paddle.fit import channels_back, channels_first
from tonnx.frontends.paddle.ops.conv import EXPLICIT, windows
from tonnx.frontends.paddle.rules import Ints, Sizes, Value, lower
from tonnx.frontends.torch.ops import pool as like_torch


@lower("pool2d", "pool3d")
def pool(
    op: Builder,
    x: Value,
    kernel_size: Sizes,
    *,
    strides: Ints = (1, 1),
    paddings: Ints = (0, 0),
    ceil_mode: bool = False,
    exclusive: bool = True,
    data_format: str = "NCHW",
    pooling_type: str = "max",
    global_pooling: bool = False,
    adaptive: bool = False,
    padding_algorithm: str = EXPLICIT,
) -> ir.Value:
    x = channels_first(op, x, data_format)
    axes = op.rank(x) - 2
    if global_pooling or (adaptive and _all_one(kernel_size)):
        y = op.GlobalMaxPool(x) if pooling_type == "max" else op.GlobalAveragePool(x)
    elif adaptive:
        y = _adaptive(op, x, kernel_size, pooling_type)
    else:
        kernel = _fixed(kernel_size, axes)
        steps = _fixed(strides, axes)
        padded = windows(op, x, kernel, steps, paddings, padding_algorithm)
        y = _pooled(op, x, kernel, steps, padded, pooling_type, ceil_mode, exclusive)
    return channels_back(op, y, data_format)


def _all_one(sizes: Sizes) -> bool:
    return all(isinstance(size, int) and size == 1 for size in sizes)


def _fixed(sizes: Sizes, axes: int) -> list[int]:
    fixed = [size for size in sizes if isinstance(size, int)]
    if len(fixed) < len(sizes):
        raise UnsupportedArgument("a pooling window whose size is known only at run time")
    return fixed * axes if len(fixed) == 1 else fixed


def _adaptive(op: Builder, x: ir.Value, output_size: Sizes, pooling_type: str) -> ir.Value:
    axes = op.rank(x) - 2
    given = list(output_size) * axes if len(output_size) == 1 else list(output_size)
    # -1 is None in the API: the size stays.
    wanted: list[Size] = [op.size(x, i + 2) if isinstance(s, int) and s < 0 else s for i, s in enumerate(given)]
    if pooling_type == "max":
        return like_torch.adaptive_max_pool(op, x, wanted)[0]
    return like_torch.adaptive_avg_pool(op, x, wanted)


def _pooled(
    op: Builder,
    x: ir.Value,
    kernel: Sequence[int],
    strides: Sequence[int],
    padded: dict[str, object],
    pooling_type: str,
    ceil_mode: bool,
    exclusive: bool,
) -> ir.Value:
    up = ceil_mode and _rounds_up(op, x, kernel, strides, padded)
    attributes = {"kernel_shape": kernel, "strides": strides, "ceil_mode": 1 if up else None}
    if pooling_type == "max":
        return op.MaxPool(x, **attributes, **padded)
    pads = padded.get("pads")
    counts = not exclusive and not (isinstance(pads, list) and not any(pads))
    return op.AveragePool(x, **attributes, **padded, count_include_pad=1 if counts else None)


def _rounds_up(
    op: Builder, x: ir.Value, kernel: Sequence[int], strides: Sequence[int], padded: dict[str, object]
) -> bool:
    """Whether ceil_mode makes a difference; on most fixed sizes it does not, and then it is left out."""
    pads = padded.get("pads")
    if not isinstance(pads, list):
        return False  # SAME rounds up by itself
    axes, differs = len(kernel), False
    for i, (k, s) in enumerate(zip(kernel, strides, strict=True)):
        size = op.size(x, i + 2)
        if s == 1:
            continue
        if not isinstance(size, int):
            differs = True
            continue
        span = size + pads[i] + pads[axes + i] - k
        differs = differs or bool(span % s)
        if math.ceil(span / s) * s >= size + pads[i]:
            raise UnsupportedArgument(
                "pooling with ceil_mode whose last window lies in the padding alone",
                why="Paddle gives the smallest float there, ONNX leaves the window out",
            )
    return differs


@lower("unpool", "unpool3d")
def unpool(
    op: Builder,
    x: Value,
    indices: Value,
    output_size: Sizes = (),
    *,
    ksize: Ints = (),
    strides: Ints = (),
    padding: Ints = (),
    data_format: str = "NCHW",
    unpooling_type: str = "max",
) -> ir.Value:
    wanted = list(output_size)
    for axis, size in enumerate(wanted):
        if isinstance(size, int) and size < 0:  # Paddle has computed with an unknown size as if it were -1
            given, step = op.size(x, axis - len(wanted)), strides[axis]
            more = ksize[axis] - 2 * (padding[axis] if padding else 0) - step
            wanted[axis] = given * step + more if isinstance(given, int) else op.Add(op.Mul(given, step), more)
    return like_torch.max_unpool(op, x, op.cast(indices, ir.DataType.INT64), wanted)


@lower("max_pool2d_with_index", "max_pool3d_with_index")
def max_pool_with_index(
    op: Builder,
    x: Value,
    *,
    kernel_size: Ints,
    strides: Ints = (1, 1),
    paddings: Ints = (0, 0),
    global_pooling: bool = False,
    adaptive: bool = False,
    ceil_mode: bool = False,
) -> tuple[ir.Value, ir.Value]:
    axes = op.rank(x) - 2
    if adaptive or global_pooling:
        return like_torch.adaptive_max_pool(op, x, [1] * axes if global_pooling else list(kernel_size))
    values, places = op.MaxPool(
        x,
        kernel_shape=list(kernel_size),
        strides=list(strides),
        pads=list(paddings) * 2,
        ceil_mode=1 if ceil_mode else None,
        _outputs=2,
    )
    # ONNX counts through batch and channels, Paddle within one plane.
    return values, op.Mod(places, op.product(op.sizes(x)[2:]))
