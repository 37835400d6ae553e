"""Products that round what they multiply as it comes, in a range of its own each time: no data is needed.

ONNX Runtime fuses DynamicQuantizeLinear, MatMulInteger and the product with the scales to one kernel.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
import onnx_ir as ir

from tonnx.ir.build import Builder
from tonnx.ir.rewrite import builder_of, replace_node
from tonnx.quant.integers import Form, Stored, by_channel
from tonnx.quant.layers import Candidate, candidates

KINDS = ("Gemm", "MatMul")


def write_dynamic(model: ir.Model, chosen: Collection[str]) -> dict[str, Stored]:
    """Let these layers multiply integers; gives their weights by name."""
    op = builder_of(model)
    rounded: dict[ir.Value, Sequence[ir.Value]] = {}
    stored = {}
    for layer in candidates(model):
        if layer.name in chosen:
            name = str(layer.weight.name)
            stored[name] = _write(op, layer, rounded)
    model.graph.sort()
    return stored


def _write(op: Builder, layer: Candidate, rounded: dict[ir.Value, Sequence[ir.Value]]) -> Stored:
    weight, name = layer.weight.const_value, str(layer.weight.name)
    assert weight is not None
    array = weight.numpy() if layer.axis else weight.numpy().T  # columns are channels
    stored = by_channel(array, 1, Form(8, 0, symmetric=True, paired=True))
    with op.at(layer.node):
        if layer.x not in rounded:  # layers that read the same value share its integers
            rounded[layer.x] = op.DynamicQuantizeLinear(layer.x, _outputs=3)
        integers, scale, zero_point = rounded[layer.x]
        matrix = op.initializer(f"{name}_quantized", ir.Tensor(np.ascontiguousarray(stored.integers)))
        sums = op.cast(op.MatMulInteger(integers, matrix, zero_point), ir.DataType.FLOAT)
        scales = op.initializer(f"{name}_scale", ir.Tensor(stored.scale))
        result = op.Mul(sums, op.Mul(scale, scales))
        replace_node(layer.node, [result if layer.bias is None else op.Add(result, layer.bias)])
    return stored
