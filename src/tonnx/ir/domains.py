"""Operators of other domains than ONNX's own: imported in the right version, and told apart from what a runtime has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

import onnx_ir as ir

from tonnx.ir.provenance import PREFIX
from tonnx.ir.rewrite import all_graphs

FUNCTIONS_SINCE = 8
"""The first IR version that has functions."""


def complete(model: ir.Model, versions: Mapping[str, int]) -> list[str]:
    """Import every domain that the model uses, in the version asked for or 1. Says which were asked for in vain."""
    used = {node.domain for node in _nodes(model) if node.domain}
    for domain in sorted(used):
        version = versions.get(domain, model.opset_imports.get(domain, 1))
        model.graph.opset_imports[domain] = version
        for function in model.functions.values():
            if any(node.domain == domain for node in function):
                function.opset_imports[domain] = version
    if model.functions:
        model.ir_version = max(model.ir_version, FUNCTIONS_SINCE)
    return [f"custom_opsets: the model has no operator of {name!r}" for name in versions if name not in used]


def unknown_operators(model: ir.Model) -> Counter[str]:
    """``domain::Name`` of the nodes that are neither ONNX's own nor functions of the model, with their number."""
    defined = {(domain, name) for domain, name, _ in model.functions}
    return Counter(_label(node) for node in _nodes(model) if node.domain and (node.domain, node.op_type) not in defined)


def _label(node: ir.Node) -> str:
    operator = node.attributes.get("operator")
    what = f"({operator.as_string()})" if node.op_type == "ATen" and operator is not None else ""
    return f"{node.domain}::{node.op_type}{what}"


def _nodes(model: ir.Model) -> Iterator[ir.Node]:
    for graph in all_graphs(model):
        yield from graph


def tell_source(model: ir.Model, wanted: bool) -> None:
    """Where each node comes from: in its doc string, or nowhere at all."""
    for node in _nodes(model):
        origin = {key: text for key, text in node.metadata_props.items() if key.startswith(PREFIX)}
        if wanted:
            node.doc_string = "\n".join(f"{key.removeprefix(PREFIX)}: {text}" for key, text in origin.items())
        else:
            node.doc_string = None
            for key in origin:
                del node.metadata_props[key]
