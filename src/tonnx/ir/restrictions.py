"""Sizes that an operator of a runtime does not take, although the graph around it would."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import onnx_ir as ir

from tonnx.ir.size_expressions import derived_sizes

MICROSOFT = "com.microsoft"
"""The domain of ONNX Runtime's own operators."""
GROUPED_ATTENTION = "GroupQueryAttention"


@dataclass(frozen=True)
class OneTextAfterPast:
    """ONNX Runtime's GroupQueryAttention takes several tokens after a past for one text at a time only.

    Each is a size, or the name of one.
    """

    batch: int | str
    sequence: int | str
    past: int | str

    def allows(self, sizes: Mapping[str, int]) -> bool:
        batch, sequence, past = (sizes.get(x, 0) if isinstance(x, str) else x for x in self._sizes)
        return batch <= 1 or sequence <= 1 or past == 0

    def nearest(self, sizes: Mapping[str, int]) -> list[dict[str, int]]:
        """These sizes if they are allowed, else those with one text, and those with one token."""
        if self.allows(sizes):
            return [dict(sizes)]
        derived = derived_sizes(list(sizes))
        names = [name for name in (self.batch, self.sequence) if isinstance(name, str) and name in sizes]
        changed = [{**sizes, name: 1} for name in names]
        for each in changed:
            each |= {name: int(expression.of(each)) for name, expression in derived.items()}
        return [each for each in changed if self.allows(each)]

    @property
    def _sizes(self) -> tuple[int | str, int | str, int | str]:
        return self.batch, self.sequence, self.past

    def __str__(self) -> str:
        return f"{self.batch} = 1, {self.sequence} = 1 or {self.past} = 0 ({GROUPED_ATTENTION} of ONNX Runtime)"


def restriction_of(model: ir.Model) -> OneTextAfterPast | None:
    """What the operators of a model restrict its sizes to; None: nothing."""
    for node in model.graph:
        if node.domain == MICROSOFT and node.op_type == GROUPED_ATTENTION and len(node.inputs) > 4:
            query, past = node.inputs[0], node.inputs[3]
            if query is not None and past is not None and query.shape is not None and past.shape is not None:
                return OneTextAfterPast(*map(_size, (query.shape[0], query.shape[1], past.shape[2])))
    return None


def _size(dim: Any) -> int | str:
    return dim if isinstance(dim, int) else str(dim.value)
