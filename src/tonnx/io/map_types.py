"""Types that onnx-ir does not know: maps, which classifiers of scikit-learn give, carried past it as they are.

Such a value has no type in between, and its own in its properties; what is written has it again.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator

import onnx

_KEY = "tonnx.type"


def hidden(proto: onnx.ModelProto) -> onnx.ModelProto:
    """What onnx-ir can read: the same, or a copy where there are maps."""
    if all(node.domain == "" for node in proto.graph.node) or not any(_has_map(v.type) for v in _values(proto.graph)):
        return proto
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    for value in _values(copy.graph):
        if _has_map(value.type):
            value.metadata_props.add(key=_KEY, value=base64.b64encode(value.type.SerializeToString()).decode())
            value.ClearField("type")
    return copy


def restore(graph: onnx.GraphProto) -> None:
    """After onnx-ir has written it."""
    for value in _values(graph):
        for i, entry in enumerate(value.metadata_props):
            if entry.key == _KEY:
                value.type.ParseFromString(base64.b64decode(entry.value))
                del value.metadata_props[i]
                break


def _values(graph: onnx.GraphProto) -> Iterator[onnx.ValueInfoProto]:
    yield from (*graph.input, *graph.output, *graph.value_info)
    for node in graph.node:
        for attribute in node.attribute:
            for body in (attribute.g, *attribute.graphs) if attribute.HasField("g") else attribute.graphs:
                yield from _values(body)


def _has_map(type: onnx.TypeProto) -> bool:
    kind = type.WhichOneof("value")
    if kind in ("sequence_type", "optional_type"):
        return _has_map(getattr(type, kind).elem_type)
    return kind == "map_type"
