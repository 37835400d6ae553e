"""Attention: sliding windows (25) and the padded cache (24) become part of the mask."""

from __future__ import annotations

import onnx_ir as ir

from tonnx.ir.build import Builder, Size
from tonnx.legalise.node_view import NodeView
from tonnx.legalise.table import down


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
