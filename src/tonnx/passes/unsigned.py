"""Integers of 8 bits are stored as uint8 in the place of int8: the same numbers, shifted by 128 with their zero point.

ONNX Runtime multiplies uint8 by int8 with an instruction that adds pairs of products in 16 bits (pmaddubsw), which
saturates on x86 processors without VNNI: 2 · 255 · 127 is above 32767. Its kernels for uint8 by uint8 add in 32 bits.
On x86 it makes uint8 of int8 activations by itself (as seen in 1.31), so int8 by int8 does not stay that either.

1. A constant that DequantizeLinear reads: weights, transposed or not. Other readers keep the int8. So do weights of
   which no two products can exceed 16 bits, whatever they are multiplied by, and those of depthwise convolutions,
   whose kernels have no pairs: int8 is the faster one.
2. QuantizeLinear whose results only DequantizeLinear reads, through Clip: activations, and weights in training.
3. The constant operand of MatMulInteger, QLinearMatMul and QLinearConv beside uint8. Beside int8 they are exact as they
   are, and the runtime lacks kernels for int8 by uint8; ConvInteger multiplies the other way round, and is exact.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from tonnx.ir.build import Builder, Names, T
from tonnx.ir.operands import attribute
from tonnx.ir.pairs import are_safe, is_depthwise
from tonnx.ir.rewrite import all_graphs, names_in

Slot = tuple[ir.Node, int]
"""An input of a node, by its place."""

_SHIFT = np.uint8(128)
_PRODUCTS = (("Gemm", 1), ("MatMul", 1), ("MatMulInteger", 1), ("QLinearMatMul", 3))
"""Layers that are products of matrices, and where each has its weight."""
_READERS: dict[str, tuple[int | None, int, int]] = {
    "DequantizeLinear": (None, 0, 2),
    "MatMulInteger": (0, 1, 3),
    "QLinearMatMul": (0, 3, 5),
    "QLinearConv": (0, 3, 5),
}
"""Where each has the operand that must be uint8 already, the one that may be a weight, and the zero point of that."""


def store_unsigned(model: ir.Model) -> int:
    """Look at all graphs; returns how many tensors are uint8 now."""
    slots: list[Slot] = []
    results: list[ir.Value] = []
    turned: list[ir.Value] = []
    weights: set[ir.Value | None] = set()
    for node in (node for graph in all_graphs(model) for node in graph if node.domain == ""):
        if node.op_type == "QuantizeLinear":
            further, integers = _results(node)
            slots += further
            results += integers
            continue
        if node.op_type not in _READERS:
            continue
        first, data, zero = _READERS[node.op_type]
        beside, weight = None if first is None else node.inputs[first], _weight(node, data)
        if weight is not None and (beside is None or beside.dtype == T.UINT8) and _is_shiftable(node, zero):
            if _is_never_cut_off(node, data, zero):
                continue
            slots += [weight, (node, zero)]
            weights.add(weight[0].inputs[weight[1]])
            turned += [value for value in node.inputs[data : data + 1] if value is not None and weight[0] is not node]
    for value in (*results, *turned):
        value.type = ir.TensorType(T.UINT8)
    _shift(model, slots)
    return len(weights) + len(results)


def _weight(node: ir.Node, index: int) -> Slot | None:
    """Where a node's constant operand is read: by itself, or by a Transpose that nobody else reads."""
    value = node.inputs[index]
    if _is_stored(value):
        return node, index
    turn = None if value is None or value.is_graph_output() or len(value.uses()) != 1 else value.producer()
    return (turn, 0) if turn is not None and turn.op_type == "Transpose" and _is_stored(turn.inputs[0]) else None


def _is_stored(value: ir.Value | None) -> bool:
    """Whether this is an int8 constant. The default value of an input is none."""
    tensor = None if value is None or value.is_graph_input() else _stored(value)
    return tensor is not None and tensor.dtype == T.INT8


def _stored(value: ir.Value) -> ir.TensorProtocol | None:
    """Of an initializer or a Constant, in a function too, where values have no types."""
    producer = value.producer()
    if producer is not None and producer.op_type != "Constant":
        return None
    return ir.convenience.get_const_tensor(value)


