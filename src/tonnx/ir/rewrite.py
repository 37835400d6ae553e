"""Taking a node out of a graph and putting values in the place of its outputs: shared by passes and legaliser."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import onnx_ir as ir

from tonnx.ir.build import Builder, Names
from tonnx.ir.provenance import carry, forget
from tonnx.ir.schema import Signature

_WITH_BODIES = frozenset(("If", "Loop", "Scan", "SequenceMap"))


def replace_node(node: ir.Node, results: Sequence[ir.Value | None]) -> None:
    """Everybody who reads ``node`` reads ``results`` instead; the node goes. Names of graph outputs stay."""
    graph = node.graph
    assert graph is not None
    for old, new in zip(node.outputs, results, strict=False):
        if new is None or new is old:
            continue
        if old.is_graph_output():
            new = _take_output_place(node, old, new)
        if new.shape is None:
            new.shape = old.shape
        if new.type is None:
            new.type = old.type
        carry(old, new)
        use_instead(old, new)
    graph.remove(node, safe=True)


def rewrite_each(model: ir.Model, op_type: str, rewrite: Callable[[Builder, ir.Node], bool]) -> int:
    """Show ``rewrite`` every node of an operator in the main graph; returns how many it has rewritten."""
    nodes = [node for node in model.graph if node.op_type == op_type and node.domain == ""]
    if not nodes:
        return 0
    op = builder_of(model)
    return sum(rewrite(op, node) for node in nodes)


def use_instead(old: ir.Value, new: ir.Value) -> None:
    for user, index in tuple(old.uses()):
        user.replace_input_with(index, new)


def _take_output_place(node: ir.Node, old: ir.Value, new: ir.Value) -> ir.Value:
    owner = old.graph
    assert owner is not None
    producer = new.producer()
    if producer is None or new.is_graph_output() or producer.graph is not owner:
        # An input, a constant, or an output already: it cannot carry a second name.
        identity = ir.Node("", "Identity", [new], num_outputs=1, name=f"{old.name}/Identity")
        identity.outputs[0].type = old.type if old.type is not None else new.type
        identity.outputs[0].shape = old.shape if old.shape is not None else new.shape
        owner.insert_before(node, identity)
        new = identity.outputs[0]
    name, shape = old.name, old.shape
    old.name = f"{name}__replaced"
    for i, output in enumerate(owner.outputs):
        if output is old:
            owner.outputs[i] = new
    new.name = name
    new.shape = shape if shape is not None else new.shape
    return new


def cast_around(
    op: Builder, node: ir.Node, schema: Signature, dtypes: Mapping[str, ir.DataType]
) -> dict[ir.Value, ir.Value]:
    """Let a node compute in other dtypes, by the type variables of its schema; its readers still get what they had.

    Gives the casts' results, each with the value that the node makes in its place.
    """
    for i, read in enumerate(node.inputs):
        if read is not None and (dtype := dtypes.get(schema.input(i).type_str)) is not None:
            node.replace_input_with(i, op.cast(read, dtype))
    results = {}
    for i, output in enumerate(node.outputs):
        dtype = dtypes.get(schema.output(i).type_str)
        if dtype is not None and output.dtype is not None and output.dtype != dtype:
            results[_cast_back(op, node, output, dtype)] = output
    return results


def _cast_back(op: Builder, node: ir.Node, output: ir.Value, dtype: ir.DataType) -> ir.Value:
    graph, original = node.graph, output.dtype
    assert graph is not None and original is not None
    output.type = ir.TensorType(dtype)
    result = op.cast(output, original)
    cast = result.producer()
    assert cast is not None
    graph.remove(cast)  # from before the node
    graph.insert_after(node, cast)
    for user, index in tuple(output.uses()):
        if user is not cast:
            user.replace_input_with(index, result)
    if output.is_graph_output():
        output.name, result.name = result.name, output.name
        for i, value in enumerate(graph.outputs):
            if value is output:
                graph.outputs[i] = result
    carry(output, result)
    forget(output)
    return result


def all_graphs(model: ir.Model) -> list[ir.Graph]:
    """The main graph, the functions' graphs, and all graphs inside their nodes; outer before inner."""
    graphs = [model.graph, *(function.graph for function in model.functions.values())]
    for graph in graphs:  # which grows
        graphs += [body for node in graph for body in inner_graphs(node)]
    return graphs


def inner_graphs(node: ir.Node) -> Iterator[ir.Graph]:
    """The bodies of an If, Loop or the like."""
    if node.domain == "" and node.op_type not in _WITH_BODIES:
        return
    for attribute in node.attributes.values():
        if attribute.type == ir.AttributeType.GRAPH:
            yield attribute.as_graph()
        elif attribute.type == ir.AttributeType.GRAPHS:
            yield from attribute.as_graphs()


def names_in(model: ir.Model) -> Iterator[str]:
    """Every name of a value or node that is taken."""
    for graph in all_graphs(model):
        for value in (*graph.inputs, *graph.initializers.values()):
            yield value.name or ""
        for node in graph:
            yield node.name or ""
            for output in node.outputs:
                yield output.name or ""


def builder_of(model: ir.Model) -> Builder:
    """Adds nodes to the main graph, at the model's own opset, under names that nothing in it has."""
    return Builder(model.graph, names=Names(names_in(model)), opset=model.opset_imports.get("", 0))


def remove_dead(model: ir.Model) -> int:
    """Remove unused nodes, inner graphs first (they may hold the last use of an outer value), then initializers."""
    removed = 0
    for graph in reversed(all_graphs(model)):
        for node in reversed(graph):
            if not any(output.uses() or output.is_graph_output() for output in node.outputs):
                graph.remove(node, safe=True)
                removed += 1
    drop_unread(model)
    return removed


def drop_unread(model: ir.Model) -> None:
    """Take out the initializers that nobody reads any more."""
    for graph in all_graphs(model):
        for name, value in list(graph.initializers.items()):
            if not value.uses() and not value.is_graph_output() and not value.is_graph_input():
                del graph.initializers[name]


@contextmanager
def no_collection() -> Iterator[None]:
    """Python's cycle collector waits: in a graph that grows it would look at every node again and again."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@contextmanager
def full_collections_rare() -> Iterator[None]:
    """Python's cycle collector looks at what is new, and seldom at all that libraries hold: a tenth of an export."""
    thresholds = gc.get_threshold()
    gc.set_threshold(*thresholds[:2], 100 * thresholds[2])
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
