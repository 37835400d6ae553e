"""Attention: windows (25) and the padded cache (24) become part of the mask, the rest is written out."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import onnx_ir as ir

from tonnx.ir import facts
from tonnx.ir.build import Builder, Size, T
from tonnx.legalise.node_view import Blocked, NodeView, constant_of
from tonnx.legalise.table import down
from tonnx.legalise.versioned_ops import arange, at_most, cut, fixed, number, reduce, split, unsqueeze


def _positions(op: Builder, size: Size) -> ir.Value:
    return op.Range(0, op.scalar(size), 1)


def _attention_with(op: Builder, node: NodeView, visible: ir.Value, *without: str) -> tuple[ir.Value, ...]:
    """The same attention, restricted to the keys that ``visible`` (bool, broadcastable) says."""
    mask = node["attn_mask"]
    if mask is None:
        mask = visible
    else:
        mask = _padded(op, mask, _key_length(op, node))
        if mask.dtype == ir.DataType.BOOL:
            mask = op.And(mask, visible)
        else:
            mask = op.Where(visible, mask, op.constant(float("-inf"), mask.dtype))
    inputs = node.inputs
    inputs[3:4] = [mask]
    return op.Attention(*inputs, _outputs=node.outputs, **node.attributes(*without))


def _padded(op: Builder, mask: ir.Value, keys: Size) -> ir.Value:
    """Beside a padded cache the mask may be shorter than the keys."""
    last = op.size(mask, -1)
    if last is keys or (isinstance(last, int) and last == keys):
        return mask
    rank = op.rank(mask)
    missing = op.vector([keys]) - op.vector([last])
    fill = op.constant(False) if mask.dtype == ir.DataType.BOOL else op.constant(float("-inf"), mask.dtype)
    return op.Pad(mask, op.Concat(op.constant([0] * (2 * rank - 1), ir.DataType.INT64), missing, axis=0), fill)


def _query_length(op: Builder, node: NodeView) -> Size:
    return op.size(node.need("Q"), node.rank("Q") - 2)


def _key_length(op: Builder, node: NodeView) -> Size:
    """All keys: the past ones and those given."""
    new = op.size(node.need("K"), node.rank("K") - 2)
    if (past := node["past_key"]) is None:
        return new
    before = op.size(past, 2)
    if isinstance(new, int) and isinstance(before, int):
        return new + before
    return op.vector([new]) + op.vector([before])


def _query_positions(op: Builder, node: NodeView) -> ir.Value:
    """The absolute position of every query, to be compared with a row of keys: [Sq, 1], or [B, 1, Sq, 1]."""
    length = _query_length(op, node)
    rows = op.Unsqueeze(_positions(op, length), [1])
    if node["past_key"] is not None:
        return rows + op.scalar(op.size(node.need("past_key"), 2))
    if _has_padding(node):
        return op.Unsqueeze(node.need("nonpad_kv_seqlen") - op.scalar(length), [1, 2, 3]) + rows
    return rows


def _has_padding(node: NodeView) -> bool:
    return len(node.inputs) > 6 and node.inputs[6] is not None


@down("Attention", 25, up="new attributes that are off by default")
def attention_window(op: Builder, node: NodeView) -> tuple[ir.Value, ...] | None:
    """A window is a band in the mask."""
    left, right = node.attr("left_window_size", -1), node.attr("right_window_size", -1)
    if left < 0 and right < 0:
        return None
    at, keys = _query_positions(op, node), _positions(op, _key_length(op, node))
    sides = []
    if left >= 0:
        sides.append(op.GreaterOrEqual(keys, at - left))
    if right >= 0:
        sides.append(op.LessOrEqual(keys, at + right))
    visible = op.And(*sides) if len(sides) == 2 else sides[0]
    return _attention_with(op, node, visible, "left_window_size", "right_window_size")


@down("Attention", 24, up="a new optional input")
def attention_padding(op: Builder, node: NodeView) -> tuple[ir.Value, ...] | None:
    """Padding at the end of the cache is masked, and shifts the causal frontier of each sample."""
    if not _has_padding(node):
        node.node.resize_inputs(min(len(node.inputs), 6))
        return None
    keys = _positions(op, _key_length(op, node))
    visible = op.Less(keys, op.Unsqueeze(node.need("nonpad_kv_seqlen"), [1, 2, 3]))
    if node.attr("is_causal", 0):
        visible = op.And(visible, op.LessOrEqual(keys, _query_positions(op, node)))
    else:  # ONNX Runtime does not broadcast a mask over the queries
        visible = op.Expand(visible, op.vector([1, 1, _query_length(op, node), 1]))
    inner = NodeView(node.node, node.signature)
    inner_inputs = inner.inputs[:6]
    inner.node.resize_inputs(len(inner_inputs))
    return _attention_with(op, inner, visible, "is_causal")


# Written out


@down("Attention", 23)
def attention(op: Builder, node: NodeView) -> list[ir.Value]:
    """softmax(QKᵀ·scale + bias)·V, with grouped heads and the key/value cache."""
    flat = node.rank("Q") == 3
    query = _heads(op, node, "Q", "q_num_heads")
    key = _heads(op, node, "K", "kv_num_heads")
    value = _heads(op, node, "V", "kv_num_heads")
    past_length: Size = 0
    if (past := node["past_key"]) is not None:
        past_length = op.size(past, 2)
        key = op.Concat(past, key, axis=2)
        value = op.Concat(node.need("past_value"), value, axis=2)
    mode = node.attr("qk_matmul_output_mode", 0)
    bias = _bias(op, node, query, key, past_length)
    groups = _groups(query, key)

    scores = _grouped_matmul(op, _scaled(op, node, query), op.Transpose(key, perm=[0, 1, 3, 2]), groups)
    shown = scores
    if softcap := node.attr("softcap", 0.0):
        scores = op.Tanh(scores / softcap) * softcap
        shown = scores if mode == 1 else shown
    if bias is not None:
        scores = scores + bias
    shown = scores if mode == 2 else shown
    precision = node.attr("softmax_precision", None)
    wide = op.cast(scores, T(precision)) if precision else scores
    weights = op.cast(op.Softmax(wide, axis=-1), node.dtype("Q"))
    # Without a mask every query sees at least the first key.
    masked = bias if node["attn_mask"] is not None and node.node not in facts.BLIND_ROWS else None
    some_key = None if masked is None else _rows_with_a_key(op, masked, _never(node))
    if mode == 3:
        shown = weights = weights if some_key is None else op.Where(some_key, weights, number(op, 0, weights))
        some_key = None
    result = _grouped_matmul(op, op.cast(weights, node.dtype("V")), value, groups)
    result = op.cast(result, node.dtype("Q"))
    if some_key is not None:
        # Here and not on the weights: between the two products runtimes look for a bare Softmax.
        result = op.Where(some_key, result, number(op, 0, result))
    if flat:
        merged = op.Transpose(result, perm=[0, 2, 1, 3])
        heads, width = fixed(query, 1), fixed(value, 3)
        result = op.Reshape(merged, [0, 0, heads * width if heads and width else -1])
    return [result, key, value, shown][: node.outputs]


def _heads(op: Builder, node: NodeView, name: str, count: str) -> ir.Value:
    """(batch, sequence, heads·width) as (batch, heads, sequence, width)."""
    x = node.need(name)
    if node.rank(name) == 4:
        return x
    heads = node.attr(count)
    if not heads:
        raise Blocked(f"its attribute {count} is missing, which inputs of rank 3 need")
    width = fixed(x, 2)
    x = op.Reshape(x, [0, 0, heads, width // heads if width else -1])
    return op.Transpose(x, perm=[0, 2, 1, 3])


def _scaled(op: Builder, node: NodeView, query: ir.Value) -> ir.Value:
    # Before the product and on the queries only: as safe in float16 as √scale on both sides, and one node.
    scale = node.attr("scale", None)
    if scale is not None:
        return query if scale == 1.0 else query * scale
    width = op.size(query, 3)
    if isinstance(width, int):
        return query * (1 / math.sqrt(width))
    return query / op.Sqrt(op.Cast(width, to=int(node.dtype("Q"))))


def _groups(query: ir.Value, key: ir.Value) -> tuple[int, int] | None:
    """(query heads, key heads) when they are not the same."""
    heads, shared = fixed(query, 1), fixed(key, 1)
    if heads is None or shared is None:
        if query.shape is not None and key.shape is not None and query.shape[1] == key.shape[1]:
            return None
        raise Blocked("the number of its heads is not known")
    return None if heads == shared else (heads, shared)


def _grouped_matmul(op: Builder, x: ir.Value, y: ir.Value, groups: tuple[int, int] | None) -> ir.Value:
    """x·y where several heads of ``x`` share one of ``y``.

    The heads of a group lie side by side, so their rows can be read as one longer sequence: nothing is copied,
    whereas repeating keys and values for each head of the group would multiply the cache.
    """
    if groups is None:
        return op.MatMul(x, y)
    heads, shared = groups
    batch, _, rows, width = x.shape or [None] * 4
    # 0 keeps a size, so that no shape has to be computed.
    together = op.Reshape(x, [0, shared, -1, 0], _shape=[batch, shared, None, width])
    columns = y.shape[3] if y.shape is not None else None
    return op.Reshape(op.MatMul(together, y), [0, heads, -1, 0], _shape=[batch, heads, rows, columns])


def _bias(op: Builder, node: NodeView, query: ir.Value, key: ir.Value, past_length: Size) -> ir.Value | None:
    """What is added to the scores: 0 or the mask's number where a query may look, next to nothing elsewhere."""
    mask, causal = node["attn_mask"], None
    if node.attr("is_causal", 0):
        causal = _causal(op, op.size(query, 2), op.size(key, 2), past_length)
    never = number(op, _never(node), query)
    if mask is not None and mask.dtype == T.BOOL:
        allowed = mask if causal is None else op.And(mask, causal)
        return op.Where(allowed, number(op, 0, query), never)
    if mask is None:
        return None if causal is None else op.Where(causal, number(op, 0, query), never)
    mask = op.cast(mask, node.dtype("Q"))
    return mask if causal is None else op.Where(causal, mask, never)


