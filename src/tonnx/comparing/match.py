"""Which node of one graph is which of another: by what they compute, never by their names.

A node has a fingerprint: its operator, its attributes, and the fingerprints of what it reads, down to the bytes of the
weights. Equal fingerprints are equal computations. What is left between them is aligned in the order of the graph,
first by operator, attributes and weights, then by operator and module, then by operator alone.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from typing import Any

import numpy as np
import onnx_ir as ir

from tonnx.ir.history import operator_of
from tonnx.ir.provenance import origin_of


@dataclass
class Matching:
    """Pairs of nodes and of values of two graphs."""

    nodes: dict[ir.Node, ir.Node] = field(default_factory=dict)
    values: dict[ir.Value, ir.Value] = field(default_factory=dict)
    equal: set[ir.Node] = field(default_factory=set)
    """Nodes of the first graph that compute exactly what their partners compute."""


def constant_of(value: ir.Value | None) -> np.ndarray | None:
    """What an initializer, also one that is an input, or a Constant node holds."""
    tensor = None if value is None else ir.convenience.get_const_tensor(value)
    if tensor is None:
        return None
    return tensor.numpy().astype(str) if tensor.dtype == ir.DataType.STRING else tensor.numpy()


def match(left: ir.Graph, right: ir.Graph, outer: Mapping[ir.Value, ir.Value] | None = None) -> Matching:
    """The nodes of two graphs side by side; ``outer`` is what is known of values around them."""
    matching = Matching(values=dict(outer or {}))
    matching.values.update(_pair_inputs(left.inputs, right.inputs))
    marks: dict[ir.Value, str] = {}
    for number, pair in enumerate(matching.values.items()):
        marks.update(dict.fromkeys(pair, f"given {number}"))
    prints = {**_fingerprints(left, marks), **_fingerprints(right, marks)}
    ours, theirs = ([node for node in graph if not _is_constant(node)] for graph in (left, right))
    labels: list[Callable[[ir.Node], Any]] = [
        prints.__getitem__,
        lambda node: (_rich(node, marks), origin_of(node).module),
        lambda node: (operator_of(node), origin_of(node).module),
        operator_of,
    ]
    matching.nodes.update(_aligned(ours, theirs, labels))
    _pair_reordered(matching, ours, theirs, prints)
    for one, other in matching.nodes.items():
        matching.values.update(zip(one.outputs, other.outputs, strict=False))
        if prints[one] == prints[other]:
            matching.equal.add(one)
    return matching


def _pair_inputs(left: Sequence[ir.Value], right: Sequence[ir.Value]) -> dict[ir.Value, ir.Value]:
    """By name; those without a namesake in order. An initializer that is an input is a weight."""
    left, right = ([value for value in values if not value.is_initializer()] for values in (left, right))
    names = {value.name: value for value in right}
    pairs = {value: names[value.name] for value in left if value.name in names}
    taken = set(pairs.values())
    rest = [value for value in right if value not in taken]
    return pairs | dict(zip((value for value in left if value not in pairs), rest, strict=False))


def _is_constant(node: ir.Node) -> bool:
    return node.domain == "" and node.op_type == "Constant"


def _fingerprints(graph: ir.Graph, marks: dict[ir.Value, str]) -> dict[ir.Node, str]:
    """Of every node; ``marks`` gets those of all values."""
    prints = {}
    for node in graph:
        text = repr((_rich(node, marks), [_mark(value, marks) for value in node.inputs], len(node.outputs)))
        prints[node] = hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
        if not _is_constant(node):
            marks.update({value: f"{prints[node]}:{i}" for i, value in enumerate(node.outputs)})
    return prints


def _mark(value: ir.Value | None, marks: dict[ir.Value, str]) -> str:
    if value is None:
        return ""
    if value not in marks:
        array = constant_of(value)
        marks[value] = f"outer {value.name}" if array is None else digest(array)
    return marks[value]


def digest(array: np.ndarray) -> str:
    """Of the element type, the shape and every number."""
    summary = hashlib.blake2b(f"{array.dtype}{array.shape}".encode(), digest_size=16)
    summary.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return summary.hexdigest()


def _rich(node: ir.Node, marks: dict[ir.Value, str]) -> str:
    """The operator with its attributes and weights."""
    weights = [_mark(value, marks) for value in node.inputs if constant_of(value) is not None]
    return repr((operator_of(node), attributes_of(node), weights))


def attributes_of(node: ir.Node) -> dict[str, str]:
    """The attributes as text; graphs by what they compute."""
    return {name: _text(attribute) for name, attribute in sorted(node.attributes.items())}


def _text(attribute: ir.Attr) -> str:
    if attribute.is_ref():
        return f"@{attribute.ref_attr_name}"
    if attribute.type == ir.AttributeType.GRAPH:
        body = attribute.as_graph()
        marks = {value: f"input {i}" for i, value in enumerate(body.inputs)}
        prints = _fingerprints(body, marks)
        outputs = [_mark(value, marks) for value in body.outputs]
        text = repr((sorted(prints.values()), outputs))
        return f"graph {hashlib.blake2b(text.encode(), digest_size=8).hexdigest()}"
    if attribute.type == ir.AttributeType.TENSOR:
        array = attribute.as_tensor().numpy()
        return str(array.tolist()) if array.size <= 8 else f"{array.dtype}{list(array.shape)} {digest(array)[:8]}"
    if attribute.type == ir.AttributeType.FLOAT:  # which ONNX has in single precision
        return str(np.float32(attribute.value))
    if attribute.type == ir.AttributeType.FLOATS:
        return f"[{', '.join(str(np.float32(number)) for number in attribute.value)}]"
    return str(list(attribute.value) if isinstance(attribute.value, tuple) else attribute.value)


def _aligned(
    left: Sequence[ir.Node], right: Sequence[ir.Node], labels: Sequence[Callable[[ir.Node], Any]]
) -> dict[ir.Node, ir.Node]:
    """Pairs in the order of both: by the first label where it agrees, and by the next ones between those."""
    if not labels or not left or not right:
        return {}
    pairs: dict[ir.Node, ir.Node] = {}
    matcher = SequenceMatcher(None, [*map(labels[0], left)], [*map(labels[0], right)], autojunk=False)
    at_left = at_right = 0
    for block in matcher.get_matching_blocks():
        pairs |= _aligned(left[at_left : block.a], right[at_right : block.b], labels[1:])
        at_left, at_right = block.a + block.size, block.b + block.size
        pairs.update(zip(left[block.a : at_left], right[block.b : at_right], strict=True))
    return pairs


def _pair_reordered(
    matching: Matching, left: Sequence[ir.Node], right: Sequence[ir.Node], prints: Mapping[ir.Node, str]
) -> None:
    """Equal computations that stand at other places of the file."""
    taken = set(matching.nodes.values())
    free: dict[str, list[ir.Node]] = defaultdict(list)
    for node in right:
        if node not in taken:
            free[prints[node]].append(node)
    for node in left:
        if node not in matching.nodes and free[prints[node]]:
            matching.nodes[node] = free[prints[node]].pop(0)
