"""Pooling whose windows divide the data by a fraction: where each begins follows from one number that was drawn."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np
import onnx_ir as ir

from tonnx.errors import UnsupportedArgument
from tonnx.frontends.paddle.lower.rules import Ints, Value, lower
from tonnx.ir.build import Builder

T = ir.DataType


@lower("fractional_max_pool2d", "fractional_max_pool3d", unused="return_mask")
def fractional_max_pool(
    op: Builder, x: Value, *, output_size: Ints, kernel_size: Ints = (), random_u: float = 0.0
) -> tuple[ir.Value, ir.Value]:
    """The largest of each window, and where in its plane it lies."""
    axes = len(output_size)
    spatial = op.sizes(x)[-axes:]
    fixed = [size for size in spatial if isinstance(size, int)]
    if len(fixed) < axes:
        raise UnsupportedArgument("a fractional pooling of a size known only at run time", hint="fix it: input_shapes")
    if random_u == 0:
        raise UnsupportedArgument("a fractional pooling that draws its windows anew", hint="give random_u")
    output = [size if asked < 0 else asked for size, asked in zip(fixed, output_size, strict=True)]
    kernel = list(kernel_size) or [0] * axes
    bounds = [_bounds(*each, random_u) for each in zip(fixed, output, kernel, strict=True)]
    table = _members(bounds, fixed)
    flat = op.reshape(x, [*op.sizes(x)[:2], int(np.prod(fixed))])
    members = op.Gather(flat, table, axis=2)
    shape = [*op.sizes(x)[:2], *output]
    values = op.ReduceMax(members, [3], keepdims=0)
    rows = np.arange(len(table)) * table.shape[1]
    places = op.Gather(table.reshape(-1), op.Add(op.ArgMax(members, axis=3, keepdims=0), rows), axis=0)
    return op.reshape(values, shape), op.cast(op.reshape(places, shape), T.INT32)


def _bounds(size: int, output: int, kernel: int, drawn: float) -> list[tuple[int, int]]:
    """Begin and end of each window of an axis, in the single precision that Paddle computes them with."""
    single = np.float32
    step = single(size - kernel) / single(output - (1 if kernel > 0 else 0))
    shift = single(drawn)
    if kernel <= 0:
        base = size // output
        most = min(single(base + 2) / step - single(1), single(size + 1 - base) / step - single(output - 1))
        shift = shift * most
    origin = int(shift * step)
    begins = [int((single(i) + shift) * step) - origin for i in range(output + 1)]
    ends = [begin + kernel for begin in begins[:-1]] if kernel > 0 else begins[1:]
    return [(max(begin, 0), min(end, size)) for begin, end in zip(begins[:-1], ends, strict=True)]


def _members(bounds: Sequence[Sequence[tuple[int, int]]], sizes: Sequence[int]) -> np.ndarray:
    """For each window the places in its plane; shorter ones repeat their last, which changes no maximum."""
    windows = []
    for window in product(*bounds):
        places = [int(np.ravel_multi_index(at, tuple(sizes))) for at in product(*(range(*edge) for edge in window))]
        windows.append(places)
    longest = max(map(len, windows))
    return np.array([places + places[-1:] * (longest - len(places)) for places in windows], np.int64)
