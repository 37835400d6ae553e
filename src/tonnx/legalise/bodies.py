"""Taking the body of one control-flow operator into that of another."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from tonnx.ir import facts


def inline(into: ir.Graph, body: ir.Graph, inputs: Sequence[ir.Value]) -> list[ir.Value]:
    """Move the nodes of ``body`` to the end of ``into``, with ``inputs`` for its inputs; returns its outputs.

    The engine legalises a body before the node that owns it, so these nodes need nothing more.
    """
    outputs = list(body.outputs)
    body.outputs.clear()
    for formal, actual in zip(body.inputs, inputs, strict=True):
        for user, index in tuple(formal.uses()):
            user.replace_input_with(index, actual)
        outputs = [actual if value is formal else value for value in outputs]
    for value in list(body.initializers.values()):
        body.initializers.pop(value.name or "")
        into.initializers.add(value)
    for node in list(body):
        body.remove(node)
        into.append(node)
        facts.LEGAL.add(node)
    return outputs
