"""What kind of call an operator is, read off its schema."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

from tonnx.frontends.torch.capture.python_flow.operators import MARKERS

_KEEP_SHAPE = frozenset(
    "batch_norm group_norm hardswish hardswish_ instance_norm layer_norm log_softmax mish_ relu6 relu6_ rms_norm "
    "softmax".split()
)
"""Operators without the tag of those that work element by element, whose result is like their first argument."""


@cache
def mark_of(func: Any) -> str:
    """Which mark of recorded control flow a call is; empty for all others."""
    namespace, _, name = func._schema.name.partition("::")
    return name if namespace == "tonnx" and name in MARKERS else ""


@cache
def shaped_by_values(func: Any) -> bool:
    """Whether the values of tensors decide the shape of the result."""
    if torch.Tag.dynamic_output_shape in func.tags:
        return True
    tensors = [argument for argument in func._schema.arguments if str(argument.type) == "Tensor"]
    others = (getattr(func.overloadpacket, name) for name in func.overloadpacket.overloads())
    # repeat_interleave(tensor, repeats) is made of the one that is marked so, and is not marked itself.
    return len(tensors) > 1 and any(torch.Tag.dynamic_output_shape in other.tags for other in others)


@cache
def gives_number(func: Any) -> bool:
    """Whether a call reads the values of tensors."""
    return [str(result.type) for result in func._schema.returns] in (["bool"], ["number"], ["int"], ["float"])


@cache
def by_element(func: Any) -> bool:
    """Whether an operator works element by element; of `&` and its like PyTorch does not say so."""
    return torch.Tag.pointwise in func.tags or func.overloadpacket.__name__ in ("__and__", "__or__", "__xor__")


@cache
def keeps_shape(func: Any) -> bool:
    """Whether the one result of an operator has the shape that its operands are broadcast to."""
    keeps = by_element(func) or func.overloadpacket.__name__ in _KEEP_SHAPE
    return func.namespace == "aten" and keeps and [str(result.type) for result in func._schema.returns] == ["Tensor"]


@cache
def writes_first(func: Any) -> bool:
    """Whether an operator writes its result over its first argument, and does nothing else."""
    first, *others = func._schema.arguments
    return first.name == "self" and first.is_write and not any(argument.is_write for argument in others)


@cache
def depends_on_forms(func: Any) -> bool:
    """Whether, by all that its schema says, an operator gives tensors whose form depends on those of its arguments."""
    schema = func._schema
    return (
        func.namespace == "aten"
        and not schema.is_mutable
        and not {torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output} & set(func.tags)
        and all(str(result.type) in ("Tensor", "List[Tensor]", "Tensor[]") for result in schema.returns)
    )


@cache
def may_share_memory(func: Any) -> bool:
    """Whether a result may be a view of an argument."""
    return any(result.alias_info is not None for result in func._schema.returns)
