"""Rules that hold in a file made for training: dropout draws, batch normalisation keeps statistics.

They take the place of the rules for inference when ``training`` is TRAINING or PRESERVE.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import onnx_ir as ir

from tonnx.errors import UnsupportedArgument
from tonnx.ir.build import Builder
from tonnx.lowering.ops import attention, norm
from tonnx.lowering.rules import Rule, rule_of

T = ir.DataType
RULES: dict[str, Rule] = {}

_SELU_LIMIT = 1.7580993408473766
"""Where SELU flattens out, without the sign: what alpha dropout puts in the place of a dropped value."""


def _in_training(name: str) -> Callable[[Any], Any]:
    def enter(function: Any) -> Any:
        RULES[name] = rule_of(function)
        return function

    return enter


def _drop(op: Builder, x: ir.Value, p: float) -> ir.Value:
    return op.Dropout(x, op.constant(p, T.FLOAT), op.constant(True, T.BOOL))


def _kept(op: Builder, x: ir.Value, p: float, whole_channels: bool) -> ir.Value:
    """1 where a value stays, else 0: drawn for each element, or for each channel of each sample."""
    rank = op.rank(x)
    sizes = [*op.sizes(x)[:2], *[1] * (rank - 2)] if whole_channels else op.sizes(x)
    ones = op.Expand(op.constant(1.0, T.FLOAT), op.vector(sizes))
    _, mask = op.Dropout(ones, op.constant(p, T.FLOAT), op.constant(True, T.BOOL), _outputs=2)
    mask.shape = ones.shape
    return op.cast(mask, x.dtype)  # type: ignore[arg-type]


@_in_training("aten.dropout")
def dropout(op: Builder, x: ir.Value, p: float, train: bool) -> ir.Value:
    return _drop(op, x, p) if train and p else x


@_in_training("aten.feature_dropout")
def feature_dropout(op: Builder, x: ir.Value, p: float, train: bool) -> ir.Value:
    if not train or not p:
        return x
    return x * 0 if p == 1 else x * _kept(op, x, p, True) / (1 - p)


@_in_training("aten.native_dropout")
def native_dropout(op: Builder, x: ir.Value, p: float, train: bool | None) -> tuple[ir.Value, ir.Value]:
    if train is False:
        return x, op.Expand(op.constant(True), op.vector(op.sizes(x)))
    outputs: tuple[ir.Value, ir.Value] = op.Dropout(x, op.constant(p, T.FLOAT), op.constant(True, T.BOOL), _outputs=2)
    return outputs


def alpha_factors(p: float) -> tuple[float, float]:
    """What alpha dropout multiplies everything by, and adds to it."""
    scale = 1 / math.sqrt((_SELU_LIMIT**2 * p + 1) * (1 - p))
    return scale, _SELU_LIMIT * scale * p


@_in_training("aten.alpha_dropout")
def alpha_dropout(op: Builder, x: ir.Value, p: float, train: bool, whole_channels: bool = False) -> ir.Value:
    """Dropped values become SELU's limit, then everything is scaled so that mean and variance stay."""
    if not train or not p:
        return x
    if p == 1:
        return x * 0
    kept = _kept(op, x, p, whole_channels)
    scale, shift = alpha_factors(p)
    return x * (kept * scale) + ((kept - 1) * (_SELU_LIMIT * scale) + shift)


@_in_training("aten.feature_alpha_dropout")
def feature_alpha_dropout(op: Builder, x: ir.Value, p: float, train: bool) -> ir.Value:
    return alpha_dropout(op, x, p, train, True)


@_in_training("aten.scaled_dot_product_attention")
def scaled_dot_product_attention(
    op: Builder,
    x: ir.Value,
    key: ir.Value,
    value: ir.Value,
    attn_mask: ir.Value | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> ir.Value:
    if not dropout_p:
        return attention.scaled_dot_product_attention(op, x, key, value, attn_mask, is_causal, scale)
    if enable_gqa:
        raise UnsupportedArgument("attention with dropout and grouped heads is not supported in a file for training")
    return attention.attention_formula(
        op, x, key, value, attn_mask, is_causal, scale, lambda weights: _drop(op, weights, dropout_p)
    )


@_in_training("aten.batch_norm")
def batch_norm(
    op: Builder,
    x: ir.Value,
    weight: ir.Value | None,
    bias: ir.Value | None,
    running_mean: ir.Value | None,
    running_var: ir.Value | None,
    training: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool = True,
) -> ir.Value:
    if not training or running_mean is None or running_var is None or not isinstance(momentum, float):
        return norm.batch_norm(op, x, weight, bias, running_mean, running_var, training, momentum, eps)
    channels = [op.size(x, 1)]
    y, mean, variance = op.BatchNormalization(
        x,
        norm.parameter(op, weight, 1, channels, x.dtype),
        norm.parameter(op, bias, 0, channels, x.dtype),
        running_mean,
        running_var,
        epsilon=eps,
        momentum=1 - momentum,  # the share of the old statistics; PyTorch says that of the new
        training_mode=1,
        _outputs=3,
    )
    for output, running in ((mean, running_mean), (variance, running_var)):
        output.name = op.names.unique(f"{running.name}.next")
        output.type, output.shape = running.type, running.shape
    return y
