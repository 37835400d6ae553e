"""Quantisation. Paddle's scale is the largest magnitude; ONNX's is the size of a step: scale / (2^(bits - 1) - 1)."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from tonnx.errors import UnsupportedArgument
from tonnx.frontends.paddle.lower.rules import Ints, Value, Values, direct, lower
from tonnx.ir import facts
from tonnx.ir.build import Builder, T
from tonnx.ir.infer import constant


def _largest(bits: int) -> float:
    return float((1 << (bits - 1)) - 1)


def _step(op: Builder, scale: ir.Value, bits: int) -> ir.Value:
    """What one step is worth, of rank 0 or (channels,)."""
    if op.rank(scale) > 1:
        scale = op.Reshape(scale, [-1])
    if op.rank(scale) and op.size(scale, 0) == 1:
        scale = op.Reshape(scale, op.constant([], T.INT64))
    numbers = constant(scale)
    if numbers is not None:
        return op.constant((numbers.astype(np.float64) / _largest(bits)).astype(numbers.dtype))
    return op.Div(scale, _largest(bits))


def _axis(op: Builder, x: ir.Value, step: ir.Value, axis: int) -> int | None:
    return axis % max(op.rank(x), 1) if op.rank(step) else None


def _zero(op: Builder, zero_point: ir.Value | None, step: ir.Value, dtype: ir.DataType = T.INT8) -> ir.Value:
    """The zero point as ONNX wants it: of the type of the integers and the shape of the steps."""
    numbers = constant(zero_point) if zero_point is not None else np.zeros(1)
    if numbers is None:
        raise UnsupportedArgument("quantisation with a zero point that is known only at run time")
    shape = [d for d in step.shape.dims if isinstance(d, int)] if step.shape is not None else []
    return op.constant(np.broadcast_to(numbers.reshape(-1) if shape else numbers.reshape(-1)[0], shape), dtype)


def quantized(op: Builder, x: ir.Value, step: ir.Value, zero_point: ir.Value | None, axis: int, bits: int) -> ir.Value:
    """Integers, as the floats that Paddle has in their place."""
    if bits > 8:
        return _rounded(op, x, step, axis, bits)
    at = _axis(op, x, step, axis)
    if bits < 8:  # int8 holds more than these bits do
        wide = _along(op, x, step, axis)
        x = op.Max(op.Min(x, op.Mul(wide, _largest(bits))), op.Mul(wide, -_largest(bits) - 1))
    whole = op.QuantizeLinear(x, step, _zero(op, zero_point, step), axis=at)
    floats = op.cast(whole, x.dtype or T.FLOAT)
    facts.PADDLE_INTEGERS[floats] = whole
    return floats


def _rounded(op: Builder, x: ir.Value, step: ir.Value, axis: int, bits: int) -> ir.Value:
    whole = op.Round(op.Div(x, _along(op, x, step, axis)))
    return op.Clip(whole, -_largest(bits) - 1, _largest(bits))


def _along(op: Builder, x: ir.Value, step: ir.Value, axis: int) -> ir.Value:
    """Steps of channels, so that they broadcast."""
    if not op.rank(step):
        return step
    return op.Unsqueeze(step, list(range(1, op.rank(x) - axis % op.rank(x))))


def dequantized(op: Builder, x: ir.Value, step: ir.Value, zero_point: ir.Value | None, axis: int) -> ir.Value:
    whole = x if x.dtype in (T.INT8, T.UINT8) else facts.PADDLE_INTEGERS.get(x) or _stored(op, x)
    if whole is None:
        if zero_point is not None and (numbers := constant(zero_point)) is not None and numbers.any():
            x = op.Sub(x, op.cast(zero_point, x.dtype))
        return op.Mul(x if x.dtype == step.dtype else op.cast(x, step.dtype), _along(op, x, step, axis))
    zero = _zero(op, zero_point, step, whole.dtype or T.INT8)
    reals = op.DequantizeLinear(whole, step, zero, axis=_axis(op, x, step, axis))
    if reals.dtype is None and step.dtype is not None:
        reals.type = ir.TensorType(step.dtype)  # newer versions could give another; without being asked they do not
    return reals  # type: ignore[no-any-return]


def _stored(op: Builder, x: ir.Value) -> ir.Value | None:
    """A weight that is stored as floats but holds int8."""
    numbers = constant(x)
    if numbers is None or numbers.size == 0 or not np.issubdtype(numbers.dtype, np.floating):
        return None
    whole = numbers.astype(np.int8)
    return op.constant(whole) if np.array_equal(whole.astype(numbers.dtype), numbers) else None


# As post-training quantisation writes it


@lower("quantize_linear", unused="round_type moving_rate")
@lower("dequantize_linear", back=True, unused="round_type moving_rate")
def quantize_linear(
    op: Builder,
    x: Value,
    scale: Value,
    zero_point: Value | None = None,
    in_accum: Value | None = None,
    in_state: Value | None = None,
    *,
    quant_axis: int = 0,
    bit_length: int = 8,
    qmin: int = -128,
    qmax: int = 127,
    is_test: bool = True,
    only_observer: bool = False,
    back: bool = False,
) -> ir.Value:
    if not back:
        _only_inference("quantize_linear", is_test)
    if only_observer:
        return x
    step = _step(op, scale, _bits(qmin, qmax, bit_length))
    if back:
        return dequantized(op, x, step, zero_point, quant_axis)
    return quantized(op, x, step, zero_point, quant_axis, bit_length)


def _bits(qmin: int, qmax: int, bits: int) -> int:
    if (qmin, qmax) not in ((0, 0), (-128, 127), (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)):
        raise UnsupportedArgument(f"quantisation to {qmin} … {qmax}: only signed integers of {bits} bits are supported")
    return bits


def _only_inference(name: str, is_test: bool) -> None:
    if not is_test:
        raise UnsupportedArgument(
            f"{name} in training collects its scale from the data", hint="call layer.eval() before the model is saved"
        )


# As quantisation-aware training writes it

# This one only watches; the scale that it has watched is in the program elsewhere.
direct(
    "moving_average_abs_max_scale(x, in_accum=None, in_state=None)",
    lambda op, x, accum, state: x,
    unused="moving_rate is_test",
)
direct(
    "fake_dequantize_max_abs(x, scale, *, max_range: float)",
    lambda op, x, scale, most: op.Div(op.Mul(x, op.Reshape(scale, [1])), most),
)
direct(
    "dequantize_abs_max(x, scale, *, max_range: float)",
    lambda op, x, scale, most: op.Div(op.Mul(op.cast(x, T.FLOAT), scale), most),
)

_TRAINING = "iter moving_rate window_size round_type"


def _measured(op: Builder, x: ir.Value, axis: int | None = None) -> ir.Value:
    """The largest magnitude, of all or of each channel."""
    axes = [i for i in range(op.rank(x)) if i != axis]
    return op.ReduceMax(op.Abs(x), axes, keepdims=0)


def _by_hand(op: Builder, x: ir.Value, scale: ir.Value, axis: int, bits: int, *, back: bool) -> ir.Value:
    """Quantised, and back again if asked, with a scale that is measured at run time and may be zero."""
    wide = _along(op, x, op.Max(scale, 1e-30), axis)
    most = _largest(bits)
    whole = op.Round(op.Mul(op.Div(op.Max(op.Min(x, wide), op.Neg(wide)), wide), most))
    return op.Div(op.Mul(whole, wide), most) if back else whole


@lower("fake_quantize_abs_max", back=False, unused="round_type")
@lower("fake_quantize_dequantize_abs_max", back=True, unused="round_type")
def fake_quantize_abs_max(op: Builder, x: Value, *, bit_length: int = 8, back: bool) -> tuple[ir.Value, ir.Value]:
    scale = _measured(op, x)
    return _by_hand(op, x, scale, 0, bit_length, back=back), op.Reshape(scale, [1])


@lower("fake_channel_wise_quantize_abs_max", back=False, unused="round_type is_test")
@lower("fake_channel_wise_quantize_dequantize_abs_max", back=True, unused="round_type is_test")
def fake_channel_wise_quantize_abs_max(
    op: Builder, x: Value, *, bit_length: int = 8, quant_axis: int = 0, back: bool
) -> tuple[ir.Value, ir.Value]:
    scale = _measured(op, x, quant_axis)
    return _by_hand(op, x, scale, quant_axis, bit_length, back=back), scale


@lower("fake_quantize_range_abs_max", "fake_quantize_moving_average_abs_max", back=False, unused=_TRAINING)
@lower("fake_quantize_dequantize_moving_average_abs_max", back=True, unused=_TRAINING)
def fake_quantize_known(
    op: Builder,
    x: Value,
    in_scale: Value,
    in_accum: Value | None = None,
    in_state: Value | None = None,
    *,
    bit_length: int = 8,
    is_test: bool = False,
    back: bool,
) -> tuple[ir.Value, ir.Value]:
    """Beyond the scale there is nothing: unlike int8, the result never is -128."""
    _only_inference("fake_quantize", is_test)
    step = _step(op, in_scale, bit_length)
    within = op.Max(op.Min(x, in_scale), op.Neg(in_scale))
    whole = quantized(op, within, step, None, 0, bit_length)
    return dequantized(op, whole, step, None, 0) if back else whole, in_scale


@lower("fake_channel_wise_dequantize_max_abs")
def fake_channel_wise_dequantize_max_abs(
    op: Builder, x: Value, scales: Values, *, quant_bits: Ints = (8,), quant_axis: int = 0, x_num_col_dims: int = 1
) -> ir.Value:
    """One scale a channel of the weight, and with a second one that of the activation which met it."""
    if len(scales) == 1:
        return dequantized(op, x, _step(op, scales[0], quant_bits[0]), None, quant_axis)
    scaled = op.Mul(x, _along(op, x, _step(op, scales[0], quant_bits[0]), x_num_col_dims))
    return op.Mul(scaled, _step(op, scales[1], quant_bits[1]))
