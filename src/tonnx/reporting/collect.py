"""What the page shows of a model's graph, as plain data: nodes by number, values by number, text by number.

The page holds thousands of nodes, so a node is a short list and strings that repeat are stored once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import onnx_ir as ir

from tonnx.history import operator_of
from tonnx.provenance import origin_of

_LONGEST = 200
"""Characters of an attribute that are shown."""


def graph_data(model: ir.Model) -> dict[str, Any]:
    """Nodes, values and the hierarchy of modules. ``nodes`` are in the order of the file."""
    return _Collector(model).data()


def weights_data(model: ir.Model) -> list[dict[str, Any]]:
    """Every stored tensor with its size, the largest first."""
    found = []
    for graph in model.graphs():
        for value in graph.initializers.values():
            tensor = value.const_value
            if tensor is not None:
                shape = [d for d in tensor.shape if isinstance(d, int)]
                found.append({"name": value.name, "dtype": tensor.dtype.name, "shape": shape, "bytes": tensor.nbytes})
    return sorted(found, key=lambda weight: -weight["bytes"])


def value_type(value: ir.Value) -> str:
    """``float[batch, 3]``."""
    dtype = value.dtype.name.lower() if value.dtype is not None else "?"
    if value.shape is None:
        return dtype
    return f"{dtype}[{', '.join(str(d) if isinstance(d, int) else _dim_name(d.value) for d in value.shape)}]"


def _dim_name(name: str | None) -> str:
    """onnx's shape inference calls a dimension that has no name ``unk__0``."""
    return "?" if not name or name.startswith("unk__") else name


def walk(model: ir.Model) -> Iterator[tuple[ir.Node, tuple[str, ...]]]:
    """Every node with its place among the modules; the body of an If or Loop is a module of its own."""
    yield from _graph_nodes(model.graph, ())


def _graph_nodes(graph: Iterable[ir.Node], inside: tuple[str, ...]) -> Iterator[tuple[ir.Node, tuple[str, ...]]]:
    for node in graph:
        path = (*inside, *_module_path(node))
        yield node, path
        for attribute in node.attributes.values():
            bodies = _bodies(attribute)
            for number, body in enumerate(bodies):
                label = f"{node.name or node.op_type} {attribute.name}" + (f" {number}" if len(bodies) > 1 else "")
                yield from _graph_nodes(body, (*path, label))


def _bodies(attribute: ir.Attr) -> list[ir.Graph]:
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
        self._values: dict[ir.Value, int] = {}
        self._types: list[int] = []
        self._names: list[str] = []
        self._fixed: list[int] = []
        """Values that no node makes: 1 for a weight, 2 for an input of a graph, 0 for all others."""

    def data(self) -> dict[str, Any]:
        nodes = []
        for node, path in walk(self._model):
            origin = origin_of(node)
            nodes.append(
                [
                    self._text(operator_of(node)),
                    node.name or "",
                    [self._value(value) for value in node.inputs],
                    [self._value(value) for value in node.outputs],
                    [[a.name, _shown(a)] for a in node.attributes.values()],
                    [self._text(part) for part in path],
                    self._text(origin.operator),
                    self._text(origin.source),
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

    def _value(self, value: ir.Value | None) -> int:
        if value is None:
            return -1
        if value not in self._values:
            self._values[value] = len(self._names)
            self._names.append(value.name or "")
            self._types.append(self._text(value_type(value)))
            kind = 1 if value.is_initializer() else 2 if value.is_graph_input() else 0
            self._fixed.append(kind)
        return self._values[value]


def _shown(attribute: ir.Attr) -> str:
    if attribute.type in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS):
        return "(graph)"
    if attribute.type == ir.AttributeType.TENSOR:
        tensor = attribute.as_tensor()
        if tensor.size <= 8:
            return str(tensor.numpy().tolist())
        return f"{tensor.dtype.name.lower()}{list(tensor.shape)}"
    text = str(attribute.value)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