def _is_never_cut_off(node: ir.Node, data: int, zero: int) -> bool:
    """Whether these are weights of layers, with zero points of 0, and pairs of them are small enough."""
    integers, zero_point = node.inputs[data], node.inputs[zero] if zero < len(node.inputs) else None
    if zero_point is not None and ((zeros := _stored(zero_point)) is None or zeros.numpy().any()):
        return False
    tensor = _stored(integers) if integers is not None and _is_stored(integers) else None
    if tensor is None:
        return False
    readers = node.outputs[0].uses() if node.op_type == "DequantizeLinear" else [(node, data)]
    if all(is_depthwise(user) for user, _ in readers):
        return True
    axes = {_axis_of_channels(user, index, len(tensor.shape)) for user, index in readers}
    axis = axes.pop() if len(axes) == 1 else None
    return axis is not None and are_safe(tensor.numpy(), axis)


def _axis_of_channels(layer: ir.Node, index: int, rank: int) -> int | None:
    """Which axis of a weight a layer does not sum up over; None if this is no weight of one."""
    if layer.op_type in ("Conv", "QLinearConv"):
        return 0 if index == (1 if layer.op_type == "Conv" else 3) else None
    if rank != 2 or (layer.op_type, index) not in _PRODUCTS:
        return None
    return 0 if attribute(layer, "transB", 0) else 1


def _is_shiftable(node: ir.Node, index: int) -> bool:
    """Whether an optional input is an int8 constant, or missing; a zero point is then written down."""
    value = node.inputs[index] if index < len(node.inputs) else None
    if value is None and node.op_type == "DequantizeLinear":
        scale = node.inputs[1]
        return scale is not None and scale.shape is not None and scale.shape.is_static()
    return value is None or _is_stored(value)


def _results(quantize: ir.Node) -> tuple[list[Slot], list[ir.Value]]:
    """What has to be shifted with the results of a QuantizeLinear; nothing, unless all their readers can be."""
    if len(quantize.inputs) < 3 or not _is_stored(quantize.inputs[2]) or "output_dtype" in quantize.attributes:
        return [], []
    slots, integers = [(quantize, 2)], [quantize.outputs[0]]
    for value in integers:  # which grows
        if value.is_graph_output():
            return [], []
        for user, index in value.uses():
            if index != 0 or user.domain != "":
                return [], []
            if user.op_type == "DequantizeLinear" and _is_shiftable(user, 2):
                slots.append((user, 2))
            elif user.op_type == "Clip" and _is_shiftable(user, 1) and _is_shiftable(user, 2):
                slots += [(user, place) for place in range(1, len(user.inputs)) if user.inputs[place] is not None]
                integers.append(user.outputs[0])
            else:
                return [], []
    return slots, integers


def _shift(model: ir.Model, slots: list[Slot]) -> None:
    """The constants in these places, by 128; one that others read as well is copied, a missing zero point is made."""
    names = Names(names_in(model)) if slots else Names()
    builders: dict[ir.Graph, Builder] = {}
    wanted, shifted = set(slots), dict[ir.Value, ir.Value]()
    for node, index in slots:
        graph = node.graph
        assert isinstance(graph, ir.Graph)
        if graph not in builders:
            builders[graph] = Builder(graph, names=names, before=node, constants_as_nodes=graph is not model.graph)
        value = node.inputs[index] if index < len(node.inputs) else None
        if value is None:
            shape = node.inputs[1].shape.numpy() if node.op_type == "DequantizeLinear" else ()  # type: ignore[union-attr]
            node.resize_inputs(max(len(node.inputs), index + 1))
            node.replace_input_with(index, builders[graph].constant(np.full(shape, _SHIFT)))
            continue
        if value not in shifted:
            before = _stored(value)
            assert before is not None
            tensor = ir.Tensor(np.asarray(before.numpy().view(np.uint8) ^ _SHIFT), name=value.name)
            whole = set(value.uses()) <= wanted and not value.is_graph_output()
            shifted[value] = _replaced(value, tensor) if whole else _copied(value, tensor, names)
        if shifted[value] is not value:
            node.replace_input_with(index, shifted[value])


def _replaced(value: ir.Value, tensor: ir.Tensor) -> ir.Value:
    value.const_value, value.type = tensor, ir.TensorType(T.UINT8)
    producer = value.producer()
    if producer is not None:
        producer.attributes.add(ir.AttrTensor("value", tensor))
    return value


def _copied(value: ir.Value, tensor: ir.Tensor, names: Names) -> ir.Value:
    graph, producer = value.graph, value.producer()
    assert isinstance(graph, ir.Graph)
    op = Builder(graph, names=names, before=producer, constants_as_nodes=producer is not None)
    if producer is None:
        return op.initializer(f"{value.name}_u8", tensor)
    return op.constant(tensor.numpy())
