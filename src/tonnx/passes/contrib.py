"""ONNX Runtime's own operators (com.microsoft) in the place of ONNX's: the profile ``ort``.

1. Attention with a past, behind a mask that shows no query a key after it: GroupQueryAttention. The mask goes along as
   a bias, so that padding in front, windows and everything else that it says holds. Where a condition of the operator
   is not met (its mask, its head sizes, the dtype), Attention stays. From opset 23 on it does anyway: ONNX Runtime's
   kernel of it is the faster one (the other clears the whole cache before it writes it), and takes any batch.
2. RotaryEmbedding below opset 23: that of com.microsoft. It takes a table by positions; the rows that ONNX's takes are
   that table, so there is no longest text. This is why the rotation is not left to GroupQueryAttention, which wants a
   row for every position up to the last, and takes one position for all texts of a batch that begins.
3. A sum and RMSNormalization of it: SkipSimplifiedLayerNormalization, which gives both. A normalisation alone stays:
   SimplifiedLayerNormalization is in no domain of its own, so that a file with it is no valid ONNX, and ONNX Runtime
   makes it by itself.
4. A product with weights in blocks of integers: MatMulNBits (`tonnx.passes.matmul_nbits`).
"""

from __future__ import annotations

from collections import Counter

import ml_dtypes
import onnx_ir as ir

from tonnx.ir.build import Builder, T
from tonnx.ir.infer import dims_of, same_dim, same_dims
from tonnx.ir.operands import attribute, attribute_of, attributes_in
from tonnx.ir.restrictions import GROUPED_ATTENTION, MICROSOFT
from tonnx.ir.rewrite import builder_of, remove_dead, replace_node
from tonnx.passes.attention import Ending, flat_operand, has_fixed_heads
from tonnx.passes.attention_masks import conditions, is_causal
from tonnx.passes.match import made_by

_FLOATS = (T.FLOAT, T.FLOAT16)
_ATTENTION = 23
"""The first opset with Attention and RotaryEmbedding."""
_HEAD = 8
"""GroupQueryAttention takes heads whose size is a multiple of this."""


def use_contrib_operators(model: ir.Model, opset: int) -> Counter[str]:
    """Look at the main graph of a model for an opset; returns how many there are of each operator now."""
    pass_ = _Contrib(builder_of(model))
    rewrites = {"RMSNormalization": pass_.normalisation}
    if opset < _ATTENTION:
        rewrites = {"Attention": pass_.attention, "RotaryEmbedding": pass_.rotation, **rewrites}
    for op_type, rewrite in rewrites.items():
        for node in [node for node in model.graph if node.domain == "" and node.op_type == op_type]:
            rewrite(node)
        if pass_.counts:
            remove_dead(model)  # what one leaves behind is not for the next
    return pass_.counts


