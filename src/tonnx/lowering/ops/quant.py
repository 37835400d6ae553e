"""Quantisation: QuantizeLinear and DequantizeLinear, which stay in the graph for runtimes that compute in integers.

PyTorch rounds ``x · (1 / scale) + zero_point`` where ONNX rounds ``x / scale``: they can differ by one step where a
value lies exactly between two.
"""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from tonnx.errors import UnsupportedArgument
from tonnx.ir import facts
from tonnx.ir.build import Builder, T
from tonnx.ir.infer import as_constant
from tonnx.lowering.rules import lower
from tonnx.lowering.values import Operand

_INT32 = (-(2**31), 2**31 - 1)
_RANGES = {T.UINT8: (0, 255), T.INT8: (-128, 127), T.UINT16: (0, 65535), T.INT16: (-32768, 32767)}


def _kind(low: int, high: int) -> ir.DataType | None:
    """The smallest type that holds a range; None: QuantizeLinear gives none that does."""
    return next((dtype for dtype, (least, most) in _RANGES.items() if least <= low and high <= most), None)


def _number(op: Builder, x: Operand, dtype: ir.DataType) -> ir.Value:
    """A scale or zero point: of rank 0, or one for each channel."""
    value = op.cast(x, dtype) if isinstance(x, ir.Value) else op.constant(x, dtype)
    if op.rank(value) == 1 and value.shape is not None and value.shape[0] == 1:
        return op.Reshape(value, op.constant([], T.INT64), _shape=[])
    return value


def _quantise(
    op: Builder, x: ir.Value, scale: Operand, zero: Operand, low: int, high: int, dtype: ir.DataType, axis: int = 1
) -> ir.Value:
    """``clamp(round(x / scale) + zero, low, high)`` as ``dtype``."""
    x = op.cast(x, T.FLOAT)
    if dtype not in _RANGES:
        steps = op.Round(op.Div(x, _spread(op, x, _number(op, scale, T.FLOAT), axis)))
        moved = op.Add(steps, _spread(op, x, _number(op, zero, T.FLOAT), axis))
        return op.cast(op.Clip(moved, float(low), float(high)), dtype)
    per_channel = {"axis": axis} if op.rank(_number(op, scale, T.FLOAT)) else {}
    integers = op.QuantizeLinear(x, _number(op, scale, T.FLOAT), _number(op, zero, dtype), **per_channel)
    least, most = _RANGES[dtype]
    if low > least or high < most:
        integers = op.Clip(integers, op.constant(max(low, least), dtype), op.constant(min(high, most), dtype))
    return integers


def _spread(op: Builder, x: ir.Value, parameter: ir.Value, axis: int) -> ir.Value:
    """One number for each channel, shaped to meet the channels."""
    if not op.rank(parameter):
        return parameter
    return op.Reshape(parameter, [-1] + [1] * (op.rank(x) - 1 - axis % op.rank(x)))


def _dequantise(op: Builder, x: ir.Value, scale: Operand, zero: Operand, axis: int = 1) -> ir.Value:
    """``(x - zero) · scale``."""
    factor = _number(op, scale, T.FLOAT)
    if x.dtype not in _RANGES:
        shifted = op.Sub(op.cast(x, T.FLOAT), _spread(op, x, _number(op, zero, T.FLOAT), axis))
        return op.Mul(shifted, _spread(op, x, factor, axis))
    per_channel = {"axis": axis} if op.rank(factor) else {}
    return op.DequantizeLinear(x, factor, _number(op, zero, x.dtype), **per_channel)


# Fake quantisation: there and back

q_scale = lower("aten.q_scale")(lambda op, x: as_constant(step_of(x).scale))
q_zero_point = lower("aten.q_zero_point")(lambda op, x: as_constant(step_of(x).zero))


