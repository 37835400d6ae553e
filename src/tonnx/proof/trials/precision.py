"""Outputs of float64 that were computed in less: they cannot be asked for more than that."""

from __future__ import annotations

import onnx_ir as ir

from tonnx.ir.rewrite import inner_graphs

T = ir.DataType


def lowered_outputs(model: ir.Model) -> frozenset[str]:
    """The names of the float64 outputs that some node of fewer digits has its part in, or one that nothing is known of.

    Inputs and weights of fewer digits lower nothing: they are exact as float64.
    """
    outputs = [value for value in model.graph.outputs if value.dtype == T.DOUBLE]
    if not outputs:
        return frozenset()
    lowered: set[ir.Value] = set()

    def visit(graph: ir.Graph) -> bool:
        some = False
        for node in graph:
            inside = max(map(visit, inner_graphs(node)), default=False)  # all of them: each adds to what is lowered
            if inside or node.domain != "" or any(value in lowered for value in node.inputs) or _lowers(node):
                lowered.update(node.outputs)
                some = True
        return some

    visit(model.graph)
    return frozenset(str(value.name) for value in outputs if value in lowered)


def _lowers(node: ir.Node) -> bool:
    """Whether a node gives reals of fewer digits than float64, or integers that stand for reals."""
    if node.op_type == "QuantizeLinear":
        return True
    return any(
        value.dtype is not None and value.dtype.is_floating_point() and value.dtype != T.DOUBLE
        for value in node.outputs
    )
