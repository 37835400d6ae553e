"""Where the nodes and values of a model come from: what front ends write down, and what is read from a file again.

A node has the framework's operator, the module path and the user's source line in its metadata; a file of an IR version
without metadata has them in the node's doc string. A value remembers which of the framework's values it holds.
Values have no metadata of their own in old files, so in a file the node that makes them names them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import onnx_ir as ir

from tonnx.ir import facts

PREFIX = "tonnx."
"""Of all that tonnx says of a node in its metadata."""
OPERATOR, MODULE, SOURCE = "tonnx.op", "tonnx.module", "tonnx.source"
"""Keys of a node's metadata: the framework's operator, the module path, the user's line."""
INSIDE = "/"
"""Before the name of a value that the framework computes inside of a branch or loop."""
_KEYS = tuple(key.removeprefix(PREFIX) for key in (OPERATOR, MODULE, SOURCE, facts.VALUE.key))


@dataclass(frozen=True)
class Origin:
    """What a node was made from, as far as its file says it."""

    operator: str = ""
    module: str = ""
    source: str = ""


def origin_of(node: ir.Node) -> Origin:
    """The framework's operator, module path and source line of a node that `load` has seen."""
    props = node.metadata_props
    return Origin(*(props.get(key, "") for key in (OPERATOR, MODULE, SOURCE)))


def carry(old: ir.Value, new: ir.Value) -> None:
    """``new`` stands in the place of ``old`` and holds the same."""
    for name in (facts.VALUE, facts.ORIGINAL):
        if old in name and new.producer() is not None:
            name.setdefault(new, name[old])


def forget(value: ir.Value) -> None:
    """The value holds something else from now on."""
    facts.VALUE.discard(value)
    facts.ORIGINAL.discard(value)


def remember(model: ir.Model) -> None:
    """Every value of the main graph remembers the name that it has in this file."""
    for node in model.graph:
        for value in node.outputs:
            if value.name:
                facts.ORIGINAL[value] = value.name


def stamp(model: ir.Model) -> None:
    """Write what the values hold into the metadata of their nodes."""
    for node in model.graph.all_nodes():
        names = [facts.VALUE.get(value) or "" for value in node.outputs]
        if any(names):
            node.metadata_props[facts.VALUE.key] = ",".join(names)
        else:
            node.metadata_props.pop(facts.VALUE.key, None)


def load(model: ir.Model) -> None:
    """Read what `stamp` and the serialiser wrote: doc strings become metadata again, and values know what they hold."""
    for graph in model.graphs():
        _undocument(graph)
    for node in model.graph.all_nodes():
        names = node.metadata_props.pop(facts.VALUE.key, "").split(",")
        if len(names) == len(node.outputs):
            for value, name in zip(node.outputs, names, strict=True):
                if name:
                    facts.VALUE[value] = name


def _undocument(nodes: Iterable[ir.Node]) -> None:
    for node in nodes:
        if not node.doc_string:
            continue
        pairs = [line.partition(": ") for line in node.doc_string.splitlines()]
        if pairs and all(colon and key in _KEYS for key, colon, _ in pairs):
            node.metadata_props.update({PREFIX + key: text for key, _, text in pairs})
            node.doc_string = None
