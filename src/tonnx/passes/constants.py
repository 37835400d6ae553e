"""Constant folding: what depends on weights and constants only is computed now.

Small constants were folded while building. Here it is the weights' turn: a transposed or reshaped weight stays a view
of the framework's memory; a result that would make the file larger than its inputs is only a step to others, and so is
one whose weight is read elsewhere as well, since it would be stored twice. All of them together may add a little to the
file: a table of positions that is gathered from a smaller one. A weight that stays in a file of its own is only read in
another shape.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from tonnx.ir import facts
from tonnx.ir.fold import fold
from tonnx.ir.operands import attributes_in
from tonnx.ir.rewrite import replace_node, use_instead

_SAME_BYTES = ("Reshape", "Squeeze", "Unsqueeze")

SMALL = 1 << 16
"""Bytes that may be added to the file without a second thought."""
_SHARE = 32
"""All results that are larger than what they are made of may add this part of the weights' bytes to the file."""
_BETWEEN = 1 << 24
"""Bytes of a result that is not stored itself, but of which something smaller may follow."""


def fold_constants(model: ir.Model, spare: int = SMALL) -> int:
    """Fold in the main graph; returns how many nodes went. ``spare``: bytes by which a result may be the larger one."""
    graph = model.graph
    folded = 0
    between: dict[ir.Value, _Constant] = {}
    growth = _stored(graph) // _SHARE if spare else 0
    for node in list(graph):
        if node.domain != "" or len(node.outputs) != 1 or not node.inputs:
            continue
        constant = _evaluate(node, between)
        if constant is None:
            continue
        result = constant.array
        if _widens(node) and constant.stored_already == 0:
            if result.nbytes <= _BETWEEN:
                between[node.outputs[0]] = constant
            continue
        if (excess := result.nbytes - constant.stored_already) > spare:
            if result.nbytes <= _BETWEEN and (excess > growth or not _is_last(node)):
                between[node.outputs[0]] = constant
                continue
            if excess > growth:
                continue
            growth -= excess
        folded_value = _initializer(graph, node, result)
        if facts.stays_in_file(node.inputs[0]):
            facts.REFERENCE[folded_value.const_value] = facts.REFERENCE[node.inputs[0].const_value]  # type: ignore
        replace_node(node, [folded_value])
        folded += 1
    return folded


def _stored(graph: ir.Graph) -> int:
    """Bytes of the weights."""
    tensors = (value.const_value for value in graph.initializers.values())
    return sum(tensor.nbytes for tensor in tensors if tensor is not None)


def _is_last(node: ir.Node) -> bool:
    """Whether what reads the node needs more than constants: nothing smaller follows of it."""
    return (
        any(
            value is not None and value.const_value is None and value is not node.outputs[0]
            for user in node.outputs[0].uses()
            for value in user.node.inputs
        )
        or node.outputs[0].is_graph_output()
    )


@dataclass(frozen=True)
class _Constant:
    """What a node gives, and how many bytes need not be stored any more if that is."""

    array: np.ndarray
    stored_already: int


def _evaluate(node: ir.Node, between: Mapping[ir.Value, _Constant]) -> _Constant | None:
    if any(map(facts.stays_in_file, node.inputs)) and node.op_type not in _SAME_BYTES:
        return None
    arrays: list[np.ndarray | None] = []
    stored_already = 0
    for value in node.inputs:
        if value is None:
            arrays.append(None)
        elif (computed := between.get(value)) is not None:
            stored_already += computed.stored_already
            arrays.append(computed.array)
        elif value.const_value is None or value.is_graph_input():
            return None
        else:
            tensor = value.const_value
            if len(value.uses()) == 1 or tensor.nbytes <= SMALL:
                stored_already += tensor.nbytes
            arrays.append(tensor.numpy())
    if stored_already == 0 and not _widens(node) and between.keys().isdisjoint(node.inputs):
        return None
    if any(a.type in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS) for a in node.attributes.values()):
        return None
    attributes = attributes_in(node)
    result = fold(node.op_type, arrays, attributes, limit=None)
    if result is None and _widens(node):
        assert arrays[0] is not None
        result = arrays[0].astype(ir.DataType(attributes["to"]).numpy())
    return None if result is None else _Constant(result, stored_already)


def _widens(node: ir.Node) -> bool:
    """Whether integers get more bits: weights, of which sums may be wanted, as torchao does beside its products."""
    to = node.attributes["to"].value if node.op_type == "Cast" else None  # a word before opset 6
    return isinstance(to, int) and ir.DataType(to).is_integer()


def _initializer(graph: ir.Graph, node: ir.Node, array: np.ndarray) -> ir.Value:
    """The result, named after the weight that it came from."""
    output = node.outputs[0]
    constants = [(v.const_value.nbytes, v) for v in node.inputs if v is not None and v.const_value is not None]
    origin = max(constants, key=lambda pair: pair[0])[1] if constants else output
    name = output.name or "folded"
    dtype = output.dtype
    value = ir.Value(
        name=f"{origin.name}.{name}",
        type=None if dtype is None else ir.TensorType(dtype),
        shape=ir.Shape(array.shape),
        const_value=ir.Tensor(array, dtype=dtype),
    )
    facts.copy(origin, value)
    graph.initializers.add(value)
    return value


def merge_equal_initializers(model: ir.Model) -> int:
    """Weights of equal contents are stored once. A few sampled bytes decide who is compared in full."""
    graph = model.graph
    seen: dict[tuple[object, ...], list[ir.Value]] = {}
    merged = 0
    for name, value in list(graph.initializers.items()):
        if value.is_graph_output() or value.is_graph_input() or value.const_value is None:
            continue
        if value.dtype is None or value.dtype == ir.DataType.STRING or facts.stays_in_file(value):
            continue
        array = value.const_value.numpy()
        sample = array.reshape(-1)[:: max(1, array.size // 16)][:17] if array.flags.c_contiguous else array.flat[:16]
        bucket = seen.setdefault((value.dtype, array.shape, sample.tobytes()), [])
        twin = next((v for v in bucket if _equal(v.const_value.numpy(), array)), None)  # type: ignore[union-attr]
        if twin is None:
            bucket.append(value)
            continue
        use_instead(value, twin)
        del graph.initializers[name]
        merged += 1
    return merged


def _equal(a: np.ndarray, b: np.ndarray) -> bool:
    """Equal to the bit: NaN equals NaN, and 0 is not -0."""
    if a is b:
        return True
    return (
        bool(np.array_equal(np.ascontiguousarray(a).view(np.uint8), np.ascontiguousarray(b).view(np.uint8)))
        if a.ndim
        else a.tobytes() == b.tobytes()
    )
