"""LSTM, GRU and RNN: batch first (14)."""

from __future__ import annotations

import onnx_ir as ir

from tonnx.ir.build import Builder
from tonnx.legalise.node_view import NodeView
from tonnx.legalise.table import down

_FAMILY = ("LSTM", "GRU", "RNN")
_BATCH_FIRST = ("X", "initial_h", "initial_c")


@down(_FAMILY, 14, up="time first is the default")
def time_first(op: Builder, node: NodeView) -> tuple[ir.Value | None, ...] | None:
    """Batch first is transposed to time first, and back."""
    if not node.attr("layout", 0):
        return None
    inputs = [
        op.Transpose(value, perm=[1, 0, 2]) if value is not None and formal.name in _BATCH_FIRST else value
        for value, formal in zip(node.inputs, node.signature.inputs, strict=False)
    ]
    emit = getattr(op, node.op_type)
    outputs = emit(*inputs, _outputs=node.outputs, **node.attributes("layout"))
    results: list[ir.Value | None] = []
    for i, value in enumerate(outputs):
        if not node.used(i):
            results.append(None)
        else:  # time, direction, batch, hidden; the states have no time
            results.append(op.Transpose(value, perm=[2, 0, 1, 3] if i == 0 else [1, 0, 2]))
    return tuple(results)
