"""Rules that hold in a file made for training: dropout draws, batch normalisation keeps statistics.

They take the place of the rules for inference when ``training`` is TRAINING or PRESERVE.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import onnx_ir as ir

from tonnx.ir.build import Builder, T
from tonnx.lowering.ops import attention, norm
from tonnx.lowering.rules import Rule, rule_of

RULES: dict[str, Rule] = {}

_SELU_LIMIT = 1.7580993408473766
"""Where SELU flattens out, without the sign: what alpha dropout puts in the place of a dropped value."""


def _in_training(name: str) -> Callable[[Any], Any]:
    def enter(function: Any) -> Any:
        RULES[name] = rule_of(function)
        return function

    return enter


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
    return op.Dropout(x, op.constant(p, T.FLOAT), op.constant(True, T.BOOL)) if train and p else x


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


RULES["aten.scaled_dot_product_attention"] = rule_of(attention.scaled_dot_product_attention)
RULES["aten.batch_norm"] = replace(
    rule_of(norm.batch_norm, keeps_statistics=True), unused=frozenset(("cudnn_enabled",))
)
