"""Normalisations and distances."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from tonnx.ir.build import Builder, Size, T
from tonnx.ir.infer import same_dim
from tonnx.lowering.ops.math import add, sub
from tonnx.lowering.ops.reduce import vector_norm
from tonnx.lowering.rules import lower
from tonnx.lowering.values import promote, to_float

Parameter = ir.Value | None


def _full(op: Builder, number: float, sizes: Sequence[Size], dtype: ir.DataType | None) -> ir.Value:
    """A tensor of one number: a constant if its size is known."""
    if all(isinstance(size, int) for size in sizes):
        assert dtype is not None
        return op.constant(np.full(tuple(sizes), number, dtype=dtype.numpy()))
    return op.Expand(op.constant(number, dtype), op.vector(sizes))


def parameter(
    op: Builder, value: Parameter, default: float, sizes: Sequence[Size], dtype: ir.DataType | None
) -> ir.Value:
    """A weight or bias in the dtype of the data (torch allows float32 ones beside half data), or its neutral value."""
    if value is None:
        return _full(op, default, sizes, dtype)
    assert dtype is not None
    return op.cast(value, dtype)


def _per_channel(op: Builder, parameter: ir.Value, rank: int) -> ir.Value:
    """A vector over the channels, shaped to broadcast along axis 1."""
    return op.Reshape(parameter, [-1] + [1] * (rank - 2)) if rank > 2 else parameter


def _moments(op: Builder, x: ir.Value, axes: Sequence[int]) -> tuple[ir.Value, ir.Value, ir.Value]:
    """The centred data, its mean and its (biased) variance."""
    mean = op.ReduceMean(x, list(axes))
    centred = x - mean
    return centred, mean, op.ReduceMean(centred * centred, list(axes))


# Batch normalisation


@lower("aten.batch_norm", unused="cudnn_enabled")
@lower("aten.instance_norm", unused="cudnn_enabled", renamed="use_input_stats=training", by_instance=True)
def batch_norm(
    op: Builder,
    x: ir.Value,
    weight: Parameter,
    bias: Parameter,
    running_mean: Parameter,
    running_var: Parameter,
    training: bool,
    momentum: float,
    eps: float,
    *,
    by_instance: bool = False,
    keeps_statistics: bool = False,
) -> ir.Value:
    """``training``: by the statistics of this batch, or of each sample; ``keeps_statistics``: in a file for it."""
    if training and by_instance:
        return instance_norm(op, x, weight, bias, eps)
    has_statistics = running_mean is not None and running_var is not None
    if not has_statistics or (training and not (keeps_statistics and isinstance(momentum, float))):
        return _batch_statistics(op, x, weight, bias, eps)[0]
    channels = [op.size(x, 1)]
    scale, shift = parameter(op, weight, 1, channels, x.dtype), parameter(op, bias, 0, channels, x.dtype)
    if not training:
        statistics = [parameter(op, value, 0, channels, x.dtype) for value in (running_mean, running_var)]
        return op.BatchNormalization(x, scale, shift, *statistics, epsilon=eps)
    # ONNX's momentum is the share of the old statistics; PyTorch says that of the new.
    settings = {"epsilon": eps, "momentum": 1 - momentum, "training_mode": 1}
    y, *statistics = op.BatchNormalization(x, scale, shift, running_mean, running_var, **settings, _outputs=3)
    for output, running in zip(statistics, (running_mean, running_var), strict=True):
        assert running is not None
        output.name = op.names.unique(f"{running.name}.next")
        output.type, output.shape = running.type, running.shape
    return y


def instance_norm(op: Builder, x: ir.Value, weight: Parameter, bias: Parameter, eps: float) -> ir.Value:
    channels = [op.size(x, 1)]
    scale, shift = parameter(op, weight, 1, channels, x.dtype), parameter(op, bias, 0, channels, x.dtype)
    return op.InstanceNormalization(x, scale, shift, epsilon=eps)


def _batch_statistics(
    op: Builder, x: ir.Value, weight: Parameter, bias: Parameter, eps: float
) -> tuple[ir.Value, ir.Value, ir.Value, ir.Value]:
    """Normalised by the mean and variance of this very batch; with the mean, 1/deviation and variance, as vectors."""
    rank = op.rank(x)
    axes = [axis for axis in range(rank) if axis != 1]
    centred, mean, variance = _moments(op, x, axes)
    deviation = op.Sqrt(variance + eps)
    y = centred / deviation
    if weight is not None:
        y = y * _per_channel(op, parameter(op, weight, 1, [], x.dtype), rank)
    if bias is not None:
        y = y + _per_channel(op, parameter(op, bias, 0, [], x.dtype), rank)
    return y, op.Squeeze(mean, axes), op.Reciprocal(op.Squeeze(deviation, axes)), op.Squeeze(variance, axes)


@lower("aten.native_batch_norm", "aten._native_batch_norm_legit", "aten._native_batch_norm_legit_no_training")
@lower("aten._batch_norm_with_update", training=True, is_reserving=True)
def native_batch_norm(
    op: Builder,
    x: ir.Value,
    weight: Parameter,
    bias: Parameter,
    momentum: float,
    eps: float,
    running_mean: Parameter = None,
    running_var: Parameter = None,
    training: bool = False,
    *,
    is_reserving: bool = False,
) -> list[ir.Value]:
    """The result and what is kept for a backward pass; behind them the new statistics, where there are old ones."""
    running = [value for value in (running_mean, running_var) if value is not None]
    if not training and running:
        y = batch_norm(op, x, weight, bias, running_mean, running_var, training, momentum, eps)
        saved = op.constant([], x.dtype)  # nothing is kept for a backward pass that will not come
        return [y, saved, saved, *running]
    y, mean, scale, variance = _batch_statistics(op, x, weight, bias, eps)
    if running:
        count = op.cast(op.scalar(op.product([op.size(x, axis) for axis in range(op.rank(x)) if axis != 1])), x.dtype)
        new = (mean, variance * count / (count - 1.0))
        running = [
            old * (1 - momentum) + op.cast(now, old.dtype) * momentum for old, now in zip(running, new, strict=True)
        ]
    reserved = [op.constant([], T.UINT8)] if is_reserving else []
    return [y, mean, scale, *reserved, *running]


# Normalisation within a sample


@lower("aten.layer_norm", unused="cudnn_enable")
def layer_norm(
    op: Builder,
    x: ir.Value,
    normalized_shape: Sequence[Size],
    weight: Parameter = None,
    bias: Parameter = None,
    eps: float = 1e-5,
) -> ir.Value:
    scale = parameter(op, weight, 1, normalized_shape, x.dtype)
    shift = None if bias is None else parameter(op, bias, 0, normalized_shape, x.dtype)
    return op.LayerNormalization(x, scale, shift, axis=-len(normalized_shape), epsilon=eps)


@lower("aten.rms_norm")
def rms_norm(
    op: Builder, x: ir.Value, normalized_shape: Sequence[Size], weight: Parameter = None, eps: float | None = None
) -> ir.Value:
    scale = parameter(op, weight, 1, normalized_shape, x.dtype)
    return op.RMSNormalization(x, scale, axis=-len(normalized_shape), epsilon=_epsilon(x, eps))


def _epsilon(x: ir.Value, eps: float | None) -> float:
    """torch's default: the machine epsilon of what it computes in, which is float32 for the half types."""
    if eps is not None:
        return eps
    return float(np.finfo(np.float64 if x.dtype == T.DOUBLE else np.float32).eps)


