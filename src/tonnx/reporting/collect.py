"""What the page shows of a model's graph, as plain data: nodes by number, values by number, text by number.

The page holds thousands of nodes, so a node is a short list and strings that repeat are stored once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import onnx_ir as ir

from tonnx.ir.history import operator_of
from tonnx.ir.provenance import origin_of

_LONGEST = 200
"""Characters of an attribute that are shown."""
MOST_IN_FUNCTIONS = 20_000
"""Nodes from which on functions are not gone into: calls in calls can be without end."""
_NOWHERE = ir.Node("", "", ())


def graph_data(model: ir.Model) -> dict[str, Any]:
    """Nodes, values and the hierarchy of modules. ``nodes`` are in the order of the file."""
    return _Collector(model).data()


def weights_data(model: ir.Model) -> list[dict[str, Any]]:
    """Every stored tensor with its size, the largest first."""
    weights = []
    for graph in model.graphs():
        for value in graph.initializers.values():
            tensor = value.const_value
            if tensor is not None:
                shape = [d for d in tensor.shape if isinstance(d, int)]
                weights.append({"name": value.name, "dtype": tensor.dtype.name, "shape": shape, "bytes": tensor.nbytes})
    return sorted(weights, key=lambda weight: -weight["bytes"])


def value_type(value: ir.Value) -> str:
    """``float[batch, 3]``."""
    dtype = value.dtype.name.lower() if value.dtype is not None else "?"
    if value.shape is None:
        return dtype
    return f"{dtype}[{', '.join(str(d) if isinstance(d, int) else _dim_name(d.value) for d in value.shape)}]"


def _dim_name(name: str | None) -> str:
    """onnx's shape inference calls a dimension that has no name ``unk__0``."""
    return "?" if not name or name.startswith("unk__") else name


@dataclass(frozen=True)
class Spot:
    """A node and its place among the modules; what an If, a Loop or a function runs is a module of its own."""

    node: ir.Node
    path: tuple[str, ...]
    owner: int = -1
    """The number of the node that runs it."""
    call: int = -1
    """The number of the call, if it is in a function: a function is there once, but is shown wherever it is called."""


def walk(model: ir.Model) -> Iterator[Spot]:
    """Every node, bodies right after the node that runs them."""
    return _Walk(model).nodes(model.graph, Spot(_NOWHERE, ()), ())


class _Walk:
    def __init__(self, model: ir.Model) -> None:
        self._functions = model.functions
        self._count = 0

    def nodes(self, body: Iterable[ir.Node], within: Spot, calls: tuple[tuple[str, str, str], ...]) -> Iterator[Spot]:
        base = _module_path(within.node)
        for node in body:
            module = _module_path(node)
            # A body says again where the node stands that runs it.
            module = module[len(base) :] if within.owner >= 0 and module[: len(base)] == base else module
            spot = Spot(node, (*within.path, *module), within.owner, within.call)
            number = self._count
            self._count += 1
            yield spot
            for attribute in node.attributes.values():
                bodies = _bodies(attribute)
                for place, graph in enumerate(bodies):
                    label = f"{_label(node, number)} {attribute.name}" + (f" {place}" if len(bodies) > 1 else "")
                    yield from self.nodes(graph, Spot(node, (*spot.path, label), number, spot.call), calls)
            key = node.op_identifier()
            if key in self._functions and key not in calls and self._count < MOST_IN_FUNCTIONS:
                inside = Spot(node, (*spot.path, f"{_label(node, number)} body"), number, number)
                yield from self.nodes(self._functions[key], inside, (*calls, key))


def _label(node: ir.Node, number: int) -> str:
    last = (node.name or "").rpartition("/")[2]
    return last or f"{node.op_type} #{number}"


def _bodies(attribute: ir.Attr) -> list[ir.Graph]:
    if attribute.is_ref():
        return []
    if attribute.type == ir.AttributeType.GRAPH:
        return [attribute.as_graph()]
    if attribute.type == ir.AttributeType.GRAPHS:
        return list(attribute.as_graphs())
    return []


def _module_path(node: ir.Node) -> tuple[str, ...]:
    """From the metadata of our files; from the slashes in the names of others."""
    module = origin_of(node).module
    if module:
        return tuple(part for part in module.split(".") if part)
    parts = [part for part in (node.name or "").split("/") if part]
    return tuple(parts[:-1])


class _Collector:
    def __init__(self, model: ir.Model) -> None:
        self._model = model
        self._texts: dict[str, int] = {}
        self._values: dict[tuple[ir.Value, int], int] = {}
        self._types: list[int] = []
        self._names: list[str] = []
        self._fixed: list[int] = []
        """Values that no node makes: 1 for a weight, 2 for an input of a graph, 0 for all others."""

    def data(self) -> dict[str, Any]:
        nodes: list[list[Any]] = []
        for spot in walk(self._model):
            node = spot.node
            origin = origin_of(node)
            inputs = [self._value(value, spot.call) for value in node.inputs]
            function = self._model.functions.get(node.op_identifier())
            if function is not None:  # what it reads is what the call gives it
                arguments = [*inputs, *[-1] * len(function.inputs)]
                self._values |= {(value, len(nodes)): arguments[i] for i, value in enumerate(function.inputs)}
            nodes.append(
                [
                    self._text(operator_of(node)),
                    node.name or "",
                    inputs,
                    [self._value(value, spot.call) for value in node.outputs],
                    [[a.name, attribute_text(a)] for a in node.attributes.values()],
                    [self._text(part) for part in spot.path],
                    self._text(origin.operator),
                    self._text(origin.source),
                    spot.owner,
                ]
            )
        return {
            "nodes": nodes,
            "values": {"names": self._names, "types": self._types, "fixed": self._fixed},
            "outputs": [self._value(value) for value in self._model.graph.outputs],
            "inputs": [self._value(v) for v in self._model.graph.inputs if not v.is_initializer()],
            "texts": list(self._texts),
        }

    def _text(self, text: str) -> int:
        return self._texts.setdefault(text, len(self._texts))

    def _value(self, value: ir.Value | None, call: int = -1) -> int:
        if value is None:
            return -1
        key = (value, call)
        if key not in self._values:
            self._values[key] = len(self._names)
            self._names.append(value.name or "")
            self._types.append(self._text(value_type(value)))
            kind = 1 if value.is_initializer() else 2 if value.is_graph_input() else 0
            self._fixed.append(kind)
        return self._values[key]


def attribute_text(attribute: ir.Attr) -> str:
    """The value of an attribute in few characters."""
    if attribute.is_ref():
        return f"{attribute.ref_attr_name} of the call"
    if attribute.type in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS):
        return "(graph)"
    if attribute.type == ir.AttributeType.TENSOR:
        tensor = attribute.as_tensor()
        if tensor.size <= 8:
            return str(tensor.numpy().tolist())
        return f"{tensor.dtype.name.lower()}{list(tensor.shape)}"
    text = str(attribute.value)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
