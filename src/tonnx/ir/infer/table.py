"""The table of shape functions, and what they see of a node."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import onnx_ir as ir

from tonnx.ir.infer.dims import Dim, Dims, dims_of, ints_in


class PlannedNode:
    """What a shape function sees of the node to be."""

    __slots__ = ("attributes", "inputs", "outputs")

    def __init__(self, inputs: Sequence[ir.Value | None], attributes: Mapping[str, Any], outputs: int) -> None:
        self.inputs, self.attributes, self.outputs = inputs, attributes, outputs

    def dims(self, index: int) -> Dims | None:
        return dims_of(self.inputs[index]) if index < len(self.inputs) else None

    def ints(self, index: int, attribute: str = "") -> list[int] | None:
        """A list of integers: an input, or the attribute that it was in older versions."""
        if attribute in self.attributes:
            value = self.attributes[attribute]
            return [int(v) for v in value] if isinstance(value, (list, tuple)) else [int(value)]
        return ints_in(self.inputs[index]) if index < len(self.inputs) else None

    def present(self, index: int, attribute: str = "") -> bool:
        if attribute in self.attributes:
            return True
        return index < len(self.inputs) and self.inputs[index] is not None


Inferred = Sequence[Dim] | Sequence[Sequence[Dim] | None] | None
"""The shape of the only output, or those of all outputs."""
ShapeFunction = Callable[[PlannedNode], Inferred]
_SHAPES: dict[str, ShapeFunction] = {}


def shape_of(*op_types: str) -> Callable[[ShapeFunction], ShapeFunction]:
    """Enter a function as that which gives the shapes of these operators."""

    def enter(function: ShapeFunction) -> ShapeFunction:
        _SHAPES.update(dict.fromkeys(op_types, function))
        return function

    return enter


def shape_from(*op_types: str) -> Callable[[Callable[[PlannedNode, Dims], Inferred]], ShapeFunction]:
    """The same for a function that starts from the dimensions of the first input: without them, nothing is known."""

    def enter(function: Callable[[PlannedNode, Dims], Inferred]) -> ShapeFunction:
        def shape(node: PlannedNode) -> Inferred:
            dims = node.dims(0)
            return None if dims is None else function(node, dims)

        return shape_of(*op_types)(shape)

    return enter


def shapes(
    op_type: str, inputs: Sequence[ir.Value | None], attributes: Mapping[str, Any], outputs: int
) -> list[Dims | None]:
    """The shapes of all outputs, as far as they follow from what is known of the inputs."""
    function = _SHAPES.get(op_type)
    if function is None:
        return [None] * outputs
    result: Any = function(PlannedNode(inputs, attributes, outputs))
    if result and isinstance(result[0], (list, type(None))):
        return [*result, *[None] * outputs][:outputs]
    return [result, *[None] * (outputs - 1)]
