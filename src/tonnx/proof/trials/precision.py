"""Outputs of float64 that were computed in less: they cannot be asked for more than that."""

from __future__ import annotations

import onnx_ir as ir

from tonnx.ir.build import T
from tonnx.proof.trials.descent import outputs_after


def lowered_outputs(model: ir.Model) -> frozenset[str]:
    """The names of the float64 outputs that some node of fewer digits has its part in, or one that nothing is known of.

    Inputs and weights of fewer digits lower nothing: they are exact as float64.
    """
    outputs = frozenset(str(value.name) for value in model.graph.outputs if value.dtype == T.DOUBLE)
    return outputs & outputs_after(model, _lowers) if outputs else frozenset()


def _lowers(node: ir.Node) -> bool:
    """Whether a node gives reals of fewer digits than float64, or integers that stand for reals, or nobody knows."""
    if node.domain != "" or node.op_type == "QuantizeLinear":
        return True
    return any(
        value.dtype is not None and value.dtype.is_floating_point() and value.dtype != T.DOUBLE
        for value in node.outputs
    )
