"""Attention as the operator has it, where a model does around it by hand what it does itself.

1. Keys and values that are repeated for each head of a group: the operator takes fewer of them than queries.
2. Keys and values that are joined to those of the past: the operator does it, and gives both as its present.

Below opset 23 the legaliser writes both out: the cache is joined, and heads of a group are read as one longer sequence,
so that nothing is copied for each head. `flatten_heads` is for runtimes that have the operator.
"""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from tonnx.ir import facts
from tonnx.ir.build import Builder
from tonnx.ir.infer import dims_of, known_number, same_dims
from tonnx.ir.infer.dims import ints_in
from tonnx.ir.operands import attribute, attributes_in
from tonnx.ir.rewrite import remove_dead, replace_node, rewrite_each
from tonnx.passes.match import made_by, only_reader

_HEADS_FIRST = (0, 2, 1, 3)
"""Between [batch, sequence, heads, width] and [batch, heads, sequence, width], either way."""


def recognise_caches(model: ir.Model) -> int:
    """Look at every Attention of the main graph; returns how many have groups or a past of their own now."""
    grouped = rewrite_each(model, "Attention", _share_heads)
    if grouped:
        remove_dead(model)  # what repeated the heads reads the cache
    return grouped + rewrite_each(model, "Attention", _take_past)


def _share_heads(op: Builder, node: ir.Node) -> bool:
    shared = [_repeated(value) for value in node.inputs[1:3]]
    if None in shared or len({count for _, count in filter(None, shared)}) != 1 or _has_past(node):
        return False
    for place, (source, _) in enumerate(filter(None, shared)):
        node.replace_input_with(1 + place, source)
    return True


def _has_past(node: ir.Node) -> bool:
    """Whether it has a cache of any kind already, or shows what it has inside."""
    return any(value is not None for value in node.inputs[4:]) or len(node.outputs) > 1


def _repeated(value: ir.Value | None) -> tuple[ir.Value, int] | None:
    """What has each of its heads several times in a row, and how often."""
    merged = made_by(value, "Reshape")
    expanded = made_by(merged.inputs[0], "Expand") if merged is not None else None
    raised = made_by(expanded.inputs[0], "Unsqueeze") if expanded is not None else None
    source = raised.inputs[0] if raised is not None else None
    before, between = dims_of(source), dims_of(expanded.outputs[0]) if expanded is not None else None
    after = dims_of(value)
    if source is None or raised is None or before is None or between is None or after is None or len(after) != 4:
        return None
    if len(before) != 4 or len(between) != 5 or ints_in(raised.inputs[1]) not in ([2], [-3]):
        return None
    heads, count = before[1], between[2]
    if not isinstance(heads, int) or not isinstance(count, int) or after[1] != heads * count:
        return None
    is_repetition = same_dims([*between[:2], *between[3:]], before)
    is_merged = same_dims([after[0], *after[2:]], [before[0], *before[2:]])
    return (source, count) if is_repetition and is_merged else None


def _take_past(op: Builder, node: ir.Node) -> bool:
    """Let the operator join what was with what is new. A causal one counts from the past, which PyTorch's does not."""
    if attribute(node, "is_causal", 0) or _has_past(node):
        return False
    joins = [made_by(value, "Concat") for value in node.inputs[1:3]]
    if not all(join is not None and _is_past(join, node) for join in joins):
        return False
    key, value = (join for join in joins if join is not None)
    if key is value:
        return False
    attributes = attributes_in(node)
    mask = node.inputs[3] if len(node.inputs) > 3 else None
    inputs = (node.inputs[0], key.inputs[1], value.inputs[1], mask, key.inputs[0], value.inputs[0])
    with op.at(node):
        results = op.Attention(*inputs, _outputs=3, **attributes)
    for result, old in zip(results, (*node.outputs, *key.outputs, *value.outputs), strict=True):
        result.shape, result.type = old.shape, old.type
    if node in facts.BLIND_ROWS:
        facts.BLIND_ROWS.add(results[0].producer())
    replace_node(node, [results[0]])
    for join, present in ((key, results[1]), (value, results[2])):
        replace_node(join, [present])
    return True


def _is_past(join: ir.Node, attention: ir.Node) -> bool:
    """Whether an input and something new are joined along the sequence, for this attention alone and the outside.

    What is new must be as long as the queries: it may be nothing otherwise, as an encoder's states are after the first
    step, which ONNX Runtime's kernel does not take.
    """
    result, axis = join.outputs[0], attribute(join, "axis")
    if len(join.inputs) != 2 or axis not in (2, -2) or join.graph is not attention.graph:
        return False
    past, new, queries = join.inputs[0], dims_of(join.inputs[1]), dims_of(attention.inputs[0])
    if new is None or queries is None or len(queries) != 4 or not same_dims(new[2:3], queries[2:3]):
        return False
    readers = {use.node for use in result.uses()}
    return past is not None and past.is_graph_input() and dims_of(result) is not None and readers == {attention}


# For runtimes that have the operator


def flatten_heads(model: ir.Model) -> int:
    """Attention on [batch, sequence, heads · width], without a Transpose for each operand; returns how many."""
    return rewrite_each(model, "Attention", _flatten)