def _never(node: NodeView) -> float:
    """What is added where a query may not look.

    The lowest number and not -inf, so that a query without any key has no NaN on its way to zero; except where the sum
    is shown, or where the mask's own numbers might be the lowest one.
    """
    mask = node["attn_mask"]
    if node.attr("qk_matmul_output_mode", 0) == 2 or (mask is not None and mask.dtype != T.BOOL):
        return -math.inf
    return float(ml_dtypes.finfo(node.dtype("Q").numpy()).min)


def _causal(op: Builder, queries: Size, keys: Size, past: Size) -> ir.Value:
    """Query i looks at key j where j <= i + past."""
    rows = unsqueeze(op, arange(op, queries), 1)
    if past != 0:
        rows = op.Add(rows, past)
    return at_most(op, arange(op, keys), rows)


def _rows_with_a_key(op: Builder, bias: ir.Value, never: float) -> ir.Value | None:
    """Which queries may look at anything: the others give zero, not NaN. None when all may for certain."""
    array = constant_of(bias)
    if array is not None:
        some = np.any(array > never, axis=-1, keepdims=True)
        return None if bool(np.all(some)) else op.constant(some)
    if _least(bias) > never:
        return None
    return op.Greater(reduce(op, "ReduceMax", bias, [-1]), number(op, never, bias))


