"""PyTorch's integer kernels: the layers of ``torch.ao.quantization`` after ``convert``.

A quantised tensor stands for the real numbers that its integers mean (see `quant`). So each kernel is the layer itself
on reals between DequantizeLinear and QuantizeLinear, which runtimes take together to their own integer kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import onnx_ir as ir

from tonnx.errors import UnsupportedArgument
from tonnx.ir.build import Builder, T
from tonnx.ir.infer import as_constant
from tonnx.lowering.ops import activation, math, norm, parts
from tonnx.lowering.ops.conv import conv, conv_transpose
from tonnx.lowering.ops.linear import linear, matmul
from tonnx.lowering.ops.quant import Step, quantised, step_of, to_step
from tonnx.lowering.rules import RULES, Lowering, Rule, lower, rule_for, rule_of
from tonnx.lowering.values import Number, Operand


@dataclass
class Pack:
    """The weights of a layer as values: integers with their steps, or reals (``scale`` is None)."""

    weight: ir.Value
    scale: ir.Value | None
    zero: ir.Value | None
    axis: int
    bias: ir.Value | None
    settings: dict[str, Any]
    cell: list[Pack]

    def real(self, op: Builder) -> ir.Value:
        if self.scale is None:
            return self.weight
        per_channel = {"axis": self.axis} if op.rank(self.scale) else {}
        return op.DequantizeLinear(self.weight, self.scale, self.zero, **per_channel)


def rectified(op: Builder, x: ir.Value, name: str, negative_slope: float = 0.0) -> ir.Value:
    """What follows a kernel in the same operator."""
    if name == "leaky_relu":
        return op.LeakyRelu(x, alpha=negative_slope)
    return {"": lambda y: y, "relu": op.Relu, "tanh": op.Tanh}[name](x)


# Layers with weights


@lower("quantized.linear", after="")
@lower("quantized.linear_relu", after="relu")
@lower("quantized.linear_tanh", after="tanh")
@lower("quantized.linear_leaky_relu", after="leaky_relu")
def quantized_linear(
    op: Builder,
    x: ir.Value,
    W_prepack: Pack,
    Y_scale_i: float,
    Y_zero_point_i: int,
    negative_slope: float = 0.0,
    *,
    after: str,
) -> ir.Value:
    y = linear(op, x, W_prepack.real(op), W_prepack.bias)
    return to_step(op, rectified(op, y, after, negative_slope), step_of(x).moved(Y_scale_i, Y_zero_point_i))


def _convolved(op: Builder, x: ir.Value, pack: Pack, one: bool = False) -> ir.Value:
    """The convolution of a pack; ``one``: over one axis, for which PyTorch keeps a second one of size 1 in front."""
    settings, weight = pack.settings, pack.real(op)
    last = slice(1, None) if one else slice(None)
    if one:
        weight = op.Squeeze(weight, [2])
    common = {key: settings[key][last] for key in ("stride", "padding", "dilation")}
    if settings["transposed"]:
        more = {"output_padding": settings["output_padding"][last]}
        return conv_transpose(op, x, weight, pack.bias, groups=settings["groups"], **common, **more)
    return conv(op, x, weight, pack.bias, groups=settings["groups"], **common)


@lower("quantized.conv1d", "quantized.conv_transpose1d", after="", one=True)
@lower("quantized.conv1d_relu", after="relu", one=True)
@lower("quantized.conv2d.new", "quantized.conv3d.new", "quantized.conv2d_add", after="")
@lower("quantized.conv2d_relu.new", "quantized.conv3d_relu.new", "quantized.conv2d_add_relu", after="relu")
@lower("quantized.conv_transpose2d", "quantized.conv_transpose3d", after="")
def quantized_conv(
    op: Builder,
    x: ir.Value,
    packed_weight: Pack,
    output_scale: float,
    output_zero_point: int,
    qaccum: ir.Value | None = None,
    *,
    after: str,
    one: bool = False,
) -> ir.Value:
    y = _convolved(op, x, packed_weight, one)
    y = y if qaccum is None else op.Add(y, qaccum)
    return to_step(op, rectified(op, y, after), step_of(x).moved(output_scale, output_zero_point))


@lower("quantized.embedding_byte", "quantized.embedding_4bit", unused="pruned_weights")
def embedding(op: Builder, weight: Pack, indices: ir.Value) -> ir.Value:
    """Rows, each with a step of its own; its zero is a real number."""
    rows = op.Gather(weight.weight, indices, axis=0)
    if weight.scale is None:
        return rows
    scale, zero = (op.Unsqueeze(op.Gather(p, indices, axis=0), [-1]) for p in (weight.scale, weight.zero))
    return op.Mul(op.Sub(op.cast(rows, T.FLOAT), op.cast(zero, T.FLOAT)), scale)


# Quantised as it goes: the input's step follows from its values


def on_the_fly(op: Builder, x: ir.Value, reduce_range: bool) -> tuple[ir.Value, ir.Value, ir.Value]:
    """The input as 8 (or 7) bits, spread from its smallest to its largest value; their scale and zero point.

    Nothing lies beyond the largest integer: it stands for the largest value.
    """
    most = 127.0 if reduce_range else 255.0
    nothing = op.constant(0.0, T.FLOAT)
    low, high = op.Min(op.ReduceMin(x, keepdims=0), nothing), op.Max(op.ReduceMax(x, keepdims=0), nothing)
    width = op.Div(op.Sub(high, low), most)
    step = op.Where(op.Equal(width, nothing), op.constant(0.1, T.FLOAT), width)
    zero = op.cast(op.Clip(op.Round(op.Neg(op.Div(low, step))), 0.0, most), T.UINT8)
    scale = op.Max(step, op.constant(_SMALLEST_SCALE, T.FLOAT))
    return op.QuantizeLinear(x, scale, zero), scale, zero


_SMALLEST_SCALE = 6.1e-5
"""PyTorch's: it widens the range around the same zero point if the step would be smaller."""