class _Contrib:
    def __init__(self, op: Builder) -> None:
        self.op = op
        self.counts: Counter[str] = Counter()
        self.biases: dict[ir.Value, ir.Value] = {}
        self.lengths: dict[ir.Value, tuple[ir.Value, ir.Value]] = {}
        """By masks: what each layer is given of one, made once."""
        self.tables: dict[ir.Value, tuple[ir.Value, ir.Value]] = {}
        """Cosines or sines as a table, with the positions that pick all its rows in order."""

    def _node(
        self, op_type: str, inputs: list[ir.Value | None], outputs: list[ir.Value], **attributes: object
    ) -> tuple[ir.Value, ...]:
        self.counts[op_type] += 1
        kinds = [(value.dtype, dims_of(value)) for value in outputs]
        given = [attribute_of(name, value) for name, value in attributes.items() if value is not None]
        return self.op.node(op_type, inputs, given, kinds, domain=MICROSOFT)

    # Attention

    def attention(self, node: ir.Node) -> None:
        end = Ending.of(node.outputs[0])
        if end is None or len(node.inputs) < 6 or len(node.outputs) != 3 or not _is_groupable(node):
            return
        query, key, value, mask, past_key, past_value = node.inputs[:6]
        if query is None or key is None or value is None or mask is None or past_key is None:
            return
        past_dims = dims_of(past_key)
        past = past_dims[2] if past_dims is not None else None
        if past is None or not any(is_causal(condition, past) for condition in conditions(mask)):
            return
        (batch, heads, sequence, _), shared = query.shape.dims, key.shape.dims[1]  # type: ignore[union-attr]
        if batch != 1 and isinstance(batch, int) and not (sequence == 1 or past == 0):
            return  # the operator would run at no size at all
        with self.op.at(node):
            flat = [flat_operand(self.op, operand) for operand in (query, key, value)]
            ends, total = self._lengths(mask, flat[0])
            inputs = [*flat, past_key, past_value, ends, total, None, None, None, self._bias(mask, query.dtype)]
            scale, cap = attribute(node, "scale"), attribute(node, "softcap", 0.0)
            outputs = [flat[0], *node.outputs[1:]]
            results = self._node(
                GROUPED_ATTENTION, inputs, outputs,
                num_heads=heads, kv_num_heads=shared, scale=scale, softcap=cap or None,
            )  # fmt: skip
        end.replace(self.op, results[0])
        replace_node(node, [None, *results[1:]])

    def _lengths(self, mask: ir.Value, query: ir.Value) -> tuple[ir.Value, ir.Value]:
        """The place of the last key of every text, and the number of keys: padding is the bias's business."""
        if mask not in self.lengths:
            op = self.op
            total = op.cast(op.vector([op.size(mask, 3)]), T.INT32)
            ends = op.Expand(op.Sub(total, op.constant([1], T.INT32)), op.vector([op.size(query, 0)]))
            self.lengths[mask] = ends, op.Squeeze(total, [0])
        return self.lengths[mask]

    def _bias(self, mask: ir.Value, dtype: ir.DataType | None) -> ir.Value:
        """The mask as numbers to add: the lowest one and not -inf, so that a query without any key has no NaN."""
        if mask not in self.biases:
            assert dtype is not None
            lowest = float(ml_dtypes.finfo(dtype.numpy()).min)
            bias = self.op.Where(mask, self.op.constant(0, dtype), self.op.constant(lowest, dtype))
            self.biases[mask] = bias
        return self.biases[mask]

    # Rotations

    def rotation(self, node: ir.Node) -> None:
        x, cos, sin = node.inputs[:3]
        shape = dims_of(cos)
        if x is None or cos is None or sin is None or len(node.inputs) > 3 or x.dtype not in _FLOATS:
            return
        if shape is None or len(shape) != 3 or not isinstance(shape[2], int):
            return
        attributes = attributes_in(node)
        with self.op.at(node):
            (cosines, positions), (sines, _) = self._table(cos), self._table(sin)
            (result,) = self._node(
                "RotaryEmbedding", [x, positions, cosines, sines], list(node.outputs), **attributes
            )  # fmt: skip
        replace_node(node, [result])

    def _table(self, rows: ir.Value) -> tuple[ir.Value, ir.Value]:
        if rows not in self.tables:
            op = self.op
            batch, sequence, width = rows.shape.dims  # type: ignore[union-attr]
            table = op.Reshape(rows, [-1, width], _shape=[None, width])
            sizes = op.vector([op.size(rows, 0), op.size(rows, 1)])
            count = op.ReduceProd(sizes, keepdims=0)
            positions = op.Reshape(op.Range(0, count, 1), sizes, _shape=[batch, sequence])
            self.tables[rows] = table, positions
        return self.tables[rows]

    # Normalisations

    def normalisation(self, node: ir.Node) -> None:
        x, weight = node.inputs[:2]
        total = made_by(x, "Add")
        dims = dims_of(x)
        if x is None or weight is None or total is None or dims is None or len(dims) != 3 or x.dtype not in _FLOATS:
            return
        if attribute(node, "axis", -1) not in (-1, 2) or attribute(node, "stash_type", 1) != 1 or x.is_graph_output():
            return
        if not all(same_dims(dims_of(operand), dims) for operand in total.inputs) or total.graph is not node.graph:
            return
        with self.op.at(total):
            self.counts["SkipSimplifiedLayerNormalization"] += 1
            epsilon = attribute_of("epsilon", float(attribute(node, "epsilon", 1e-5)))
            normalised, *_, summed = self._skip(total, weight, epsilon, node.outputs[0])
        replace_node(node, [normalised])
        replace_node(total, [summed])

    def _skip(self, total: ir.Node, weight: ir.Value, epsilon: ir.Attr, result: ir.Value) -> tuple[ir.Value, ...]:
        kinds = [(result.dtype, dims_of(result)), (None, None), (None, None), (result.dtype, dims_of(result))]
        inputs = [*total.inputs, weight]
        outputs = self.op.node("SkipSimplifiedLayerNormalization", inputs, [epsilon], kinds, domain=MICROSOFT)
        for unused in outputs[1:3]:
            unused.name = ""
        return outputs


def _is_groupable(node: ir.Node) -> bool:
    """Whether GroupQueryAttention takes the operands: one width for all, grouped heads, and nothing else asked for."""
    if not has_fixed_heads(node) or node.inputs[0] is None or node.inputs[0].dtype not in _FLOATS:
        return False
    query, key, value = (operand.shape.dims for operand in node.inputs[:3])  # type: ignore[union-attr]
    if not query[3] == key[3] == value[3] or query[3] % _HEAD or key[1] != value[1] or query[1] % key[1]:  # type: ignore[operator]
        return False
    asked = {name for name, each in node.attributes.items() if each.value not in (0, -1, None)}
    mask = node.inputs[3] if len(node.inputs) > 3 else None
    shape = dims_of(mask)
    is_mask = mask is not None and mask.dtype == T.BOOL and shape is not None and len(shape) == 4
    return is_mask and asked <= {"scale", "softcap"} and same_dim(shape[2], query[2])  # type: ignore[index]