@lower("aten.fake_quantize_per_tensor_affine", "aten.fake_quantize_per_channel_affine")
@lower("aten._fake_quantize_learnable_per_tensor_affine", unused="grad_factor")
@lower("aten._fake_quantize_learnable_per_channel_affine", unused="grad_factor")
def fake_quantize(
    op: Builder, x: ir.Value, scale: Operand, zero_point: Operand, quant_min: int, quant_max: int, axis: int = 1
) -> ir.Value:
    if isinstance(zero_point, ir.Value) and zero_point.dtype not in (T.INT32, T.INT64):  # learnt: any number near it
        zero_point = op.Clip(op.Round(zero_point), float(quant_min), float(quant_max))
    kind = _kind(quant_min, quant_max)
    if kind is None:
        raise UnsupportedArgument(f"fake quantisation to the range {quant_min} to {quant_max} has no type in ONNX")
    integers = _quantise(op, x, scale, zero_point, quant_min, quant_max, kind, axis)
    return _dequantise(op, integers, scale, zero_point, axis)


@lower("tonnx.fake_quantise")
def fake_quantise(
    op: Builder, x: ir.Value, scale: ir.Value, zero_point: ir.Value, low: int, high: int, axis: int, half_up: bool
) -> ir.Value:
    """As `tonnx.quant.prepare` has it. QuantizeLinear rounds halves to even: what goes up is rounded before it."""
    if half_up:
        step = _spread(op, x, _number(op, scale, T.FLOAT), axis)
        x = op.Mul(op.Floor(op.Add(op.Div(x, step), 0.5)), step)
    return fake_quantize(op, x, scale, zero_point, low, high, axis)


@lower("tonnx.fake_quantise_bias")
def fake_quantise_bias(op: Builder, x: ir.Value, input_scale: ir.Value, weight_scale: ir.Value) -> ir.Value:
    """32 bits, in steps of input times weight: what runtimes want of a bias beside integer kernels."""
    scale = op.Mul(_number(op, input_scale, T.FLOAT), _number(op, weight_scale, T.FLOAT))
    steps = op.Clip(op.Round(op.Div(x, scale)), float(_INT32[0]), float(_INT32[1] - 127))
    axis = {"axis": 0} if op.rank(scale) else {}
    return op.DequantizeLinear(op.cast(steps, T.INT32), scale, **axis)


# Quantised tensors stand for the real numbers that their integers mean: so does PyTorch treat them, and so do the
# values here, which know their step and keep the integers beside them.


@dataclass(frozen=True)
class Step:
    """How a quantised tensor is quantised: by one step, or by one for each index of ``axis``."""

    scale: Operand
    zero: Operand
    dtype: ir.DataType
    axis: int | None = None

    @property
    def low(self) -> int:
        return _RANGES.get(self.dtype, _INT32)[0]

    @property
    def high(self) -> int:
        return _RANGES.get(self.dtype, _INT32)[1]

    def moved(self, scale: Operand, zero: Operand) -> Step:
        """Another step of integers of the same type."""
        return Step(scale, zero, self.dtype)

    def mark(self, x: ir.Value) -> None:
        """Say that a value is quantised in this way."""
        facts.STEP[x] = self


def quantised(x: ir.Value) -> Step | None:
    """How a value is quantised; None if it is not."""
    step: Step | None = facts.STEP.get(x)
    return step


def step_of(x: ir.Value) -> Step:
    step = quantised(x)
    if step is None:
        raise UnsupportedArgument(
            "an operator for quantised tensors gets one whose scale is not known here",
            hint="quantise it on the same path: not on one side of a branch, nor outside of a loop",
        )
    return step


def to_step(op: Builder, x: ir.Value, step: Step) -> ir.Value:
    """Reals as a quantised tensor."""
    axis = 1 if step.axis is None else step.axis
    integers = _quantise(op, x, step.scale, step.zero, step.low, step.high, step.dtype, axis)
    real = _dequantise(op, integers, step.scale, step.zero, axis)
    facts.INTEGERS[real] = integers
    step.mark(real)
    return real


@lower("aten.quantize_per_tensor")
def quantize_per_tensor(op: Builder, x: ir.Value, scale: Operand, zero_point: Operand, dtype: ir.DataType) -> ir.Value:
    return to_step(op, x, Step(scale, zero_point, dtype))


@lower("aten.quantize_per_channel")
def quantize_per_channel(
    op: Builder, x: ir.Value, scales: ir.Value, zero_points: ir.Value, axis: int, dtype: ir.DataType
) -> ir.Value:
    return to_step(op, x, Step(scales, zero_points, dtype, axis % op.rank(x)))


