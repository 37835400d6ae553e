"""Common subexpressions: the same operator on the same inputs is computed once."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from tonnx.ir.rewrite import all_graphs, replace_node

_NOT_REPEATABLE = frozenset(
    "RandomUniform RandomNormal RandomUniformLike RandomNormalLike Multinomial Bernoulli Dropout Constant".split()
)
_NOT_COMPARED = frozenset(
    ir.AttributeType[kind]
    for kind in "GRAPH GRAPHS TYPE_PROTO TYPE_PROTOS SPARSE_TENSOR SPARSE_TENSORS TENSORS".split()
)


def merge_common(model: ir.Model) -> int:
    """Merge equal nodes within each graph; returns how many went. One pass: inputs are merged before their readers."""
    merged = 0
    for graph in all_graphs(model):
        seen: dict[Any, ir.Node] = {}
        for node in list(graph):
            key = _key(node)
            if key is None:
                continue
            first = seen.setdefault(key, node)
            if first is not node:
                replace_node(node, first.outputs)
                merged += 1
    return merged


def _key(node: ir.Node) -> Any:
    if node.op_type in _NOT_REPEATABLE or node.domain != "":
        return None
    attributes = []
    for name, attribute in sorted(node.attributes.items()):
        if attribute.type in _NOT_COMPARED or attribute.is_ref():
            return None
        attributes.append((name, _frozen(attribute)))
    return node.op_type, len(node.outputs), tuple(map(id, node.inputs)), tuple(attributes)


def _frozen(attribute: ir.Attr) -> Any:
    value = attribute.value
    if attribute.type == ir.AttributeType.TENSOR:
        array = value.numpy()
        return array.dtype.str, array.shape, array.tobytes()
    return tuple(value) if isinstance(value, (list, tuple)) else value
