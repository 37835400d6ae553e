"""The spatial sizes that convolution and pooling leave, where they follow from what is known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import onnx_ir as ir

from tonnx.ir.infer.dims import Dim


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