@lower("quantized.linear_dynamic", after="")
@lower("quantized.linear_relu_dynamic", after="relu")
def linear_dynamic(op: Builder, x: ir.Value, W_prepack: Pack, reduce_range: bool = False, *, after: str) -> ir.Value:
    """In integers: a runtime that multiplied reals would have to be told that the weights are integers."""
    assert W_prepack.scale is not None
    integers, scale, zero = on_the_fly(op, x, reduce_range and not W_prepack.settings.get("all_bits"))
    weight = op.Transpose(W_prepack.weight, perm=[1, 0])
    sums = op.cast(op.MatMulInteger(integers, weight, zero, _unless_zero(W_prepack.zero)), T.FLOAT)
    y = op.Mul(sums, op.Mul(scale, W_prepack.scale))
    return rectified(op, y if W_prepack.bias is None else op.Add(y, W_prepack.bias), after)


def _unless_zero(zero: ir.Value | None) -> ir.Value | None:
    if zero is not None and zero.const_value is not None and not zero.const_value.numpy().any():
        return None
    return zero


@lower("quantized.linear_dynamic_fp16", after="")
@lower("quantized.linear_relu_dynamic_fp16", after="relu")
def linear_half(op: Builder, x: ir.Value, W_prepack: Pack, *, after: str) -> ir.Value:
    return rectified(op, linear(op, x, W_prepack.real(op), W_prepack.bias), after)


@lower("quantized.conv1d_dynamic", "quantized.conv_transpose1d_dynamic", one=True)
@lower("quantized.conv2d_dynamic", "quantized.conv3d_dynamic", one=False)
@lower("quantized.conv_transpose2d_dynamic", "quantized.conv_transpose3d_dynamic", one=False)
def conv_dynamic(op: Builder, x: ir.Value, packed_weight: Pack, reduce_range: bool = False, *, one: bool) -> ir.Value:
    return _convolved(op, op.DequantizeLinear(*on_the_fly(op, x, reduce_range)), packed_weight, one)


# Arithmetic


@lower("quantized.add", formula=lambda op, a, b: op.Add(a, b), after="")
@lower("quantized.add_relu", formula=lambda op, a, b: op.Add(a, b), after="relu")
@lower("quantized.mul", formula=lambda op, a, b: op.Mul(a, b), after="")
@lower("quantized.mul_relu", formula=lambda op, a, b: op.Mul(a, b), after="relu")
@lower("quantized.matmul", formula=lambda op, a, b: matmul(op, a, b), after="")
def of_two(
    op: Builder,
    x: ir.Value,
    qb: ir.Value,
    scale: float,
    zero_point: int,
    *,
    formula: Callable[..., ir.Value],
    after: str,
) -> ir.Value:
    return to_step(op, rectified(op, formula(op, x, qb), after), step_of(x).moved(scale, zero_point))


