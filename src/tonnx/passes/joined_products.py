"""Products of one value with several weights, as queries, keys and values are: one product, and Split.

A token at a time, a product of a row with a narrow weight costs as much for being called as for its numbers. From three
products on the Split that follows costs less than what is saved. Weights that others read, or that stay in a file of
their own, are left alone: they would be stored twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import onnx_ir as ir

from tonnx.ir import facts
from tonnx.ir.build import Builder, T
from tonnx.ir.infer import dims_of
from tonnx.ir.operands import attribute
from tonnx.ir.provenance import forget
from tonnx.ir.rewrite import builder_of, replace_node
from tonnx.passes.match import only_reader

_FEWEST = 3
_PLAIN = {"alpha": 1.0, "beta": 1.0, "transA": 0, "transB": 0}


def join_products(model: ir.Model) -> int:
    """Look at every value of the main graph that several MatMuls or Gemms read; returns how many products went."""
    op = builder_of(model)
    alike: dict[tuple[object, ...], list[ir.Node]] = {}
    for node in model.graph:
        if node.op_type in ("MatMul", "Gemm") and node.domain == "" and _has_own_weights(node):
            alike.setdefault((node.op_type, len(node.inputs), node.inputs[0], _dtype(node)), []).append(node)
    groups = [nodes for nodes in alike.values() if len(nodes) >= _FEWEST]
    for nodes in groups:
        _join(op, nodes)
    return sum(len(nodes) - 1 for nodes in groups)


def _dtype(node: ir.Node) -> ir.DataType | None:
    return node.inputs[1].dtype if node.inputs[1] is not None else None


def _has_own_weights(node: ir.Node) -> bool:
    """Whether a product has a weight, and perhaps a bias, that nobody else reads and that may be stored otherwise."""
    if any(attribute(node, name, value) != value for name, value in _PLAIN.items()):
        return False
    ranks = [len(dims_of(value) or ()) for value in node.inputs[1:]]
    return ranks in ([2], [2, 1]) and all(_is_own(value) for value in node.inputs[1:])


def _is_own(value: ir.Value | None) -> bool:
    if value is None or not value.is_initializer() or value.is_graph_input() or value.is_graph_output():
        return False
    is_stored = value.const_value is not None and not facts.stays_in_file(value)
    return is_stored and len(value.uses()) == 1 and value.dtype in (T.FLOAT, T.FLOAT16)


def _join(op: Builder, nodes: Sequence[ir.Node]) -> None:
    first = nodes[0]
    widths = [(dims_of(node.inputs[1]) or [0])[-1] for node in nodes]
    shape = [*(dims_of(first.outputs[0]) or [])[:-1], sum(map(int, widths))]  # type: ignore[arg-type]
    sums = [_biased(node) for node in nodes]
    with op.at(first):
        operands = [_stored(op, [node.inputs[place] for node in nodes]) for place in range(1, len(first.inputs))]
        whole = getattr(op, first.op_type)(first.inputs[0], *operands, _shape=shape)
        if all(sums):
            forget(whole)
            whole = op.Add(whole, _stored(op, [bias for _, bias in filter(None, sums)]), _shape=shape)
        parts = op.Split(whole, np.array(widths, np.int64), axis=-1, _outputs=len(nodes))
    forget(whole)
    for node, biased, part in zip(nodes, sums, parts, strict=True):
        if biased is None or not all(sums):
            replace_node(node, [part])
        else:
            replace_node(biased[0], [part])
            op.graph.remove(node, safe=True)


def _biased(node: ir.Node) -> tuple[ir.Node, ir.Value] | None:
    """What adds a bias of its own to a product, and the bias."""
    add = only_reader(node.outputs[0], "Add")
    if add is None:
        return None
    bias = next((value for value in add.inputs if value is not node.outputs[0]), None)
    return (add, bias) if _is_own(bias) and dims_of(bias) == (dims_of(node.inputs[1]) or [])[1:] else None  # type: ignore


def _stored(op: Builder, values: Sequence[ir.Value | None]) -> ir.Value:
    """One weight of all columns; it is put together when it is written, so that it is not in memory twice."""
    tensors = [value.const_value for value in values if value is not None and value.const_value is not None]
    sizes = [tensor.shape.numpy() for tensor in tensors]
    shape = ir.Shape([*sizes[0][:-1], sum(size[-1] for size in sizes)])
    dtype, name = tensors[0].dtype, f"{values[0].name}.joined" if values[0] is not None else "joined"
    return op.initializer(name, ir.LazyTensor(partial(_together, tensors, dtype), dtype=dtype, shape=shape, name=name))


def _together(tensors: Sequence[ir.TensorProtocol], dtype: ir.DataType) -> ir.Tensor:
    return ir.Tensor(np.concatenate([tensor.numpy() for tensor in tensors], axis=-1), dtype=dtype)
