"""A product with a reciprocal becomes a division: one node less, and the form of ``x * rsqrt(mean(x²))`` that is fused.

ONNX Runtime makes one kernel (SimplifiedLayerNormalization) of Pow, ReduceMean, Add, Sqrt, Div and Mul, not of the same
with Reciprocal and Mul. The two round differently, by the last bit.
"""

from __future__ import annotations

import onnx_ir as ir

from tonnx.ir.build import Builder
from tonnx.ir.infer import dims_of
from tonnx.ir.rewrite import replace_node, rewrite_each


def divide(model: ir.Model) -> int:
    """Look at every Reciprocal of the main graph that only products read; returns how many went."""
    return rewrite_each(model, "Reciprocal", _divide)


def _divide(op: Builder, reciprocal: ir.Node) -> bool:
    result, divisor = reciprocal.outputs[0], reciprocal.inputs[0]
    users = [use.node for use in result.uses()]
    if result.is_graph_output() or not users or not all(_is_product(op, user, result) for user in users):
        return False
    for user in users:
        factor = next(value for value in user.inputs if value is not result)
        with op.at(user):
            replace_node(user, [op.Div(factor, divisor, _shape=dims_of(user.outputs[0]))])
    op.graph.remove(reciprocal, safe=True)
    return True


def _is_product(op: Builder, node: ir.Node, reciprocal: ir.Value) -> bool:
    others = [value for value in node.inputs if value is not reciprocal]
    return node.op_type == "Mul" and node.domain == "" and node.graph is op.graph and len(others) == 1