@lower("aten._fused_rms_norm")
def fused_rms_norm(
    op: Builder, x: ir.Value, normalized_shape: Sequence[Size], weight: Parameter, eps: float | None
) -> tuple[ir.Value, ir.Value]:
    square = op.ReduceMean(x * x, list(range(-len(normalized_shape), 0)))
    return rms_norm(op, x, normalized_shape, weight, eps), op.Reciprocal(op.Sqrt(square + _epsilon(x, eps)))


@lower("aten.group_norm", unused="cudnn_enabled")
def group_norm(
    op: Builder, x: ir.Value, num_groups: int, weight: Parameter = None, bias: Parameter = None, eps: float = 1e-5
) -> ir.Value:
    if x.dtype in (T.DOUBLE, T.BFLOAT16):
        x = op.cast(x, T.FLOAT)  # below opset 21 this becomes InstanceNormalization, which runtimes have in float only
    channels = [op.size(x, 1)]
    scale = parameter(op, weight, 1, channels, x.dtype)
    shift = parameter(op, bias, 0, channels, x.dtype)
    return op.GroupNormalization(x, scale, shift, num_groups=num_groups, epsilon=eps)


# Normalised weights


@lower("aten._weight_norm", "aten._weight_norm_interface")
def weight_norm(op: Builder, v: ir.Value, g: ir.Value, dim: int = 0) -> Any:
    """``g · v / |v|``, the norm taken over every axis but ``dim`` (-1: over all of them)."""
    axes = [axis for axis in range(op.rank(v)) if axis != dim]
    norm = op.ReduceL2(v, axes)
    return v * (g / norm)


# Distances


@lower("aten.cosine_similarity")
def cosine_similarity(op: Builder, x1: ir.Value, x2: ir.Value, dim: int = 1, eps: float = 1e-8) -> ir.Value:
    a, b = (to_float(op, x) for x in promote(op, x1, x2))
    rank = max(op.rank(a), op.rank(b), 1)
    axis = dim % rank - rank
    if op.rank(a) == op.rank(b) == 0:
        a, b = op.Unsqueeze(a, [0]), op.Unsqueeze(b, [0])
    if not _same_along(op, a, b, axis):  # an axis that is repeated counts as often as it is repeated
        a, b = op.Expand(a, op.Shape(b)), op.Expand(b, op.Shape(a))
    lengths = [op.Max(vector_norm(op, x, 2, axis, True), op.constant(eps, x.dtype)) for x in (a, b)]
    return op.ReduceSum((a / lengths[0]) * (b / lengths[1]), [axis], keepdims=0)


def _same_along(op: Builder, a: ir.Value, b: ir.Value, axis: int) -> bool:
    assert a.shape is not None and b.shape is not None
    return -axis <= min(op.rank(a), op.rank(b)) and same_dim(a.shape[axis], b.shape[axis])


@lower("aten.pairwise_distance")
def pairwise_distance(
    op: Builder, x1: ir.Value, x2: ir.Value, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False
) -> ir.Value:
    return vector_norm(op, add(op, sub(op, x1, x2), eps), p, -1, keepdim)
