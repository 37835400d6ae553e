"""Operators that are several layers in one: what `paddle.incubate.nn` calls, and what fusing passes leave behind."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce

import onnx_ir as ir

from tonnx.errors import UnsupportedArgument
from tonnx.frontends.paddle.lower.rules import Value, Values, direct, lower
from tonnx.frontends.paddle.ops.activation import dropout
from tonnx.frontends.paddle.ops.linear import fc, matmul
from tonnx.frontends.paddle.ops.norm import layer_norm
from tonnx.ir.build import Builder, T
from tonnx.lowering import sizes
from tonnx.lowering.ops import activation as torch_activation
from tonnx.lowering.ops import norm as torch_norm

_ACTIVATIONS: dict[str, Callable[[Builder, ir.Value], ir.Value]] = {
    **dict.fromkeys(("", "none", "identity"), lambda op, x: x),
    "relu": lambda op, x: op.Relu(x),
    "gelu": lambda op, x: op.Gelu(x),
    "sigmoid": lambda op, x: op.Sigmoid(x),
    "tanh": lambda op, x: op.Tanh(x),
    **dict.fromkeys(("silu", "swish"), torch_activation.silu),
}


def _activated(op: Builder, x: ir.Value, name: str) -> ir.Value:
    if name not in _ACTIVATIONS:
        raise UnsupportedArgument(f"a fused operator with the activation {name!r}")
    return _ACTIVATIONS[name](op, x)


def _summed(op: Builder, *terms: ir.Value | None) -> ir.Value:
    return reduce(op.Add, [term for term in terms if term is not None])


# Norms


@lower("fused_rms_norm_quant", unused="quant_round_type quant_max_bound quant_min_bound", kind="rms_norm")
@lower("fused_bias_residual_layernorm", unused="quant_round_type quant_max_bound quant_min_bound", kind="layer_norm")
def fused_norm(
    op: Builder,
    x: Value,
    bias: Value | None = None,
    residual: Value | None = None,
    norm_weight: Value | None = None,
    norm_bias: Value | None = None,
    *,
    epsilon: float,
    residual_alpha: float = 1.0,
    begin_norm_axis: int,
    kind: str,
) -> tuple[ir.Value | None, ...]:
    """The norm of a sum, and the sum itself."""
    scaled = residual if residual is None or residual_alpha == 1 else op.Mul(residual, residual_alpha)
    total = _summed(op, x, bias, scaled)
    if kind == "rms_norm":
        y = torch_norm.rms_norm(op, total, op.sizes(x)[begin_norm_axis:], norm_weight, epsilon)
        return _summed(op, y, norm_bias), total, None
    if norm_weight is None and norm_bias is None:
        return total, total
    return layer_norm(op, total, norm_weight, norm_bias, epsilon=epsilon, begin_norm_axis=begin_norm_axis), total


@lower("fused_fc_elementwise_layernorm")
def fused_fc_elementwise_layernorm(
    op: Builder,
    x: Value,
    w: Value,
    y: Value,
    bias0: Value | None = None,
    scale: Value | None = None,
    bias1: Value | None = None,
    *,
    x_num_col_dims: int = 1,
    activation_type: str = "",
    epsilon: float = 1e-5,
    begin_norm_axis: int = 1,
) -> ir.Value:
    total = op.Add(fc(op, x, w, bias0, in_num_col_dims=x_num_col_dims, activation_type=activation_type), y)
    return layer_norm(op, total, scale, bias1, epsilon=epsilon, begin_norm_axis=begin_norm_axis)


@lower("fused_embedding_eltwise_layernorm")
def fused_embedding_eltwise_layernorm(
    op: Builder, ids: Values, embs: Values, bias: Value, scale: Value, *, epsilon: float = 1e-5
) -> ir.Value:
    rows = [
        op.Gather(table, op.cast(op.Squeeze(index, [-1]) if op.rank(index) == 3 else index, T.INT64), axis=0)
        for index, table in zip(ids, embs, strict=True)
    ]
    return layer_norm(op, _summed(op, *rows), scale, bias, epsilon=epsilon, begin_norm_axis=2)


@lower("fused_bias_dropout_residual_layer_norm", unused="dropout_fix_seed dropout_seed")
def fused_bias_dropout_residual_layer_norm(
    op: Builder,
    x: Value,
    residual: Value,
    bias: Value | None = None,
    ln_scale: Value | None = None,
    ln_bias: Value | None = None,
    *,
    dropout_rate: float = 0.5,
    is_test: bool = False,
    dropout_implementation: str = "downgrade_in_infer",
    ln_epsilon: float = 1e-5,
) -> tuple[ir.Value, ir.Value]:
    kept = dropout(op, _summed(op, x, bias), None, dropout_rate, is_test=is_test, mode=dropout_implementation)
    total = op.Add(residual, kept)
    y = layer_norm(op, total, ln_scale, ln_bias, epsilon=ln_epsilon, begin_norm_axis=op.rank(x) - 1)
    return y, total


# Layers

direct(
    "skip_layernorm(x, y, scale, bias, *, epsilon: float, begin_norm_axis: int)",
    lambda op, x, y, scale, bias, epsilon, axis: layer_norm(
        op, op.Add(x, y), scale, bias, epsilon=epsilon, begin_norm_axis=axis
    ),
)
direct(
    "fused_gemm_epilogue(x, y, bias=None, *, trans_x: bool = False, trans_y: bool = False, activation: str = 'none')",
    lambda op, x, y, bias, trans_x, trans_y, activation: _activated(
        op, _summed(op, matmul(op, x, y, transpose_x=trans_x, transpose_y=trans_y), bias), activation
    ),
)
direct(
    "fused_dropout_add(x, y, seed_tensor=None, *, p: float, is_test: bool, mode: str)",
    lambda op, x, y, seed_tensor, p, is_test, mode: op.Add(dropout(op, x, None, p, is_test=is_test, mode=mode), y),
)


@lower("fused_bias_act", unused="compute_dtype quant_round_type quant_max_bound quant_min_bound")
def fused_bias_act(
    op: Builder,
    x: Value,
    bias: Value | None = None,
    dequant_scales: Value | None = None,
    shift: Value | None = None,
    smooth: Value | None = None,
    *,
    act_method: str = "gelu",
) -> ir.Value:
    if dequant_scales is not None or shift is not None or smooth is not None:
        raise UnsupportedArgument("fused_bias_act that quantises")
    total = _summed(op, x, bias)
    if act_method not in ("swiglu", "geglu"):
        return _activated(op, total, act_method)
    gate, value = op.Split(total, axis=-1, num_outputs=2, _outputs=2)
    return op.Mul(_activated(op, gate, "silu" if act_method == "swiglu" else "gelu"), value)


@lower("fused_softmax_mask_upper_triangle")
def fused_softmax_mask_upper_triangle(op: Builder, x: Value) -> ir.Value:
    """Softmax of what lies on and below the diagonal."""
    rows, columns = op.size(x, -2), op.size(x, -1)
    down, across = sizes.arange(op, rows), sizes.arange(op, columns)
    seen = op.LessOrEqual(op.Unsqueeze(across, [0]), op.Unsqueeze(down, [1]))
    return op.Softmax(op.Where(seen, x, op.constant(-10000.0, x.dtype)), axis=-1)


@lower("add_position_encoding")
def add_position_encoding(op: Builder, x: Value, *, alpha: float = 1.0, beta: float = 1.0) -> ir.Value:
    """Sines in the first half of the features, cosines in the second."""
    length, width = op.sizes(x)[1:]
    (width,) = sizes.known("add_position_encoding of a number of features", width)
    half = width // 2
    rate = [10000.0 ** (-i / (half - 1)) if half > 1 else 10000.0**-1 for i in range(half)]
    angle = op.Mul(op.Unsqueeze(op.cast(sizes.arange(op, length), x.dtype), [1]), op.constant(rate, x.dtype))
    return op.Add(op.Mul(x, alpha), op.Mul(op.Concat(op.Sin(angle), op.Cos(angle), axis=1), beta))


@lower("fused_rotary_position_embedding")
def fused_rotary_position_embedding(
    op: Builder,
    q: Value,
    k: Value | None = None,
    v: Value | None = None,
    sin: Value | None = None,
    cos: Value | None = None,
    position_ids: Value | None = None,
    *,
    use_neox_rotary_style: bool = True,
    rotary_emb_base: float = 10000.0,
) -> tuple[ir.Value | None, ...]:
    """Pairs of features turned by an angle that grows with the place: (sentences, words, heads, features)."""
    (width,) = sizes.known("rotary embedding of a number of features", op.size(q, 3))
    if sin is None or cos is None:
        if not use_neox_rotary_style:  # Paddle warns that it does not compute this rightly
            raise UnsupportedArgument("rotary embedding of halves without sines and cosines", hint="give sin and cos")
        rate = [rotary_emb_base ** (-2 * (i // 2) / width) for i in range(width)]
        places = op.cast(sizes.arange(op, op.size(q, 1)), q.dtype)
        angle = op.Mul(op.Unsqueeze(places, [1]), op.constant(rate, q.dtype))
        sin, cos = op.Sin(angle), op.Cos(angle)
    sin, cos = (op.reshape(table, [-1, width]) for table in (sin, cos))
    if position_ids is not None:
        index = op.cast(position_ids, T.INT64)
        sin, cos = (op.Unsqueeze(op.Gather(table, index, axis=0), [2]) for table in (sin, cos))
    else:
        sin, cos = (op.Unsqueeze(table, [0, 2]) for table in (sin, cos))
    turn = _pairs if use_neox_rotary_style else _halves
    return tuple(None if x is None else op.Add(op.Mul(x, cos), op.Mul(turn(op, x), sin)) for x in (q, k, v))


def _pairs(op: Builder, x: ir.Value) -> ir.Value:
    """(-x1, x0, -x3, x2, …)."""
    width = op.size(x, 3)
    assert isinstance(width, int)
    order = [i ^ 1 for i in range(width)]
    signs = op.constant([-1.0 if i % 2 == 0 else 1.0 for i in range(width)], x.dtype)
    return op.Mul(op.Gather(x, order, axis=3), signs)


def _halves(op: Builder, x: ir.Value) -> ir.Value:
    """The second half negated, then the first."""
    first, second = op.Split(x, axis=3, num_outputs=2, _outputs=2)
    return op.Concat(op.Neg(second), first, axis=3)


@lower("multihead_matmul", unused="transpose_q transpose_k transpose_v")
def multihead_matmul(
    op: Builder,
    input: Value,
    w: Value,
    bias: Value,
    bias_qk: Value | None = None,
    *,
    alpha: float = 1.0,
    head_number: int = 1,
) -> ir.Value:
    """Attention with its projections: (sentences, words, features), weights (features, 3, features)."""
    batch, words, width = op.sizes(input)
    (width,) = sizes.known("multihead_matmul of a number of features", width)
    each = width // head_number
    flat = op.Add(op.MatMul(input, op.reshape(w, [width, 3 * width])), op.reshape(bias, [-1]))
    parts = op.Transpose(op.reshape(flat, [batch, words, 3, head_number, each]), perm=[2, 0, 3, 1, 4])
    query, key, value = (op.Squeeze(p, [0]) for p in op.Split(parts, axis=0, num_outputs=3, _outputs=3))
    match = op.Mul(op.MatMul(query, op.Transpose(key, perm=[0, 1, 3, 2])), alpha)
    match = op.Softmax(_summed(op, match, bias_qk), axis=-1)
    return op.reshape(op.Transpose(op.MatMul(match, value), perm=[0, 2, 1, 3]), [batch, words, width])


@lower("flash_attn", unused="return_softmax rng_name")
def flash_attn(
    op: Builder,
    q: Value,
    k: Value,
    v: Value,
    fixed_seed_offset: Value | None = None,
    attn_mask: Value | None = None,
    *,
    dropout: float = 0.0,
    causal: bool = False,
    is_test: bool = False,
) -> ir.Value:
    """Attention of (sentences, words, heads, features)."""
    if dropout and not is_test:
        raise UnsupportedArgument("attention with dropout that stays active in inference")
    (width,) = sizes.known("attention of a number of features", op.size(q, 3))
    query, key, value = (op.Transpose(x, perm=[0, 2, 1, 3]) for x in (q, k, v))
    y = op.Attention(query, key, value, attn_mask, is_causal=int(causal), scale=1 / math.sqrt(width))
    return op.Transpose(y, perm=[0, 2, 1, 3])
