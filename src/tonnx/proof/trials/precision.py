"""Outputs that were computed in fewer digits than they have: they cannot be asked for more than that."""

from __future__ import annotations

from functools import partial

import onnx_ir as ir

from tonnx.ir.build import T
from tonnx.proof.trials.descent import outputs_after

_FEWEST_DIGITS_FIRST = {T.BFLOAT16: "bfloat16", T.FLOAT16: "float16", T.FLOAT: "float32"}


def lowered_outputs(model: ir.Model) -> dict[str, str]:
    """By the name of an output of reals: the dtype of fewer digits that some node has which has its part in it.

    Inputs and weights of fewer digits lower nothing: they are exact in more.
    """
    lowered: dict[str, str] = {}
    for place, (dtype, name) in enumerate(_FEWEST_DIGITS_FIRST.items()):
        wider = (*tuple(_FEWEST_DIGITS_FIRST)[place + 1 :], T.DOUBLE)
        outputs = {str(value.name) for value in model.graph.outputs if value.dtype in wider} - lowered.keys()
        if outputs:
            lowers = _lowers if dtype == T.FLOAT else partial(_computes, dtype)
            lowered |= dict.fromkeys(sorted(outputs & outputs_after(model, lowers)), name)
    return lowered


def _computes(dtype: ir.DataType, node: ir.Node) -> bool:
    """Whether a node gives values of a dtype that no constant holds."""
    constant = all(value is None or value.const_value is not None for value in node.inputs)
    return not constant and any(value.dtype == dtype for value in node.outputs)


def _lowers(node: ir.Node) -> bool:
    """Whether a node gives reals of fewer digits than float64, or integers that stand for reals, or nobody knows."""
    if node.domain != "" or node.op_type == "QuantizeLinear":
        return True
    return any(
        value.dtype is not None and value.dtype.is_floating_point() and value.dtype != T.DOUBLE
        for value in node.outputs
    )