@lower("aten.dequantize.self", "aten.dequantize.tensor")
def dequantize(op: Builder, x: ir.Value) -> ir.Value:
    return op.Identity(x) if quantised(x) is not None else x  # the same numbers, and no longer a quantised tensor


@lower("aten.int_repr")
def int_repr(op: Builder, x: ir.Value) -> ir.Value:
    if x not in facts.INTEGERS:
        raise UnsupportedArgument("int_repr of a quantised tensor that something was done to is not supported")
    return op.Identity(facts.INTEGERS[x])


# Programs quantised by export (pt2e)


_BY_CHANNEL = "scales=scale zero_points=zero_point"


@lower("quantized_decomposed.quantize_per_tensor", "quantized_decomposed.quantize_per_channel", renamed=_BY_CHANNEL)
def decomposed_quantize(
    op: Builder,
    x: ir.Value,
    quant_min: int,
    quant_max: int,
    dtype: ir.DataType,
    scale: Operand,
    zero_point: Operand | None = None,
    axis: int = 1,
) -> ir.Value:
    zero = 0 if zero_point is None else zero_point
    return _quantise(op, x, scale, zero, _fixed(quant_min), _fixed(quant_max), dtype, axis)


_OF_INTEGERS = "quant_min quant_max dtype out_dtype"


@lower("quantized_decomposed.dequantize_per_tensor", unused=_OF_INTEGERS)
@lower("quantized_decomposed.dequantize_per_channel", unused=_OF_INTEGERS, renamed=_BY_CHANNEL)
def decomposed_dequantize(
    op: Builder, x: ir.Value, scale: Operand, zero_point: Operand | None = None, axis: int = 1
) -> ir.Value:
    return _dequantise(op, x, scale, 0 if zero_point is None else zero_point, axis)


@lower("quantized_decomposed.choose_qparams", unused="dtype")
def choose_qparams(op: Builder, x: ir.Value, quant_min: int, quant_max: int, eps: float) -> tuple[ir.Value, ir.Value]:
    """A scale that spans the values and 0, and where 0 comes to lie."""
    zero = op.constant(0.0, T.FLOAT)
    x = op.cast(x, T.FLOAT)
    low, high = op.Min(op.ReduceMin(x, keepdims=0), zero), op.Max(op.ReduceMax(x, keepdims=0), zero)
    scale = op.Max(op.Div(op.Sub(high, low), float(quant_max - quant_min)), op.constant(eps, T.FLOAT))
    place = op.Clip(op.Sub(float(quant_min), op.Round(op.Div(low, scale))), float(quant_min), float(quant_max))
    return op.Reshape(op.cast(scale, T.DOUBLE), [1]), op.Reshape(op.cast(place, T.INT64), [1])


def _fixed(bound: Operand) -> int:
    bound = as_constant(bound)
    if not isinstance(bound, ir.Value):
        return int(bound)  # type: ignore[arg-type]
    raise UnsupportedArgument("quantisation to a range that is known only at run time")


@lower("aten._weight_int4pack_mm_for_cpu")
def weight_int4pack_mm(op: Builder, x: ir.Value, mat2: ir.Value, qGroupSize: int, qScaleAndZeros: ir.Value) -> ir.Value:
    """x · (integers · scale + zero), each pair for so many rows; ``mat2`` are the integers in order.

    A zero is a real number: it is multiplied by the sums of the rows that it is for, and no weight is made of floats.
    PyTorch adds up in float32.
    """
    if mat2.dtype != T.INT4:
        raise UnsupportedArgument("a product with weights of 4 bits in the order of some processor's kernel")
    wide = op.cast(x, T.FLOAT)
    scale, zero = (op.Gather(op.cast(qScaleAndZeros, T.FLOAT), index, axis=2) for index in (0, 1))
    product = op.MatMul(wide, op.DequantizeLinear(mat2, scale, axis=0, block_size=qGroupSize))
    sums = op.ReduceSum(op.reshape(wide, [op.size(x, 0), -1, qGroupSize]), [2], keepdims=0)
    return op.cast(op.Add(product, op.MatMul(sums, zero)), x.dtype)
