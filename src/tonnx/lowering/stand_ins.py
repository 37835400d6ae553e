"""Values in the place of results that nobody could compute, so that one walk finds all faults of a model.

A fault that hangs on such a value is most likely its consequence, and is left out. Any other is a fault of its own, and
is listed beside the operators that have no rule.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import onnx_ir as ir

from tonnx.errors import Occurrence, TonnxError


class StandIn(ir.Value):
    """A value that no node makes, and that is no input either."""

    def __init__(self, dtype: ir.DataType, shape: ir.Shape | None) -> None:
        super().__init__(None, index=None, name="unsupported", type=ir.TensorType(dtype), shape=shape)


def hangs_on_stand_in(values: Iterable[Any]) -> bool:
    """Whether any of the values is a stand-in, or is computed from one."""
    pending, seen = list(values), set[int]()
    while pending:
        value = pending.pop()
        if isinstance(value, (list, tuple)):
            pending += value
            continue
        if isinstance(value, StandIn):
            return True
        if not isinstance(value, ir.Value) or id(value) in seen:
            continue
        seen.add(id(value))
        maker = value.producer()
        if maker is None:
            continue
        pending += maker.inputs
        for attribute in maker.attributes.values():
            if attribute.type == ir.AttributeType.GRAPH and not attribute.is_ref():
                body = attribute.as_graph()
                pending += body.outputs
                pending += [operand for node in body.all_nodes() for operand in node.inputs]
    return False


def fault_at(error: Exception, operator: str, module: str, source: str) -> Occurrence:
    """A fault of a rule as one more operator that cannot be exported, with the reason."""
    if isinstance(error, TonnxError):
        reason = ", ".join(part for part in (error.what, error.why) if part)
    else:
        reason = f"{type(error).__name__}: {error}"
    return Occurrence(operator, module, source, " ".join(reason.split()))
