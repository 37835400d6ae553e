"""Padding."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from tonnx.frontends.paddle.lower.fit import channels_back, channels_first
from tonnx.frontends.paddle.lower.rules import Ints, Number, Sizes, Value, lower
from tonnx.ir.build import Builder, Size
from tonnx.lowering.ops import pad as like_torch


@lower("pad3d")
def pad3d(
    op: Builder,
    x: Value,
    paddings: Sizes,
    *,
    mode: str = "constant",
    pad_value: float = 0.0,
    data_format: str = "NCDHW",
) -> ir.Value:
    """Pairs from the last axis to the first, as torch has them."""
    x = channels_first(op, x, data_format)
    return channels_back(op, _padded(op, x, list(paddings), mode, pad_value), data_format)


@lower("pad2d")
def pad2d(
    op: Builder,
    x: Value,
    paddings: Sizes,
    *,
    mode: str = "constant",
    pad_value: float = 0.0,
    data_format: str = "NCHW",
) -> ir.Value:
    """Top, bottom, left, right."""
    top, bottom, left, right = paddings
    x = channels_first(op, x, data_format)
    return channels_back(op, _padded(op, x, [left, right, top, bottom], mode, pad_value), data_format)


def _padded(op: Builder, x: ir.Value, pairs: Sequence[Size], mode: str, value: float) -> ir.Value:
    mode = "replicate" if mode == "edge" else mode
    return like_torch.pad(op, x, list(pairs), mode, value if mode == "constant" else None)


@lower("pad")
def pad(op: Builder, x: Value, pad_value: Number = 0.0, *, paddings: Ints) -> ir.Value:
    """A pair for each axis, the first axis first."""
    fill = pad_value if isinstance(pad_value, ir.Value) else op.constant(pad_value, x.dtype)
    return op.Pad(x, [*paddings[::2], *paddings[1::2]], op.cast(fill, x.dtype))  # type: ignore[arg-type]