@lower("quantized.mul.Scalar", "quantized.mul_scalar.default", after="")
@lower("quantized.mul_relu.Scalar", "quantized.mul_scalar_relu.default", after="relu")
def mul_scalar(op: Builder, x: ir.Value, b: Number, *, after: str) -> ir.Value:
    """The integers stay, their step changes; mirrored if the number is negative."""
    step = step_of(x)
    b = _known(b)
    if b == 0:
        moved = Step(1.0, 0, step.dtype)
    else:
        zero = step.zero if b > 0 else step.high + step.low - _fixed(step.zero)
        moved = Step(_fixed_float(step.scale) * abs(b), zero, step.dtype)
    return to_step(op, rectified(op, op.Mul(x, b), after), moved)


@lower("quantized.add.Scalar", "quantized.add_scalar.default", after="")
@lower("quantized.add_relu.Scalar", "quantized.add_scalar_relu.default", after="relu")
def add_scalar(op: Builder, x: ir.Value, b: Number, *, after: str) -> ir.Value:
    """The number is rounded to the step; where zero would leave the range, PyTorch widens the step instead."""
    step = step_of(x)
    b = _known(b)
    scale, zero = _fixed_float(step.scale), _fixed(step.zero)
    whole = round(b / scale)
    least, most = zero - whole < step.low, zero - whole > step.high
    if least:
        moved = Step((step.high - zero + whole) / (step.high - step.low) * scale, step.low, step.dtype)
    elif most:
        moved = Step((zero - whole - step.low) / (step.high - step.low) * scale, step.high, step.dtype)
    else:
        moved = Step(scale, zero - whole, step.dtype)
    return to_step(op, rectified(op, op.Add(x, whole * scale), after), moved)


def _known(b: Number) -> float:
    if isinstance(b, (ir.Value, complex)):
        raise UnsupportedArgument("a quantised tensor plus or times a number that is known only at run time")
    return float(b)


def _fixed(number: Operand) -> int:
    return int(_fixed_float(number))


def _fixed_float(number: Operand) -> float:
    number = as_constant(number)
    if isinstance(number, (int, float)):
        return float(number)
    raise UnsupportedArgument("a quantised tensor whose scale is known only at run time")


@lower("quantized.cat", after="")
@lower("quantized.cat_relu", after="relu")
def cat(
    op: Builder, x: Sequence[ir.Value], dim: int, scale: float | None, zero_point: int | None, *, after: str
) -> ir.Value:
    step = step_of(x[0])
    output_step = step.moved(step.scale if scale is None else scale, step.zero if zero_point is None else zero_point)
    return to_step(op, rectified(op, parts.cat(op, x, dim), after), output_step)


# The usual operators on quantised tensors

_SAME_INTEGERS = frozenset(
    """view reshape flatten unflatten squeeze unsqueeze permute transpose t contiguous clone detach to expand
    expand_as select slice narrow split split_with_sizes chunk unbind index index_select flip roll cat stack repeat
    max_pool1d max_pool2d max_pool3d adaptive_max_pool1d adaptive_max_pool2d relu upsample_nearest1d
    upsample_nearest2d upsample_nearest3d _upsample_nearest_exact2d _upsample_nearest_exact3d
    reflection_pad1d reflection_pad2d channel_shuffle pixel_shuffle pixel_unshuffle dropout max min sort topk unfold
    movedim swapaxes swapdims masked_fill view_as reshape_as alias""".split()
)
"""These only move, choose or cut off at zero what is there."""

_ROUNDED = frozenset(
    """adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d avg_pool1d avg_pool2d avg_pool3d mean std
    upsample_bilinear2d grid_sampler leaky_relu hardtanh relu6 clamp gelu threshold prelu pad constant_pad_nd
    upsample_linear1d elu""".split()
)
"""These compute with reals and round to the step of their input."""

_OWN_STEP = {  # by the type of the integers: the whole range of the function
    "sigmoid": {T.UINT8: (1 / 256, 0), T.INT8: (1 / 256, -128)},
    "hardsigmoid": {T.UINT8: (1 / 256, 0), T.INT8: (1 / 256, -128)},
    "tanh": {T.UINT8: (2 / 256, 128), T.INT8: (2 / 256, 0)},
}

_PLAIN = frozenset(
    """dequantize int_repr q_scale q_zero_point eq ne lt le gt ge equal size dim numel qscheme is_quantized
    quantize_per_tensor""".split()
)
"""These give something else than a quantised tensor, or say themselves what they give."""


