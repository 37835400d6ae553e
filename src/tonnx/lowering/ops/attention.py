"""Attention as one operator; the legaliser spells it out where the opset has none."""

from __future__ import annotations

import math

import onnx_ir as ir

from tonnx.errors import UnsupportedArgument
from tonnx.ir import facts
from tonnx.ir.build import Builder, T
from tonnx.lowering.rules import lower


@lower("aten.scaled_dot_product_attention", unused="dropout_p enable_gqa", dropout_p=0.0, enable_gqa=False)
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
    """In inference nothing is dropped; how heads are grouped, their numbers say."""
    if dropout_p:
        if enable_gqa:
            raise UnsupportedArgument(
                "attention with dropout and grouped heads is not supported in a file for training"
            )
        return attention_formula(op, x, key, value, attn_mask, is_causal, scale, dropout_p)
    ranks = [op.rank(v) for v in (x, key, value)]
    if max(ranks) > 4:
        return attention_formula(op, x, key, value, attn_mask, is_causal, scale)
    query, key, value = (_four_axes(op, v) for v in (x, key, value))
    mask = _four_axes(op, attn_mask) if attn_mask is not None else None
    query, key, value = _same_batch(op, query, key, value)
    result = op.Attention(query, key, value, mask, is_causal=int(is_causal), scale=scale)
    result.shape = ir.Shape([*query.shape.dims[:3], value.shape.dims[3]])  # type: ignore[union-attr]
    if mask is not None and mask.dtype == T.BOOL and mask.const_value is None:
        # A row that may see nothing gives zeros in PyTorch; a softmax over nothing would give NaN.
        attention = result.producer()
        assert attention is not None
        facts.BLIND_ROWS.add(attention)
        sees = op.ReduceMax(op.cast(mask, T.INT32), [-1], keepdims=1)
        result = op.Where(op.cast(sees, T.BOOL), result, op.constant(0, result.dtype))
    missing = 4 - max(ranks)
    return op.Squeeze(result, list(range(missing))) if missing else result


def _four_axes(op: Builder, x: ir.Value) -> ir.Value:
    missing = 4 - op.rank(x)
    return op.Unsqueeze(x, list(range(missing))) if missing else x


def _same_batch(op: Builder, query: ir.Value, key: ir.Value, value: ir.Value) -> tuple[ir.Value, ir.Value, ir.Value]:
    """PyTorch broadcasts the batch axis, ONNX's operator does not."""
    batches = [v.shape[0] for v in (query, key, value)]  # type: ignore[index]
    if all(b == batches[0] for b in batches):
        return query, key, value
    whole = next((v for v in (query, key, value) if v.shape[0] != 1), query)  # type: ignore[index]

    def grown(v: ir.Value) -> ir.Value:
        if v.shape[0] != 1:  # type: ignore[index]
            return v
        sizes = [op.size(whole, 0), *op.sizes(v)[1:]]
        return op.Expand(v, op.vector(sizes), _shape=[whole.shape[0], *v.shape.dims[1:]])  # type: ignore[index, union-attr]

    return grown(query), grown(key), grown(value)


def attention_formula(
    op: Builder,
    query: ir.Value,
    key: ir.Value,
    value: ir.Value,
    mask: ir.Value | None,
    is_causal: bool,
    scale: float | None,
    dropout: float = 0.0,
) -> ir.Value:
    """The formula itself: for more leading axes than the operator has (windows of windows), and for dropout."""
    head = op.size(query, -1)
    if scale is None:
        if not isinstance(head, int):
            root = op.Sqrt(op.CastLike(op.scalar(head), query))
            query = op.Div(query, root)
        else:
            query = op.Mul(query, 1 / math.sqrt(head))
    else:
        query = op.Mul(query, scale)
    perm = list(range(op.rank(key)))
    perm[-1], perm[-2] = perm[-2], perm[-1]
    scores = op.MatMul(query, op.Transpose(key, perm=perm))
    low = op.constant(float("-inf"), scores.dtype)
    if is_causal:
        ones = op.Expand(op.constant(1, T.INT32), op.vector([op.size(query, -2), op.size(key, -2)]))
        scores = op.Where(op.cast(op.Trilu(ones, upper=0), T.BOOL), scores, low)
    if mask is not None:
        scores = op.Where(mask, scores, low) if mask.dtype == T.BOOL else op.Add(scores, op.CastLike(mask, scores))
    weights = op.Softmax(scores, axis=-1)
    if mask is not None and mask.dtype == T.BOOL:
        weights = op.Where(op.IsNaN(weights), op.constant(0, weights.dtype), weights)
    if dropout:
        weights = op.Dropout(weights, op.constant(dropout, T.FLOAT), op.constant(True, T.BOOL))
    return op.MatMul(weights, value)