def _flatten(op: Builder, node: ir.Node) -> bool:
    query, key, value = node.inputs[:3]
    end = Ending.of(node.outputs[0])
    if end is None or not has_fixed_heads(node) or not all(map(_is_heads_first, (query, key, value))):
        return False
    flatten_operator(op, node, end)
    return True


def has_fixed_heads(node: ir.Node) -> bool:
    """Whether the operands have four axes, with numbers of heads and widths that are known."""
    dims = [dims_of(operand) for operand in node.inputs[:3]]
    if not all(shape is not None and len(shape) == 4 for shape in dims):
        return False
    return all(isinstance(shape[axis], int) for shape in dims if shape is not None for axis in (1, 3))


def _is_heads_first(value: ir.Value | None) -> bool:
    """Whether a value was turned to have its heads first, so that this can be left out."""
    turned = made_by(value, "RotaryEmbedding")
    if turned is not None and (value is None or len(value.uses()) != 1):
        return False
    transpose = made_by(value if turned is None else turned.inputs[0], "Transpose")
    return transpose is not None and tuple(attribute(transpose, "perm", ())) == _HEADS_FIRST


def flat_operand(op: Builder, value: ir.Value) -> ir.Value:
    """[batch, sequence, heads · width] of [batch, heads, sequence, width]; what turned it to be that is left out."""
    batch, heads, sequence, width = value.shape.dims  # type: ignore[union-attr]
    assert isinstance(heads, int) and isinstance(width, int)
    shape = [batch, sequence, heads * width]
    turned = made_by(value, "RotaryEmbedding")
    if turned is not None and _is_heads_first(value) and turned.inputs[0] is not None:
        attributes = attributes_in(turned)
        flat = flat_operand(op, turned.inputs[0])
        return op.RotaryEmbedding(flat, *turned.inputs[1:], _shape=shape, **{**attributes, "num_heads": heads})
    transpose = made_by(value, "Transpose")
    if transpose is None or tuple(attribute(transpose, "perm", ())) != _HEADS_FIRST or transpose.inputs[0] is None:
        rows = op.Transpose(value, perm=_HEADS_FIRST)
    else:
        rows = transpose.inputs[0]
    before = made_by(rows, "Reshape")
    if before is not None and same_dims(dims_of(before.inputs[0]), shape) and before.inputs[0] is not None:
        return before.inputs[0]
    return op.Reshape(rows, [0, 0, heads * width], _shape=shape)


@dataclass(frozen=True)
class Ending:
    """What comes after an attention: zeros for queries that see nothing, and the way back to rows of all heads."""

    zeros: ir.Node | None
    transpose: ir.Node
    merge: ir.Node | None
    """The Reshape to rows of all heads, if that is all that comes."""

    @classmethod
    def of(cls, result: ir.Value) -> Ending | None:
        """None where the heads stay first."""
        zeros = only_reader(result, "Where")
        if zeros is not None and (zeros.inputs[1] is not result or len(dims_of(zeros.inputs[0]) or ()) != 4):
            return None
        transpose = only_reader(zeros.outputs[0] if zeros is not None else result, "Transpose")
        dims = dims_of(result)
        if transpose is None or tuple(attribute(transpose, "perm", ())) != _HEADS_FIRST or dims is None:
            return None
        if zeros is not None and (dims_of(zeros.inputs[0])[1] != 1 or known_number(zeros.inputs[2]) is None):  # type: ignore[index]
            return None
        merge = only_reader(transpose.outputs[0], "Reshape")
        shape = None if merge is None else dims_of(merge.outputs[0])
        is_merge = shape is not None and len(shape) == 3 and same_dims(shape[:2], [dims[0], dims[2]])
        return cls(zeros, transpose, merge if is_merge else None)

    def replace(self, op: Builder, result: ir.Value) -> None:
        """Everybody reads ``result``, which has rows of all heads."""
        if self.zeros is not None:
            with op.at(self.zeros):
                seen = op.Squeeze(self.zeros.inputs[0], [1])
                result = op.Where(seen, result, self.zeros.inputs[2], _shape=dims_of(result))
        if self.merge is not None:
            replace_node(self.merge, [result])
            op.graph.remove(self.transpose, safe=True)
        else:
            with op.at(self.transpose):
                shape = dims_of(self.transpose.outputs[0])
                rows = op.Reshape(result, [0, 0, *shape[2:]], _shape=shape)  # type: ignore[index]
            replace_node(self.transpose, [rows])
        if self.zeros is not None:
            op.graph.remove(self.zeros, safe=True)


def flatten_operator(op: Builder, node: ir.Node, end: Ending) -> None:
    """The same attention on rows of all heads."""
    query, key, value = (dims_of(operand) or [] for operand in node.inputs[:3])
    attributes = attributes_in(node)
    with op.at(node):
        flat = [flat_operand(op, operand) for operand in node.inputs[:3] if operand is not None]
        results = op.Attention(
            *flat, *node.inputs[3:], _outputs=len(node.outputs), q_num_heads=query[1], kv_num_heads=key[1], **attributes
        )
    results[0].shape = ir.Shape([query[0], query[2], query[1] * value[3]])  # type: ignore[operator]
    for new, old in zip(results[1:], node.outputs[1:], strict=True):
        new.shape, new.type = old.shape, old.type
    end.replace(op, results[0])
    replace_node(node, [None, *results[1:]])
