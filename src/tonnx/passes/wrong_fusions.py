"""Keeps ONNX Runtime's optimiser from what it gets wrong, or makes slower (seen in 1.31): a row for each fusion, at any
opset.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from tonnx.ir import facts
from tonnx.ir.build import Builder, Names
from tonnx.ir.infer import constant, dims_of, same_dim
from tonnx.ir.operands import attribute
from tonnx.ir.rewrite import all_graphs, names_in
from tonnx.ir.target import ORT_CPU

_FLOATS = (ir.DataType.FLOAT, ir.DataType.DOUBLE, ir.DataType.FLOAT16)
_MOVED = frozenset("Squeeze Unsqueeze Gather Slice Reshape Cast Identity".split())
_COMPUTED = frozenset("Add Mul Div Mod Max".split())


def keep_from_fusing(model: ir.Model, runtime: str | None) -> int:
    fusions = {None: {}, ORT_CPU: _WRONG | _SLOW_ON_CPU}.get(runtime, _WRONG)
    nodes = [node for graph in all_graphs(model) for node in graph if node.domain == ""]
    fused = [(node, change) for node in nodes for applies, change in fusions.get(node.op_type, ()) if applies(node)]
    if not fused:
        return 0
    names = Names(names_in(model))
    for node, change in fused:
        assert isinstance(node.graph, ir.Graph)
        change(Builder(node.graph, names=names, before=node), node)
    return len(fused)


def _is_zero_padding_of_pool(node: ir.Node) -> bool:
    """PadFusion turns Pad(0) → MaxPool into a MaxPool with pads, which pads with minus infinity.

    And Pad(0) → AveragePool into one whose pads may be as large as its window, which does not load.
    """
    if len(node.inputs) < 2 or node.inputs[0] is None or node.inputs[0].dtype not in _FLOATS:
        return False  # pads that are an attribute are not fused
    if attribute(node, "mode", "constant") != "constant":
        return False
    value = constant(node.inputs[2]) if len(node.inputs) > 2 and node.inputs[2] is not None else np.zeros(1)
    readers = [user for user, _ in node.outputs[0].uses()]
    if value is None or value.any() or not {user.op_type for user in readers} <= {"MaxPool", "AveragePool"}:
        return False
    pads = constant(node.inputs[1]) if node.inputs[1] is not None else None
    largest = np.inf if pads is None else pads.max(initial=0)
    windows = (user.attributes["kernel_shape"].as_ints() for user in readers if user.op_type != "MaxPool")
    return any(user.op_type == "MaxPool" for user in readers) or any(largest >= min(window) for window in windows)


def _has_float_weights_alone(node: ir.Node) -> bool:
    """WeightBiasQuantization gives float weights 8 bits, with one step for all of them, where the data has 8 bits.

    They are floats since one step is not enough: below opset 13 there are no steps by channel.
    """
    data, weights = node.inputs[:2]
    dequantised = None if data is None else data.producer()
    if dequantised is None or dequantised.op_type != "DequantizeLinear" or weights is None:
        return False
    return _is_folded(weights)


def _is_folded(value: ir.Value) -> bool:
    """Whether ONNX Runtime makes a constant of it: of a DequantizeLinear it makes none."""
    waiting: list[ir.Value | None] = [value]
    seen: set[ir.Value | None] = {None}
    while waiting:
        asked = waiting.pop()
        if asked is None or asked in seen:
            continue
        seen.add(asked)
        node = asked.producer()
        if (node is None and not asked.is_initializer()) or (node is not None and node.op_type == "DequantizeLinear"):
            return False
        waiting += [] if node is None else node.inputs
    return True


def _pad_with_almost_zero(op: Builder, node: ir.Node) -> None:
    """A Pad whose value is not zero is left alone, so it gets the smallest number above."""
    dtype = node.inputs[0].dtype  # type: ignore[union-attr]
    assert dtype is not None
    if len(node.inputs) < 3:
        node.resize_inputs(3)
    node.replace_input_with(2, op.constant(np.nextafter(dtype.numpy().type(0), dtype.numpy().type(1)), dtype))


def _is_gather_of_wrapped_range(node: ir.Node) -> bool:
    """GatherToSliceFusion turns Gather(x, Range(n - 1, -1, -1)) into a Slice to the end -1: to the last element."""
    maker = node.inputs[1].producer() if node.inputs[1] is not None else None
    if maker is None or maker.op_type != "Range":
        return False
    return not all(end is not None and _is_count(end, {}) for end in maker.inputs[:2])


def _end_range_at_zero(op: Builder, node: ir.Node) -> None:
    places = node.inputs[1]
    assert places is not None
    start, limit, delta = places.producer().inputs  # type: ignore[union-attr]
    whole = op.Range(op.Sub(start, limit), op.constant(0, places.dtype), delta)
    node.replace_input_with(1, op.Add(whole, limit))


def _is_count(value: ir.Value, answers: dict[ir.Value, bool]) -> bool:
    """Whether a number comes of sizes alone, and so is not negative."""
    if value not in answers:
        answers[value] = _is_made_of_counts(value, answers)
    return answers[value]


def _is_made_of_counts(value: ir.Value, answers: dict[ir.Value, bool]) -> bool:
    known = constant(value)
    if known is not None:
        return bool((known >= 0).all())
    node = value.producer()
    if node is None or value in facts.NONNEGATIVE:
        return value in facts.NONNEGATIVE
    if node.op_type in ("Shape", "Size"):
        return True
    parts = node.inputs[:1] if node.op_type in _MOVED else node.inputs if node.op_type in _COMPUTED else []
    return bool(parts) and all(part is not None and _is_count(part, answers) for part in parts)


def _is_normalised_sum(node: ir.Node) -> bool:
    """SkipLayerNormFusion makes one operator of the sum of equal shapes and its normalisation: 3 to 9 times slower."""
    total = node.inputs[0]
    maker = None if total is None else total.producer()
    if maker is None or maker.domain != "" or maker.op_type != "Add" or maker.graph is not node.graph:
        return False
    first, second = (dims_of(value) for value in maker.inputs)
    if first is None or second is None or len(first) != len(second):
        return False
    return all(map(same_dim, first, second)) and all(
        value is not None and value.dtype == ir.DataType.FLOAT for value in maker.inputs
    )


def _sum_up(_: Builder, node: ir.Node) -> None:
    """A Sum of the two is not looked at."""
    total = node.inputs[0]
    assert total is not None
    add = total.producer()
    assert add is not None
    add.op_type = "Sum"


def _is_of_integers(node: ir.Node) -> bool:
    """QLinearSoftmax has other integers than the nodes that it is made of, at one number in ten."""
    read, readers = node.inputs[0], [user.op_type for user, _ in node.outputs[0].uses()]
    maker = None if read is None else read.producer()
    return maker is not None and maker.op_type == "DequantizeLinear" and readers == ["QuantizeLinear"]


def _read_larger_of_itself(op: Builder, node: ir.Node) -> None:
    """The larger of a value and itself is that value, and no DequantizeLinear."""
    node.replace_input_with(0, op.Max(node.inputs[0], node.inputs[0]))


def _reads_cast_of_turned_batches(node: ir.Node) -> bool:
    """MatmulTransposeFusion crashes the process, where a Cast stands behind a Transpose that moves the batch inwards.

    For float16 ONNX Runtime itself puts one there. The other factor is a matrix.
    """
    read, other = node.inputs
    maker, dims = None if read is None else read.producer(), dims_of(other)
    cast = maker is not None and maker.op_type == "Cast"
    if cast and maker is not None and maker.inputs[0] is not None:
        maker = maker.inputs[0].producer()
    if maker is None or maker.op_type != "Transpose" or "perm" not in maker.attributes:
        return False
    perm, last = list(maker.attributes["perm"].as_ints()), len(maker.attributes["perm"].as_ints()) - 1
    moved = last > 1 and perm in ([*range(1, last), 0, last], [*range(1, last + 1), 0])
    matrix = dims is not None and len(dims) == 2 and any(isinstance(dim, int) for dim in dims)
    return moved and matrix and (cast or node.outputs[0].dtype == ir.DataType.FLOAT16)


def _multiply_by_a_batch(op: Builder, node: ir.Node) -> None:
    """A batch of one matrix is not looked at."""
    dims = dims_of(node.inputs[1]) or ()
    sizes = [1, *(dim if isinstance(dim, int) else -1 for dim in dims)]
    node.replace_input_with(1, op.Reshape(node.inputs[1], sizes))


def _is_rounded_afterwards(node: ir.Node) -> bool:
    """QDQPropagation rounds before a pool what is rounded after it: in integers it takes 10 to 100 times as long."""
    read, readers = node.inputs[0], [user.op_type for user, _ in node.outputs[0].uses()]
    maker = None if read is None else read.producer()
    of_integers = maker is not None and maker.op_type == "DequantizeLinear"
    return not of_integers and readers == ["QuantizeLinear"] and not node.outputs[0].is_graph_output()


def _give_larger_of_itself(op: Builder, node: ir.Node) -> None:
    """Nothing is moved across the larger of a value and itself."""
    ((user, index),) = node.outputs[0].uses()
    op.before = user
    user.replace_input_with(index, op.Max(node.outputs[0], node.outputs[0]))


Fusions = dict[str, tuple[tuple[Callable[[ir.Node], bool], Callable[[Builder, ir.Node], None]], ...]]
"""By the operator: whether a node is fused to no good, and what keeps it from that."""
_WRONG: Fusions = {
    **dict.fromkeys(("Conv", "ConvTranspose", "Gemm"), ((_has_float_weights_alone, _read_larger_of_itself),)),
    "Pad": ((_is_zero_padding_of_pool, _pad_with_almost_zero),),
    "Gather": ((_is_gather_of_wrapped_range, _end_range_at_zero),),
    "MatMul": ((_reads_cast_of_turned_batches, _multiply_by_a_batch),),
    "Softmax": ((_is_of_integers, _read_larger_of_itself),),
}
_SLOW_ON_CPU: Fusions = {
    "LayerNormalization": ((_is_normalised_sum, _sum_up),),
    "MaxPool": ((_is_rounded_afterwards, _give_larger_of_itself),),
}
