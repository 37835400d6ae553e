"""A recurrent layer that starts from zeros need not be told: it does so by default.

Zeros are a ConstantOfShape, mostly of a batch that is only known at run time, and parts of it, a layer each.
"""

from __future__ import annotations

import onnx_ir as ir

from tonnx.ir import facts
from tonnx.ir.infer import constant
from tonnx.ir.operands import attribute
from tonnx.passes.match import made_by

_STATES = {"LSTM": (5, 6), "GRU": (5,), "RNN": (5,)}
_PARTS = "Slice Identity Squeeze Unsqueeze Reshape Transpose Expand Split Gather Tile".split()
_DEPTH = 6


def drop_zero_states(model: ir.Model) -> int:
    """Look at every recurrent layer of the main graph; returns how many states went."""
    dropped = 0
    for node in model.graph:
        places = _STATES.get(node.op_type, ()) if node.domain == "" else ()
        for place in places:
            state = node.inputs[place] if place < len(node.inputs) else None
            if state is not None and _is_zero(state, _DEPTH):
                node.replace_input_with(place, None)
                dropped += 1
        while places and node.inputs[-1] is None:  # an empty name at the end says nothing
            node.resize_inputs(len(node.inputs) - 1)
    return dropped


def _is_zero(value: ir.Value | None, depth: int) -> bool:
    if value is None or value.is_graph_input() or value in facts.WEIGHT or facts.stays_in_file(value):
        return False
    if (array := constant(value)) is not None:
        return not array.any()
    if (filled := made_by(value, "ConstantOfShape")) is not None:
        number = attribute(filled, "value")
        return number is None or not number.numpy().any()
    part = made_by(value, *_PARTS) if depth else None
    return part is not None and _is_zero(part.inputs[0], depth - 1)
