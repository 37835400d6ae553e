"""Where the nodes and values of a model come from: what front ends write down, and what is read from a file again.

A node has the framework's operator, the module path and the user's source line in its metadata; a file of an IR version
without metadata has them in the node's doc string. A value remembers in ``Value.meta`` which of the framework's values
it holds. Values have no metadata of their own in old files, so in a file the node that makes them names them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import onnx_ir as ir

PREFIX = "tonnx."
VALUE = "tonnx.value"
"""Key in ``Value.meta``: the framework's name for the value. In a file: of the node's metadata, names in order."""
INSIDE = "/"
"""Before the name of a value that the framework computes inside of a branch or loop."""
ORIGINAL = "tonnx.original"
"""Key in ``Value.meta``: the name of the value in the file that the model was read from."""
_KEYS = ("op", "module", "source", "value")


@dataclass(frozen=True)
class Origin:
    """What a node was made from, as far as its file says it."""

    operator: str = ""
    module: str = ""
    source: str = ""


def origin_of(node: ir.Node) -> Origin:
    """The framework's operator, module path and source line of a node that `load` has seen."""
    props = node.metadata_props
    return Origin(*(props.get(PREFIX + key, "") for key in _KEYS[:3]))


def carry(old: ir.Value, new: ir.Value) -> None:
    """``new`` stands in the place of ``old`` and holds the same."""
    for key in (VALUE, ORIGINAL):
        if key in old.meta and new.producer() is not None:
            new.meta.setdefault(key, old.meta[key])


def forget(value: ir.Value) -> None:
    """The value holds something else from now on."""
    for key in (VALUE, ORIGINAL):
        value.meta.pop(key, None)


def remember(model: ir.Model) -> None:
    """Every value of the main graph remembers the name that it has in this file."""
    for node in model.graph:
        for value in node.outputs:
            if value.name:
                value.meta[ORIGINAL] = value.name


def stamp(model: ir.Model) -> None:
    """Write what the values hold into the metadata of their nodes."""
    for node in model.graph.all_nodes():
        names = [str(value.meta.get(VALUE, "")) for value in node.outputs]
        if any(names):
            node.metadata_props[VALUE] = ",".join(names)
        else:
            node.metadata_props.pop(VALUE, None)


def load(model: ir.Model) -> None:
    """Read what `stamp` and the serialiser wrote: doc strings become metadata again, and values know what they hold."""
    for graph in model.graphs():
        _undocument(graph)
    for node in model.graph.all_nodes():
        names = node.metadata_props.pop(VALUE, "").split(",")
        if len(names) == len(node.outputs):
            for value, name in zip(node.outputs, names, strict=True):
                if name:
                    value.meta[VALUE] = name


def _undocument(nodes: Iterable[ir.Node]) -> None:
    for node in nodes:
        if not node.doc_string:
            continue
        pairs = [line.partition(": ") for line in node.doc_string.splitlines()]
        if pairs and all(colon and key in _KEYS for key, colon, _ in pairs):
            node.metadata_props.update({PREFIX + key: text for key, _, text in pairs})
            node.doc_string = None