def completed(op: Builder, name: str, operands: Mapping[str, Any], result: Any) -> Any:
    """What a rule for reals made of quantised operands, as PyTorch's kernel for integers has it."""
    flat = [o for item in operands.values() for o in (item if isinstance(item, (list, tuple)) else [item])]
    marked = [o for o in flat if isinstance(o, ir.Value) and quantised(o) is not None]
    name = name.rstrip("_") or name
    if not marked or name in _PLAIN:
        return result
    step = step_of(marked[0])
    alike = all(quantised(o) == step for o in marked)
    if name in _OWN_STEP and step.dtype in _OWN_STEP[name]:
        return to_step(op, result, step.moved(*_OWN_STEP[name][step.dtype]))
    if name in _ROUNDED or (name in ("cat", "stack", "masked_fill") and (not alike or name == "masked_fill")):
        return to_step(op, result, step)
    if name not in _SAME_INTEGERS:
        raise UnsupportedArgument(f"{name} of a quantised tensor is not supported")
    return _marked(result, step)


def _marked(result: Any, step: Step) -> Any:
    """A result that holds some of the integers of its input; positions that come with it are none."""
    if isinstance(result, (list, tuple)):
        return [_marked(part, step) for part in result]
    if isinstance(result, ir.Value) and result.dtype == T.FLOAT:
        step.mark(result)
    return result


# Kernels of one tensor, which give one of another step: activations, pooling, norms


Ints = Sequence[int]
Weight = ir.Value | None


def _kernel(*names: str, real: Lowering, unused: str = "", **settled: Any) -> None:
    """Enter kernels that do to integers what ``real`` does to reals, at the output's step (or the input's)."""
    rule = rule_of(real, **settled)

    def kernel(op: Builder, x: ir.Value, **arguments: Any) -> ir.Value:
        step = step_of(x)
        if "output_scale" in arguments:
            step = step.moved(arguments["output_scale"], arguments["output_zero_point"])
        own = {name: value for name, value in arguments.items() if name in rule.parameters}
        return to_step(op, rule.function(op, x=x, **own), step)

    for name in names:
        parameters = (*rule.parameters, "output_scale", "output_zero_point")
        RULES.add(f"quantized.{name}", Rule(kernel, parameters, frozenset(unused.split())))


_kernel("hardswish", real=activation.hardswish)
_kernel("sigmoid", real=lambda op, x: op.Sigmoid(x))
_kernel("softmax", real=lambda op, x, dim: op.Softmax(x, axis=dim))
_kernel("leaky_relu", real=activation.leaky_relu, unused="inplace")
_kernel("prelu", real=activation.prelu)
_kernel("elu", real=activation.elu)
_kernel("celu", real=activation.celu)
_kernel("relu6", real=activation.relu6, unused="inplace")
_kernel("clamp", real=math.clamp)
_kernel("layer_norm", real=norm.layer_norm)
_kernel("group_norm", real=norm.group_norm)


@lower("quantized.dropout", unused="output_scale output_zero_point p")
def dropout(op: Builder, x: ir.Value, training: bool = False) -> ir.Value:
    if training:
        raise UnsupportedArgument("dropout of a quantised tensor in training")
    return x


def _max_pool(
    op: Builder, x: ir.Value, kernel_size: Ints, stride: Ints, padding: Ints, dilation: Ints, ceil_mode: bool
) -> ir.Value:
    windows = {"stride": stride, "padding": padding, "dilation": dilation, "ceil_mode": ceil_mode}
    rule = rule_for("aten", f"max_pool{len(kernel_size)}d", "")
    assert rule is not None
    return rule.function(op, x=x, kernel_size=kernel_size, **windows)


def _batch_norm(
    op: Builder, x: ir.Value, weight: Weight, bias: Weight, mean: ir.Value, var: ir.Value, eps: float, *, after: str
) -> ir.Value:
    y = norm.batch_norm(op, x, weight, bias, mean, var, training=False, momentum=0.0, eps=eps)
    return rectified(op, y, after)


_kernel("batch_norm", "batch_norm1d", "batch_norm2d", "batch_norm3d", real=_batch_norm, after="")
_kernel(*(f"batch_norm{axes}_relu" for axes in ("", "1d", "2d", "3d")), real=_batch_norm, after="relu")
_kernel("instance_norm", real=norm.instance_norm)
_kernel("max_pool1d", "max_pool2d", real=_max_pool)
