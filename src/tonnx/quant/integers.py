"""Floats as integers with a scale, and back. Blocks of numbers along one axis share a scale and a zero point."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import ml_dtypes
import numpy as np
import onnx_ir as ir

from tonnx.ir.pairs import PAIR, pair_sums

_DTYPES = {(4, True): ml_dtypes.int4, (4, False): ml_dtypes.uint4, (8, True): np.int8, (8, False): np.uint8}
_NARROWER = np.linspace(1.0, 0.7, 7)
"""Parts of the largest magnitude that are tried as the end of the range: a few clipped numbers may cost less than
coarser steps for all."""


@dataclass(frozen=True)
class Form:
    """How weights are stored."""

    bits: int = 8
    block: int = 32
    """How many numbers share a scale; 0: all along the axis."""
    symmetric: bool = True
    """Without a zero point."""
    paired: bool = False
    """No pair of products is cut off on any processor; see `tonnx.ir.pairs`. Of symmetric 8 bits by channel."""

    @property
    def dtype(self) -> ir.DataType:
        return ir.DataType.from_numpy(np.dtype(_DTYPES[self.bits, self.symmetric]))

    @property
    def limits(self) -> tuple[int, int]:
        count = 1 << self.bits
        return (-count // 2, count // 2 - 1) if self.symmetric else (0, count - 1)


@dataclass(frozen=True)
class Stored:
    """A tensor as integers."""

    integers: np.ndarray
    scale: np.ndarray
    """Its size along ``axis`` is the number of blocks."""
    zero_point: np.ndarray | None
    axis: int
    block: int
    """0: one scale for each slice along ``axis``, which has only that axis."""

    def floats(self) -> np.ndarray:
        """What DequantizeLinear makes of it, to the bit: computed in the dtype of the scale."""
        numbers = self.integers.astype(np.int32)
        if self.zero_point is not None:
            numbers = numbers - self._spread(self.zero_point.astype(np.int32))
        return np.asarray(numbers.astype(self.scale.dtype) * self._spread(self.scale))

    def by_number(self) -> tuple[np.ndarray, np.ndarray]:
        """The scale and the zero point of each of the integers, as float32."""
        scale = self._spread(self.scale).astype(np.float32)
        if self.zero_point is None:
            return np.broadcast_to(scale, self.integers.shape), np.zeros(self.integers.shape, np.float32)
        points = self._spread(self.zero_point.astype(np.float32))
        return np.broadcast_to(scale, self.integers.shape), np.broadcast_to(points, self.integers.shape)

    def _spread(self, by_block: np.ndarray) -> np.ndarray:
        if not self.block:
            return by_block.reshape([-1 if i == self.axis else 1 for i in range(self.integers.ndim)])
        whole = np.repeat(by_block, self.block, axis=self.axis)
        return np.take(whole, range(self.integers.shape[self.axis]), axis=self.axis)

    @property
    def nbytes(self) -> int:
        bits = 4 if self.integers.dtype in (ml_dtypes.int4, ml_dtypes.uint4) else 8
        points = 0 if self.zero_point is None else self.zero_point.size
        return self.scale.nbytes + (self.integers.size * bits + 7) // 8 + (points * bits + 7) // 8


def in_blocks(array: np.ndarray, axis: int, form: Form, importance: np.ndarray | None = None) -> Stored:
    """Blocks of ``form.block`` numbers along an axis; the last may be shorter. All along it if there is one block.

    ``importance``: of the square errors at each index of the axis, where they do not count alike.
    """
    length = array.shape[axis]
    block = min(form.block or length, length)
    count = -(-length // block)
    rows = np.moveaxis(array, axis, -1)
    padded = np.zeros((*rows.shape[:-1], count * block), np.float32)
    padded[..., :length] = rows
    blocks = padded.reshape(*rows.shape[:-1], count, block)
    weights = None
    if importance is not None:
        weights = np.zeros(count * block, np.float32)
        weights[:length] = importance
        weights = weights.reshape(count, block)
    integers, scale, zero_point = _rounded(blocks, form, array.dtype, importance=weights)
    whole = integers.reshape(padded.shape)[..., :length]
    points = None if zero_point is None else np.moveaxis(zero_point, -1, axis)
    return Stored(np.moveaxis(whole, -1, axis), np.moveaxis(scale, -1, axis), points, axis, block)


def by_channel(array: np.ndarray, axis: int, form: Form) -> Stored:
    """One scale for each slice along an axis."""
    rows = np.moveaxis(array, axis, 0)
    blocks = rows.reshape(len(rows), -1).astype(np.float32)
    least = pair_sums(rows) / (PAIR - 1) if form.paired else None  # rounding may add a half to each of the two
    integers, scale, zero_point = _rounded(blocks, form, array.dtype, least)
    return Stored(np.moveaxis(integers.reshape(rows.shape), 0, axis), scale, zero_point, axis, 0)


def _rounded(
    blocks: np.ndarray,
    form: Form,
    dtype: np.dtype,
    least_scale: np.ndarray | None = None,
    importance: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """The blocks are along the last axis. The range is the one with the least square error of those that are tried."""
    rows = blocks.reshape(-1, blocks.shape[-1])
    weights = None if importance is None else np.broadcast_to(importance, blocks.shape).reshape(rows.shape)
    integers, least = np.zeros_like(rows), np.full(len(rows), np.inf, np.float32)
    scales, zeros, tried = np.ones(len(rows), dtype), np.zeros(len(rows), np.float32), np.zeros(len(rows), dtype)
    low, high = form.limits
    for scale, zero_point in _ranges(rows, form, dtype):
        if least_scale is not None:
            scale = np.maximum(scale, least_scale).astype(dtype)
        new = np.flatnonzero(scale != tried)  # the others may be no narrower than they were tried before
        tried, step, zero = scale, scale[new, None].astype(np.float32), zero_point[new, None]
        steps = np.clip(np.rint(rows[new] / step) + zero, low, high)
        error = (steps - zero) * step - rows[new]
        squares = np.einsum("ij,ij->i", error, error if weights is None else error * weights[new])
        better = squares < least[new]
        taken = new[better]
        least[taken], integers[taken], scales[taken] = squares[better], steps[better], scale[taken]
        zeros[taken] = zero_point[taken]
    shape, kind = blocks.shape[:-1], _DTYPES[form.bits, form.symmetric]
    points = None if form.symmetric else zeros.astype(kind).reshape(shape)
    return integers.astype(kind).reshape(blocks.shape), scales.reshape(shape), points


def _ranges(blocks: np.ndarray, form: Form, dtype: np.dtype) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Scales in the dtype in which they will be stored, and zero points. Zero is always one of the numbers."""
    low, high = np.minimum(blocks.min(-1), 0), np.maximum(blocks.max(-1), 0)
    bottom, top = form.limits
    for part in _NARROWER:
        span = part * (np.maximum(-low, high) / top if form.symmetric else (high - low) / (top - bottom))
        scale = np.where(span > 0, span, 1).astype(dtype)
        # A scale that is too small for its dtype would be zero.
        scale = np.where(scale > 0, scale, np.finfo(dtype).tiny).astype(dtype)
        zero = np.zeros_like(low) if form.symmetric else np.clip(np.rint(-low * part / scale), bottom, top)
        yield scale, zero.astype(np.float32)