_HANDED_ON = frozenset("Expand Flatten Gather Identity Reshape Slice Squeeze Transpose Unsqueeze".split())
"""Operators whose results are some of the numbers that they read first."""


def _least(value: ir.Value | None) -> float:
    """What no number of a value is below, however it is computed of constants; -inf if that is not known."""
    array, node = (None, None) if value is None else (constant_of(value), value.producer())
    if array is not None:
        return float(array.min(initial=math.inf)) if array.dtype.kind == "f" else -math.inf
    if node is None or node.domain != "":
        return -math.inf
    if node.op_type in _HANDED_ON:
        return _least(node.inputs[0])
    if node.op_type == "Where":
        return min(_least(node.inputs[1]), _least(node.inputs[2]))
    if node.op_type == "ConstantOfShape":
        return float(node.attributes["value"].as_tensor().numpy().item()) if "value" in node.attributes else 0.0
    return -math.inf


@down("RotaryEmbedding", 23)
def rotary_embedding(op: Builder, node: NodeView) -> ir.Value:
    """Pairs of features turned by an angle: (a·cos − b·sin, a·sin + b·cos)."""
    x, rank = node.need("X"), node.rank("X")
    cos, sin = node.need("cos_cache"), node.need("sin_cache")
    if (positions := node["position_ids"]) is not None:
        cos, sin = op.Gather(cos, positions, axis=0), op.Gather(sin, positions, axis=0)
    # Heads are axis 1 of rank 4; of rank 3 they become axis 2, which saves two Transpose.
    heads_axis = 1 if rank == 4 else 2
    cos, sin = unsqueeze(op, cos, heads_axis), unsqueeze(op, sin, heads_axis)
    width = fixed(x, rank - 1)
    if rank == 3:
        heads = node.attr("num_heads")
        if not heads:
            raise Blocked("its attribute num_heads is missing, which an input of rank 3 needs")
        if width is not None:
            width //= heads
        x = op.Reshape(x, [0, 0, heads, width if width is not None else -1])
    if width is None:
        raise Blocked("its head size is not known")
    turned = int(node.attr("rotary_embedding_dim", 0)) or width
    rest = None
    if turned < width:
        x, rest = split(op, x, 3, [turned, width - turned])
    if node.attr("interleaved", 0):
        # Neighbours are pairs: an axis of size 2 for them, and nothing has to be picked with a stride.
        pairs = op.Reshape(x, [0, 0, 0, turned // 2, 2])
        a, b = split(op, pairs, 4, [1, 1])
        result = op.Reshape(_rotate(op, a, b, unsqueeze(op, cos, 4), unsqueeze(op, sin, 4)), [0, 0, 0, turned])
    else:
        a, b = split(op, x, 3, [turned // 2, turned // 2])
        result = _rotate(op, a, b, cos, sin)
    if rest is not None:
        result = op.Concat(result, rest, axis=3)
    return op.Reshape(result, [0, 0, fixed(node["X"], 2) or -1]) if rank == 3 else result


def _rotate(op: Builder, a: ir.Value, b: ir.Value, cos: ir.Value, sin: ir.Value) -> ir.Value:
    return op.Concat(a * cos - b * sin, a * sin + b * cos, axis=-1)


@down("TensorScatter", 24)
def tensor_scatter(op: Builder, node: NodeView) -> ir.Value:
    """An update written into a cache, at a place of its own for each sample."""
    cache, update = node.need("past_cache"), node.need("update")
    rank = node.rank("past_cache")
    axis = node.attr("axis", -2) % rank
    length = op.size(update, axis)
    if (starts := node["write_indices"]) is None:  # to the front
        return op.Concat(update, cut(op, cache, axis, length), axis=axis)
    along = op.Reshape(arange(op, length), [-1] + [1] * (rank - 1 - axis))
    indices = op.Reshape(starts, [-1] + [1] * (rank - 1)) + along
    if node.attr("mode", "linear") == "circular":
        indices = op.Mod(indices, op.size(cache, axis))
    return op.ScatterElements(cache, op.Expand(indices, op.vector(op.sizes(update))), update, axis=axis)
