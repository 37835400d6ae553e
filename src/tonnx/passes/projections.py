"""Linear layers that read the same sequence and are reshaped at once, as queries, keys and values are: a Gemm each.

MatMul([b, s, k], [k, n]), Add([n]), Reshape: with more than two axes there is no product with a bias. Where several
such layers read one value, that is made a matrix once, [b·s, k], each of them becomes a Gemm, and their Reshapes start
from its result. One alone would win nothing: a Reshape more, an Add less.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from tonnx.ir.build import Builder
from tonnx.ir.infer import constant, dims_of
from tonnx.ir.provenance import forget
from tonnx.ir.rewrite import builder_of, replace_node
from tonnx.passes.match import only_reader


@dataclass(frozen=True)
class _Layer:
    product: ir.Node
    add: ir.Node
    bias: ir.Value
    reshapes: tuple[ir.Node, ...]


def join_projections(model: ir.Model) -> int:
    """Look at every value of the main graph that several MatMuls read; returns how many Adds went."""
    op = builder_of(model)
    first: dict[ir.Value, ir.Node] = {}
    for node in model.graph:
        if node.op_type == "MatMul" and node.domain == "" and node.inputs[0] is not None:
            first.setdefault(node.inputs[0], node)
    joined = 0
    for value, node in first.items():
        layers = list(_layers(op, value))
        if len(layers) > 1:
            _join(op, value, node, layers)
            joined += len(layers)
    return joined


def _layers(op: Builder, x: ir.Value) -> Iterator[_Layer]:
    shape = dims_of(x)
    if shape is None or len(shape) < 3 or not isinstance(shape[-1], int) or shape[-1] == 0:
        return
    if x.dtype not in (ir.DataType.FLOAT, ir.DataType.DOUBLE):
        return
    for product, place in x.uses():
        weight = product.inputs[1] if len(product.inputs) == 2 else None
        if product.op_type != "MatMul" or place != 0 or product.graph is not op.graph or constant(weight) is None:
            continue
        columns = dims_of(weight)
        add = only_reader(product.outputs[0], "Add")
        if columns is None or len(columns) != 2 or add is None:
            continue
        bias = next(value for value in add.inputs if value is not product.outputs[0])
        reshapes = tuple(use.node for use in add.outputs[0].uses())
        if bias is not None and dims_of(bias) == columns[1:] and _all_reshapes(add.outputs[0], reshapes):
            yield _Layer(product, add, bias, reshapes)


def _all_reshapes(value: ir.Value, readers: tuple[ir.Node, ...]) -> bool:
    """Whether all who read it have a target of their own, which says the same of a matrix."""
    return not value.is_graph_output() and bool(readers) and all(_own_target(node) for node in readers)


def _own_target(node: ir.Node) -> bool:
    target = constant(node.inputs[1]) if node.op_type == "Reshape" and node.domain == "" else None
    return target is not None and not (target == 0).any()


def _join(op: Builder, x: ir.Value, first: ir.Node, layers: list[_Layer]) -> None:
    assert x.shape is not None
    with op.at(first):
        matrix = op.Reshape(x, np.array([-1, x.shape[-1]], np.int64))
    for layer in layers:
        with op.at(layer.add):
            result = op.Gemm(matrix, layer.product.inputs[1], layer.bias)
        replace_node(layer.add, [result])
        forget(result)  # as a matrix it is nothing that the framework has
        op.graph.remove(layer.product, safe=True)
