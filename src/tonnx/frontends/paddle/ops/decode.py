"""Decoding: what follows a beam search."""

from __future__ import annotations

import onnx_ir as ir

from tonnx.frontends.paddle.lower.rules import Value, lower
from tonnx.ir.build import Builder
from tonnx.ir.infer import dims_of

T = ir.DataType


@lower("gather_tree")
def gather_tree(op: Builder, ids: Value, parents: Value) -> ir.Value:
    """From the last step back to the first: the token of each beam, and the beam that it came from."""
    dims = dims_of(ids)
    assert dims is not None and ids.dtype is not None
    step = dims[1:]
    beams = op.Range(op.constant(0, T.INT64), op.scalar(op.size(ids, 2)), op.constant(1, T.INT64))
    start = op.Expand(beams, op.vector([op.size(ids, 1), op.size(ids, 2)]), _shape=step)
    inner = op.inner("step", [("beam", T.INT64, step), ("ids", ids.dtype, step), ("parents", T.INT64, step)])
    beam, tokens, origins = inner.graph.inputs
    with inner:
        origin = inner.GatherElements(origins, beam, axis=1)
        inner.graph.outputs.extend([origin, inner.GatherElements(tokens, beam, axis=1)])
    attributes = [
        ir.AttrGraph("body", inner.graph),
        ir.AttrInt64("num_scan_inputs", 2),
        ir.AttrInt64s("scan_input_directions", [1, 1]),
        ir.AttrInt64s("scan_output_directions", [1]),
    ]
    outputs = [(T.INT64, step), (ids.dtype, dims)]
    return op.node("Scan", [start, ids, op.cast(parents, T.INT64)], attributes, outputs)[1]
