"""Sequences and optionals: below their birth only those whose every element is known by name; and strings."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from tonnx.ir import facts
from tonnx.ir.build import Builder, T
from tonnx.ir.operands import attribute
from tonnx.ir.rewrite import replace_node, use_instead
from tonnx.legalise.node_view import Blocked, NodeView, constant_of
from tonnx.legalise.table import down, impossible
from tonnx.legalise.versioned_ops import cut, fixed, split, squeeze, unsqueeze

_CAME_WITH_11 = "sequences came with opset 11, and which elements this one has is not known"

impossible(("SequenceAt", "SequenceErase", "SequenceInsert", "SequenceLength", "ConcatFromSequence"), 11, _CAME_WITH_11)


@down("SequenceConstruct", 11)
def construct(op: Builder, node: NodeView) -> tuple[()]:
    """Whoever reads the sequence reads the values it was made of."""
    _hand_out(op, node.node, [value for value in node.inputs if value is not None])
    return ()


@down("SequenceEmpty", 11)
def empty(op: Builder, node: NodeView) -> tuple[()]:
    """Nothing, until something is inserted."""
    _hand_out(op, node.node, [])
    return ()


@down("SplitToSequence", 11)
def split_to_sequence(op: Builder, node: NodeView) -> tuple[()]:
    """The parts as separate values."""
    x = node.need("input")
    axis = node.attr("axis", 0) % node.rank("input")
    total, sizes = fixed(x, axis), node.const("split")
    if total is None:
        raise Blocked("the size of the axis that it splits is not known")
    if sizes is None:
        lengths = [1] * total
    elif sizes.ndim == 0:
        each = int(sizes)
        lengths = [min(each, total - start) for start in range(0, total, each)]
    else:
        lengths = [int(size) for size in sizes]
    parts = split(op, x, axis, lengths) if len(lengths) > 1 else (cut(op, x, axis, 0),)
    if sizes is None and not node.attr("keepdims", 1):
        parts = tuple(squeeze(op, part, axis) for part in parts)
    _hand_out(op, node.node, parts)
    return ()


def _hand_out(op: Builder, node: ir.Node, elements: Sequence[ir.Value]) -> None:
    """Give everybody who reads the sequence what it wants of it, now."""
    (sequence,) = node.outputs
    if sequence.is_graph_output():
        raise Blocked(_CAME_WITH_11)
    for user, _ in tuple(sequence.uses()):
        if user.op_type == "SequenceAt":
            replace_node(user, [elements[_place(user, 1, len(elements))]])
        elif user.op_type == "SequenceLength":
            replace_node(user, [op.constant(len(elements), T.INT64)])
        elif user.op_type == "ConcatFromSequence":
            with op.at(user):
                replace_node(user, [_joined(op, user, elements)])
        elif user.op_type == "SequenceInsert" and user.inputs[0] is sequence:
            place = _place(user, 2, len(elements)) if len(user.inputs) > 2 else len(elements)
            assert user.inputs[1] is not None
            _hand_out(op, user, [*elements[:place], user.inputs[1], *elements[place:]])
            replace_node(user, [])
        elif user.op_type == "SequenceErase":
            place = _place(user, 1, len(elements)) if len(user.inputs) > 1 else len(elements) - 1
            _hand_out(op, user, [*elements[:place], *elements[place + 1 :]])
            replace_node(user, [])
        else:
            raise Blocked(_CAME_WITH_11)


def _place(user: ir.Node, index: int, length: int) -> int:
    position = user.inputs[index]
    array = constant_of(position) if position is not None else None
    if array is None:
        raise Blocked("sequences came with opset 11, and an element of this one is chosen at run time")
    place = int(array.reshape(-1)[0])
    return place + length if place < 0 else place


def _joined(op: Builder, user: ir.Node, elements: Sequence[ir.Value]) -> ir.Value:
    axis = user.attributes["axis"].as_int()
    if attribute(user, "new_axis", 0):
        elements = [unsqueeze(op, element, axis) for element in elements]
    if axis < 0:
        if elements[0].shape is None:
            raise Blocked("the rank of its elements is not known")
        axis += elements[0].shape.rank()
    return op.Concat(*elements, axis=axis)


@down("Identity", 14)
def identity(op: Builder, node: NodeView) -> ir.Value | None:
    """Of a sequence: with one element more, and without it again."""
    x = node.need("input")
    if not isinstance(x.type, ir.SequenceType) or x.dtype is None:
        return None
    longer = op.SequenceInsert(x, op.constant(0, x.dtype))
    again = op.SequenceErase(longer)
    longer.type = again.type = x.type
    return again


@down("Optional", 15)
def optional(op: Builder, node: NodeView) -> ir.Value:
    """The value itself, when it is there and only asked for."""
    value = node["input"]
    output = node.node.outputs[0]
    readers = {user.op_type for user, _ in output.uses()}
    if value is None or output.is_graph_output() or not readers <= {"OptionalGetElement", "OptionalHasElement"}:
        raise Blocked("optionals came with opset 15, and whether this one is there is not known")
    return value


@down("OptionalGetElement", 15)
def get_element(op: Builder, node: NodeView) -> ir.Value:
    """The value itself."""
    return op.Identity(_plain(node))


@down("OptionalHasElement", 15)
def has_element(op: Builder, node: NodeView) -> ir.Value:
    """True, of a value that is there."""
    _plain(node)
    return op.constant(True)


def _plain(node: NodeView) -> ir.Value:
    value = node.need("input")
    if isinstance(value.type, ir.OptionalType):
        raise Blocked("optionals came with opset 15, and whether this one is there is not known")
    return value


@down("SequenceMap", 17)
def sequence_map(op: Builder, node: NodeView) -> list[ir.Value]:
    """A Loop over the elements that puts each result at the end of a sequence."""
    values = [value for value in node.inputs if value is not None]
    inner: ir.Graph = node.attr("body")
    count = op.SequenceLength(values[0])
    starts = []
    for result in inner.outputs:
        if result.dtype is None:
            raise Blocked("the element type of its result is not known")
        empty_one = op.SequenceEmpty(dtype=int(result.dtype))
        empty_one.type = ir.SequenceType(ir.TensorType(result.dtype))
        starts.append(empty_one)
    body = op.inner("map", [("i", T.INT64, []), ("again", T.BOOL, [])])
    carried = [ir.Value(name=op.names.unique("so_far"), type=start.type) for start in starts]
    place, again = body.graph.inputs
    body.graph.inputs.extend(carried)
    with body:
        elements = []
        for i, (value, formal) in enumerate(zip(values, inner.inputs, strict=True)):
            element = value
            if i > 0 and value.type is None:
                raise Blocked("whether one of its inputs is a sequence is not known")
            if i == 0 or isinstance(value.type, ir.SequenceType):
                element = body.SequenceAt(value, place)
                element.type, element.shape = formal.type, formal.shape
            elements.append(element)
        results = _inline(body.graph, inner, elements)
        body.graph.outputs.append(body.Identity(again))
        for so_far, result in zip(carried, results, strict=True):
            longer = body.SequenceInsert(so_far, result)
            longer.type = so_far.type
            body.graph.outputs.append(longer)
    outputs = op.Loop(count, op.constant(np.asarray(True)), *starts, body=body.graph, _outputs=len(starts))
    for output, start in zip(outputs, starts, strict=True):
        output.type = start.type
    return list(outputs)


@down("Scan", 8)
def scan_as_loop(op: Builder, node: NodeView) -> list[ir.Value]:
    """A Loop that picks the element of every turn; for a batch of one."""
    lengths, *operands = node.inputs
    values = [value for value in operands if value is not None]
    scanned = node.attr("num_scan_inputs")
    states = len(values) - scanned
    if lengths is not None or any(fixed(value, 0) != 1 for value in values):
        raise Blocked("it scans more than one sequence, which nothing older does")
    inner: ir.Graph = node.attr("body")
    directions = node.attr("directions", [0] * scanned)
    sequences = [squeeze(op, value, 0) for value in values[states:]]
    starts = [squeeze(op, value, 0) for value in values[:states]]
    count = op.scalar(op.size(sequences[0], 0))
    if not starts:
        raise Blocked("it has no state, which a Loop needs before opset 11")
    body = op.inner("scan", [("i", T.INT64, []), ("again", T.BOOL, [])])
    carried = [ir.Value(name=op.names.unique("state"), type=s.type, shape=s.shape) for s in starts]
    turn, again = body.graph.inputs
    body.graph.inputs.extend(carried)
    with body:
        elements = list(carried)
        for sequence, backwards in zip(sequences, directions, strict=True):
            place = body.Sub(body.Sub(count, turn), 1) if backwards else turn
            elements.append(body.Gather(sequence, place, axis=0))
        results = _inline(body.graph, inner, elements)
        outputs = [again, *results]
        body.graph.outputs.extend(body.Identity(value) for value in outputs)
    loop_outputs = op.Loop(count, op.constant(np.asarray(True)), *starts, body=body.graph, _outputs=len(results))
    final = []
    for value, result in zip(loop_outputs, results, strict=True):
        value.type = result.type
        final.append(value)
    for value, start in zip(final, starts, strict=False):
        value.shape = start.shape
    for value, result in zip(final[states:], results[states:], strict=True):
        value.shape = None if result.shape is None else ir.Shape([None, *result.shape])
    return [unsqueeze(op, value, 0) for value in final]


@down("OptionalHasElement", 18, up="a wider meaning")
def has_element_of_a_plain_value(op: Builder, node: NodeView) -> ir.Value | None:
    """What is not an optional always has an element, and what is absent never has."""
    value = node["input"]
    if value is None:
        return op.constant(False)
    if value.type is not None and not isinstance(value.type, ir.OptionalType):
        return op.constant(True)
    return None


# Strings: nothing computes with them but the operators made for it


impossible("StringConcat", 20, "nothing older joins strings")
impossible("StringSplit", 20, "nothing older splits strings")
impossible("RegexFullMatch", 20, "nothing older matches strings against a pattern")
impossible("StringNormalizer", 10, "nothing older changes strings")
impossible("TfIdfVectorizer", 9, "nothing older counts n-grams")


def _inline(into: ir.Graph, body: ir.Graph, inputs: Sequence[ir.Value]) -> list[ir.Value]:
    """Move the nodes of ``body`` to the end of ``into``, with ``inputs`` for its inputs; returns its outputs.

    The engine legalises a body before the node that owns it, so these nodes need nothing more.
    """
    outputs = list(body.outputs)
    body.outputs.clear()
    for formal, actual in zip(body.inputs, inputs, strict=True):
        use_instead(formal, actual)
        outputs = [actual if value is formal else value for value in outputs]
    for value in list(body.initializers.values()):
        body.initializers.pop(value.name or "")
        into.initializers.add(value)
    for node in list(body):
        body.remove(node)
        into.append(node)
        facts.LEGAL.add(node)
    return outputs
