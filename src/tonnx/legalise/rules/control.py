"""Control flow: branches whose shapes differ (11), Scan's batch axis (9); bodies are legalised by the engine."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from tonnx.ir.build import Builder
from tonnx.ir.infer import Dim, Dims, dims_of, joined_dims
from tonnx.legalise.node_view import Blocked, NodeView
from tonnx.legalise.table import down, up


@down("If", 11, up="shapes that may differ were written down")
def branches_of_one_shape(op: Builder, node: NodeView) -> None:
    """Both branches have one shape, as far as it is written down: what differs is hidden from shape inference."""
    graphs: list[ir.Graph] = [node.attr("then_branch"), node.attr("else_branch")]
    for i, (one, other) in enumerate(zip(*(graph.outputs for graph in graphs), strict=True)):
        dims = joined_dims(dims_of(one), dims_of(other))
        if dims is not None and not any(_differs(value, dims) for value in (one, other)):
            continue
        for graph in graphs:
            if dims is None or _differs(graph.outputs[i], dims):
                _hide_shape(op, graph, i, node.need("cond"), dims)


def _differs(value: ir.Value, dims: Sequence[Dim]) -> bool:
    """Whether a size is written down for a value that it does not always have."""
    return any(isinstance(a, int) and not isinstance(b, int) for a, b in zip(dims_of(value) or (), dims, strict=False))


def _hide_shape(op: Builder, graph: ir.Graph, place: int, condition: ir.Value, dims: Sequence[Dim] | None) -> None:
    """Reshape an output to its own shape, in a way that nothing can see through before the condition is known."""
    inner = Builder(graph, names=op.names, opset=op.opset, parent=op, constants_as_nodes=op.constants_as_nodes)
    value = graph.outputs[place]
    nothing = inner.Mul(inner.Cast(condition, to=int(ir.DataType.INT64)), inner.constant(0, ir.DataType.INT64))
    hidden = inner.Reshape(value, inner.Add(inner.Shape(value), nothing))
    hidden.shape = None if dims is None else ir.Shape(dims)
    graph.outputs[place] = hidden


@down("Loop", 11, up="what was allowed still is")
def loop_that_carries(op: Builder, node: NodeView) -> tuple[ir.Value, ...] | None:
    """A Loop carries at least one value."""
    if len(node.inputs) > 2:
        return None
    body = node.attr("body")
    spare = ir.Value(name=op.names.unique("spare"), type=ir.TensorType(ir.DataType.BOOL), shape=ir.Shape([]))
    body.inputs.append(spare)
    kept = ir.Node("", "Identity", [spare], name=op.names.unique("Identity"))
    (result,) = kept.outputs
    result.name, result.dtype, result.shape = op.names.unique("spare"), ir.DataType.BOOL, ir.Shape([])
    body.append(kept)
    body.outputs.insert(1, result)
    outputs = [(ir.DataType.BOOL, []), *[(value.dtype, dims_of(value)) for value in node.node.outputs]]
    trips, condition = (*node.inputs, None, None)[:2]
    node.node.attributes.pop("body")  # a graph belongs to one node
    return op.node("Loop", [trips, condition, op.constant(True)], [ir.AttrGraph("body", body)], outputs)[1:]


@down("Scan", 11, up="counting from the front is still allowed")
def scan_axes_from_front(op: Builder, node: NodeView) -> None:
    """Negative axes are counted from the front."""
    for name, values in (("scan_input_axes", node.inputs), ("scan_output_axes", list(node.node.outputs))):
        axes = node.attr(name)
        if axes is None or all(axis >= 0 for axis in axes):
            continue
        front = []
        for axis, value in zip(axes, values[-len(axes) :], strict=True):
            if axis < 0 and (value is None or value.shape is None):
                raise Blocked("the rank of what it scans is not known, and negative axes came with opset 11")
            front.append(axis if axis >= 0 else axis % value.shape.rank())  # type: ignore[union-attr]
        node.node.attributes.add(ir.AttrInt64s(name, front))


@down("Scan", 9)
def scan_one_batch(op: Builder, node: NodeView) -> tuple[ir.Value, ...]:
    """Version 8 scans a batch of sequences: a batch of one."""
    count = node.attr("num_scan_inputs")
    states = len(node.inputs) - count
    inputs: list[ir.Value | None] = [None]
    axes = [0] * states + (node.attr("scan_input_axes") or [0] * count)
    for value, axis in zip(node.inputs, axes, strict=True):
        assert value is not None
        inputs.append(op.Unsqueeze(_axis_first(op, value, axis), axes=[0]))
    attributes = [ir.AttrGraph("body", node.attr("body")), ir.AttrInt64("num_scan_inputs", count)]
    if (directions := node.attr("scan_input_directions")) is not None:
        attributes.append(ir.AttrInt64s("directions", directions))
    shapes: list[tuple[ir.DataType | None, Dims | None]] = []
    for output in node.node.outputs:
        dims = dims_of(output)
        shapes.append((output.dtype, None if dims is None else [ir.SymbolicDim(None)] * (len(dims) + 1)))
    scanned_outputs = op.node("Scan", inputs, attributes, shapes)
    scanned = node.outputs - states
    back = [0] * states + (node.attr("scan_output_axes") or [0] * scanned)
    reverse = [0] * states + (node.attr("scan_output_directions") or [0] * scanned)
    results = []
    for value, axis, backwards, old in zip(scanned_outputs, back, reverse, node.node.outputs, strict=True):
        plain = op.Squeeze(value, axes=[0])
        if backwards:
            length = old.shape[axis] if old.shape is not None else None
            if not isinstance(length, int):
                raise Blocked("its outputs are written backwards, and how many is known only at run time")
            plain = op.Gather(plain, list(range(length - 1, -1, -1)), axis=0)
        if axis:
            if old.shape is None:
                raise Blocked("the rank of its output is not known")
            order = list(range(1, old.shape.rank()))
            order.insert(axis, 0)
            plain = op.Transpose(plain, perm=order)
        results.append(plain)
    return tuple(results)


def _axis_first(op: Builder, x: ir.Value, axis: int) -> ir.Value:
    if axis == 0:
        return x
    rank = op.rank(x)
    return op.Transpose(x, perm=[axis, *(a for a in range(rank) if a != axis)])


@up("Scan", 9)
def scan_no_batch(op: Builder, node: NodeView) -> tuple[ir.Value, ...]:
    """A batch of one is no batch."""
    if node.inputs[0] is not None:
        raise Blocked("its sequences have lengths of their own")
    values = [value for value in node.inputs[1:] if value is not None]
    for value in values:
        if value.shape is None or value.shape[0] != 1:
            raise Blocked("it scans more than one sequence, or how many is not known")
    inputs = [op.Squeeze(value, axes=[0]) for value in values]
    attributes = [
        ir.AttrGraph("body", node.attr("body")),
        ir.AttrInt64("num_scan_inputs", node.attr("num_scan_inputs")),
    ]
    if (directions := node.attr("directions")) is not None:
        attributes.append(ir.AttrInt64s("scan_input_directions", directions))
    shapes = [(output.dtype, None) for output in node.node.outputs]
    return tuple(op.Unsqueeze(value, axes=[0]) for value in op.node("Scan", inputs, attributes, shapes))
