"""Outputs that depend on random numbers: which they are, and a file in which dropout is switched off."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from tonnx.ir.infer import constant
from tonnx.ir.rewrite import all_graphs, inner_graphs
from tonnx.proof.trials.descent import outputs_after

_DRAWING = frozenset("RandomUniform RandomNormal RandomUniformLike RandomNormalLike Multinomial Bernoulli".split())


def random_outputs(model: ir.Model) -> frozenset[str]:
    """The names of the outputs that a random number has its part in."""
    functions = {(f.domain, f.name) for f in model.functions.values() if any(map(_draws, f))}
    return outputs_after(model, lambda node: _draws(node) or (node.domain, node.op_type) in functions)


def _draws(node: ir.Node) -> bool:
    if node.domain != "":
        return False
    return node.op_type in _DRAWING or _drops(node) or any(_draws(n) for g in inner_graphs(node) for n in g)


def _drops(node: ir.Node) -> bool:
    """Whether this is dropout that really drops."""
    if node.op_type != "Dropout" or node.domain != "" or len(node.inputs) < 3 or node.inputs[2] is None:
        return False
    training = constant(node.inputs[2])
    ratio = constant(node.inputs[1]) if node.inputs[1] is not None else None
    return (training is None or bool(training.any())) and (ratio is None or bool(ratio.any()))


def without_dropout(model: ir.Model) -> ir.Model | None:
    """A copy whose dropouts pass everything on; None if there is none that drops."""
    if not any(_drops(node) for graph in all_graphs(model) for node in graph):
        return None
    calm = model.clone()
    off = ir.Value(
        name="tonnx.training_off",
        type=ir.TensorType(ir.DataType.BOOL),
        shape=ir.Shape([]),
        const_value=ir.Tensor(np.array(False), name="tonnx.training_off"),
    )
    calm.graph.initializers.add(off)
    for graph in all_graphs(calm):
        for node in graph:
            if _drops(node):
                node.replace_input_with(2, off)
    return calm
