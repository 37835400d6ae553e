"""What a legaliser rule sees of the node that it rewrites."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
import onnx_ir as ir

from tonnx.ir.fold import FOLDED, fold
from tonnx.ir.infer import Dims, dims_of
from tonnx.ir.operands import attributes_in
from tonnx.ir.schema import Signature, signature


class Blocked(Exception):
    """Raised by a rule: this node cannot be expressed one version further down, for this reason."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


Thing = TypeVar("Thing")


def known(thing: Thing | None, otherwise: str) -> Thing:
    """Something without which a rule cannot work; ``otherwise`` says what is not known."""
    if thing is None:
        raise Blocked(otherwise)
    return thing


class NodeView:
    """A node, read through the schema of the version that it is written in."""

    __slots__ = ("node", "signature")

    def __init__(self, node: ir.Node, signature: Signature) -> None:
        self.node = node
        self.signature = signature

    @property
    def op_type(self) -> str:
        return self.node.op_type

    def __getitem__(self, name: str) -> ir.Value | None:
        """The input of that formal name; None when it is absent."""
        for i, formal in enumerate(self.signature.inputs):
            if formal.name == name:
                return self.node.inputs[i] if i < len(self.node.inputs) else None
        raise KeyError(f"{self.op_type}-{self.signature.since} has no input {name!r}")

    def need(self, name: str) -> ir.Value:
        return known(self[name], f"its input {name} is missing")

    @property
    def inputs(self) -> list[ir.Value | None]:
        return list(self.node.inputs)

    def attr(self, name: str, default: Any = None) -> Any:
        """An attribute's value, or ``default``. The schema's own default is not looked up: rules say theirs."""
        attribute = self.node.attributes.get(name)
        if attribute is None:
            return default
        if attribute.is_ref():
            raise Blocked(f"its attribute {name} is a parameter of the enclosing function")
        value = attribute.value
        return list(value) if isinstance(value, tuple) else value

    def attributes(self, *without: str) -> dict[str, Any]:
        """All attributes but ``without``, to hand on."""
        return {name: self.attr(name) for name in self.node.attributes if name not in without}

    def const(self, name: str) -> np.ndarray | None:
        """The contents of an input: None when absent, refused when known only at run time."""
        value = self[name]
        if value is None:
            return None
        return known(
            constant_of(value), f"its input {name} is computed at run time, and is an attribute in older versions"
        )

    def ints(self, name: str) -> list[int] | None:
        array = self.const(name)
        return None if array is None else [int(v) for v in array.reshape(-1)]

    def rank(self, name: str) -> int:
        """The rank of an input, without which this rule cannot work."""
        return known(self.need(name).shape, f"the rank of its input {name} is not known").rank()

    def dims(self, name: str) -> Dims | None:
        return dims_of(self[name])

    def dtype(self, name: str) -> ir.DataType:
        return known(self.need(name).dtype, f"the element type of its input {name} is not known")

    def used(self, index: int) -> bool:
        outputs = self.node.outputs
        return index < len(outputs) and (bool(outputs[index].uses()) or outputs[index].is_graph_output())

    @property
    def outputs(self) -> int:
        return len(self.node.outputs)


def constant_of(value: ir.Value) -> np.ndarray | None:
    """The contents of an initializer, of a Constant node, or of small arithmetic on those and on known sizes."""
    if value.const_value is not None and not value.is_graph_input():
        return value.const_value.numpy()
    producer = value.producer()
    if producer is None or producer.domain != "":
        return None
    if producer.op_type == "Constant":
        tensor = ir.convenience.get_const_tensor(value)
        return None if tensor is None else tensor.numpy()
    return _computed(producer)


def number_of(value: ir.Value) -> float | None:
    """The one number of such a value; None if there are several, or only the run knows."""
    array = constant_of(value)
    return float(array.item()) if array is not None and array.size == 1 else None


def _computed(node: ir.Node) -> np.ndarray | None:
    if any(attribute.is_ref() for attribute in node.attributes.values()) or not node.inputs or len(node.outputs) > 1:
        return None
    if "broadcast" in node.attributes or "consumed_inputs" in node.attributes:  # of opset 6 and before
        return None
    attributes = attributes_in(node)
    if node.op_type in ("Shape", "Size"):
        dims = dims_of(node.inputs[0])
        if dims is None or not all(isinstance(dim, int) for dim in dims):
            return None
        sizes = np.asarray(dims[attributes.get("start", 0) : attributes.get("end")], np.int64)
        return sizes if node.op_type == "Shape" else np.asarray(np.prod(sizes, dtype=np.int64))
    if node.op_type not in FOLDED:
        return None
    arrays = [None if value is None else constant_of(value) for value in node.inputs]
    is_small = all(
        value is None or (array is not None and array.size <= _SMALL)
        for value, array in zip(node.inputs, arrays, strict=True)
    )
    return fold(node.op_type, arrays, attributes) if is_small else None


_SMALL = 64
"""Elements: sizes and axes are few."""


def schema_default(op_type: str, opset: int, attribute: str) -> Any:
    """The default that the specification gives an attribute."""
    schema = signature(op_type, opset)
    return None if schema is None else schema.attributes[attribute].default
