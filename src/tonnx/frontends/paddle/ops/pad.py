"""Padding."""

from __future__ import annotations

import onnx_ir as ir

from tonnx.frontends.paddle.lower.rules import Ints, Number, Sizes, Value, lower
from tonnx.ir.build import Builder
from tonnx.lowering.ops import pad as like_torch


@lower("pad3d", rows_first=False, layout="data_format")
@lower("pad2d", rows_first=True, layout="data_format")
def pad_spatial(
    op: Builder, x: Value, paddings: Sizes, *, mode: str = "constant", pad_value: float = 0.0, rows_first: bool
) -> ir.Value:
    """Pairs from the last axis to the first, as torch has them; or top, bottom, left, right (``rows_first``)."""
    pairs = [*paddings[2:], *paddings[:2]] if rows_first else list(paddings)
    mode = "replicate" if mode == "edge" else mode
    return like_torch.pad(op, x, pairs, mode, pad_value if mode == "constant" else None)


@lower("pad")
def pad(op: Builder, x: Value, pad_value: Number = 0.0, *, paddings: Ints) -> ir.Value:
    """A pair for each axis, the first axis first."""
    fill = pad_value if isinstance(pad_value, ir.Value) else op.constant(pad_value, x.dtype)
    return op.Pad(x, [*paddings[::2], *paddings[1::2]], op.cast(fill, x.dtype))
