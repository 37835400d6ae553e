"""Operators that ONNX always had, or long has, in terms of others: for targets by name that have not got them.

No opset lacks these, so no version step leads below them. Each is written at the opset that its node has.
"""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from tonnx.ir.build import Builder, T
from tonnx.legalise.node_view import Blocked, NodeView, constant_of
from tonnx.legalise.table import formula, substitute
from tonnx.legalise.versioned_ops import clip, cut, number, reduce, squeeze, unsqueeze

_EXACT_IN_FLOAT32 = 2**24
_SOFTMAX_ALONG_ONE_AXIS = 13  # the first opset
_TOPK_OF_AN_INPUT = 10  # the first opset
_COMPARED = 4096
_SELU_ALPHA, _SELU_GAMMA = 1.6732632423543772, 1.0507009873554805


@substitute(("And", "Or"))
def logical(op: Builder, node: NodeView) -> ir.Value:
    """The product of ones and zeros, or their sum: Where has no kernel for truth values in most runtimes."""
    first, second = (op.Cast(node.need(name), to=int(T.INT32)) for name in ("A", "B"))
    return op.Cast(op.Mul(first, second) if node.op_type == "And" else op.Add(first, second), to=int(T.BOOL))


@substitute("Xor")
def exclusive_or(op: Builder, node: NodeView) -> ir.Value:
    """Not the same."""
    return op.Not(op.Equal(node.need("A"), node.need("B")))


formula(substitute("Not"), "The same as false.", lambda op, x: op.Equal(x, op.constant(False)))


@substitute("Clip")
def clip_of_integers(op: Builder, node: NodeView) -> ir.Value:
    """The smaller of the larger: integers, for which some have no Clip."""
    result = node.need("input")
    if not node.dtype("input").is_integer():
        raise Blocked("a Min would not keep what is no number")
    low, high = node["min"], node["max"]
    result = result if low is None else op.Max(result, low)
    return result if high is None else op.Min(result, high)


@substitute("HardSigmoid")
def hard_sigmoid(op: Builder, node: NodeView) -> ir.Value:
    """αx + β between 0 and 1."""
    return clip(op, node.need("X") * node.attr("alpha", 0.2) + node.attr("beta", 0.5), 0.0, 1.0)


formula(substitute("Softsign"), "x / (1 + |x|).", lambda op, x: x / (op.Abs(x) + 1.0))
formula(
    substitute("Softplus"),
    "ln(1 + eˣ), as max(x, 0) + ln(1 + e⁻ˡˣˡ), which does not overflow.",
    lambda op, x: op.Relu(x) + op.Log(op.Exp(op.Abs(x) * -1.0) + 1.0),
)


@substitute("Selu")
def selu(op: Builder, node: NodeView) -> ir.Value:
    """γ·elu(x)."""
    return op.Elu(node.need("X"), alpha=node.attr("alpha", _SELU_ALPHA)) * node.attr("gamma", _SELU_GAMMA)


@substitute("PRelu")
def prelu(op: Builder, node: NodeView) -> ir.Value:
    """The slope where x is negative."""
    x, slope = node.need("X"), node.need("slope")
    return op.Where(op.Less(x, number(op, 0, x)), x * slope, x)


formula(substitute("Reciprocal"), "1 / x.", lambda op, x: op.Div(number(op, 1, x), x))
formula(substitute("Neg"), "-1 times x.", lambda op, x: op.Mul(x, number(op, -1, x)))


formula(substitute("Abs"), "The larger of x and -x.", lambda op, x: op.Max(x, op.Mul(x, number(op, -1, x))))
formula(substitute("Ceil"), "The floor, seen from the other side.", lambda op, x: op.Floor(x * -1.0) * -1.0)


@substitute(("Sum", "Mean"))
def sum_of_several(op: Builder, node: NodeView) -> ir.Value:
    """One Add after the other."""
    first, *others = [value for value in node.inputs if value is not None]
    result = first
    for other in others:
        result = op.Add(result, other)
    return result * (1 / (len(others) + 1)) if node.op_type == "Mean" else op.Identity(result) if not others else result


@substitute(("ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSum", "ReduceLogSumExp"))
def reduction(op: Builder, node: NodeView) -> ir.Value:
    """A sum, of and into what it is named after."""
    x, keepdims = node.need("data"), bool(node.attr("keepdims", 1))
    axes = _axes(node)
    if node.op_type == "ReduceLogSumExp":
        largest = reduce(op, "ReduceMax", x, axes)
        result = op.Log(reduce(op, "ReduceSum", op.Exp(op.Sub(x, largest)), axes)) + largest
        return result if keepdims else squeeze(op, result, *axes)
    if node.op_type == "ReduceLogSum":
        return op.Log(reduce(op, "ReduceSum", x, axes, keepdims=keepdims))
    terms = op.Abs(x) if node.op_type == "ReduceL1" else op.Mul(x, x)
    result = reduce(op, "ReduceSum", terms, axes, keepdims=keepdims)
    return op.Sqrt(result) if node.op_type == "ReduceL2" else result


@substitute(("ReduceMax", "ReduceMin", "ReduceSum"))
def reduction_of_truths(op: Builder, node: NodeView) -> ir.Value:
    """Ones and zeros may be floats: all that comes of them is exact, sums as far as 24 bits count."""
    x, axes = node.need("data"), _axes(node)
    sizes = [node.dims("data")[axis] for axis in axes] if node.op_type == "ReduceSum" else []  # type: ignore[index]
    floats = _truths_as_floats(op, x, sizes)
    result = reduce(op, node.op_type, floats, axes, keepdims=bool(node.attr("keepdims", 1)))
    return op.Cast(result, to=int(node.dtype("data")))


@substitute("CumSum")
def sums_of_truths(op: Builder, node: NodeView) -> ir.Value:
    """The same for sums that go along."""
    x = node.need("x")
    sizes: list[object] = [*(node.dims("x") or (None,))]
    floats = _truths_as_floats(op, x, sizes)
    return op.Cast(op.CumSum(floats, node.need("axis"), **node.attributes()), to=int(node.dtype("x")))


def _truths_as_floats(op: Builder, x: ir.Value, sizes: list[object]) -> ir.Value:
    """What was made a number of a truth value, made a float of it instead."""
    cast = x.producer()
    truth = cast.inputs[0] if cast is not None and (cast.domain, cast.op_type) == ("", "Cast") else None
    count = math.prod(size if isinstance(size, int) else _EXACT_IN_FLOAT32 for size in sizes)
    if truth is None or truth.dtype != T.BOOL or count >= _EXACT_IN_FLOAT32:
        raise Blocked("a float would not hold these integers for sure")
    return op.Cast(truth, to=int(T.FLOAT))


def _axes(node: NodeView) -> list[int]:
    rank = node.rank("data")
    given = node.attr("axes")
    if any(formal.name == "axes" for formal in node.signature.inputs):
        given = node.ints("axes")
    if not given and node.attr("noop_with_empty_axes", 0):
        raise Blocked("it reduces nothing")
    return [axis % rank for axis in given] if given else list(range(rank))


@substitute(("GlobalMaxPool", "GlobalAveragePool"))
def global_pool(op: Builder, node: NodeView) -> ir.Value:
    """A reduction over all axes but the first two."""
    kind = "ReduceMax" if node.op_type == "GlobalMaxPool" else "ReduceMean"
    return reduce(op, kind, node.need("X"), list(range(2, node.rank("X"))))


@substitute("LogSoftmax")
def log_softmax(op: Builder, node: NodeView) -> ir.Value:
    """x without its largest, less the logarithm of the sum of exponentials."""
    if op.opset < _SOFTMAX_ALONG_ONE_AXIS:
        raise Blocked("it runs over several axes before opset 13")
    axis = [node.attr("axis", -1) % node.rank("input")]
    x = node.need("input")
    below = op.Sub(x, reduce(op, "ReduceMax", x, axis))
    return op.Sub(below, op.Log(reduce(op, "ReduceSum", op.Exp(below), axis)))


@substitute("BatchNormalization")
def batch_normalisation(op: Builder, node: NodeView) -> ir.Value:
    """One factor and one offset a channel."""
    x, rank = node.need("X"), node.rank("X")
    if node.attr("training_mode", 0) or node.outputs != 1:
        raise Blocked("in training it is more than a factor and an offset")
    scale, offset, mean, variance = (value for value in node.inputs[1:5] if value is not None)
    factor = op.Div(scale, op.Sqrt(variance + node.attr("epsilon", 1e-5)))
    moved = op.Sub(offset, op.Mul(mean, factor))
    if rank > 2:
        factor, moved = (unsqueeze(op, value, *range(1, rank - 1)) for value in (factor, moved))
    return op.Add(op.Mul(x, factor), moved)


@substitute("ArgMin")
def first_of_the_smallest(op: Builder, node: NodeView) -> ir.Value:
    """The largest of -x."""
    x = node.need("data")
    return op.ArgMax(op.Mul(x, number(op, -1, x)), **node.attributes())


@substitute("TopK")
def by_rank(op: Builder, node: NodeView) -> list[ir.Value]:
    """How many come before an element is its rank; among equals, the first comes first. k of the ranks are picked."""
    x, rank, dims = node.need("X"), node.rank("X"), node.dims("X")
    axis = node.attr("axis", -1) % rank
    size = dims[axis] if dims is not None else None
    if not isinstance(size, int) or size > _COMPARED:
        raise Blocked(f"it would compare each with all others, of which there may be more than {_COMPARED}")
    k = int((node.ints("K") or [0])[0]) if op.opset >= _TOPK_OF_AN_INPUT else int(node.attr("k"))
    last = [*(i for i in range(rank) if i != axis), axis]
    rows = op.Transpose(x, perm=last) if last != list(range(rank)) else x
    own, other = unsqueeze(op, rows, -1), unsqueeze(op, rows, -2)  # (…, n, 1), (…, 1, n)
    largest = bool(node.attr("largest", 1))
    ahead = op.Greater(other, own) if largest else op.Less(other, own)
    is_first = op.constant(np.tri(size, k=-1, dtype=bool))  # of those that are equal
    equal = op.Not(op.Or(op.Greater(other, own), op.Less(other, own)))
    counted = op.Cast(op.Or(ahead, op.And(equal, is_first)), to=int(T.FLOAT))
    places = op.Cast(reduce(op, "ReduceSum", counted, [rank], keepdims=False), to=int(T.INT32))
    picked = op.Equal(unsqueeze(op, places, -2), op.constant(np.arange(k, dtype=np.int32)[:, None]))  # (…, k, n)
    values = reduce(op, "ReduceSum", op.Where(picked, other, number(op, 0, x)), [rank], keepdims=False)
    positions = op.constant(np.arange(size, dtype=np.float32))
    marks = op.Mul(op.Cast(picked, to=int(T.FLOAT)), positions)
    indices = op.Cast(reduce(op, "ReduceSum", marks, [rank], keepdims=False), to=int(T.INT64))
    back = [last.index(i) for i in range(rank)]
    moved = [op.Transpose(v, perm=back) if back != list(range(rank)) else v for v in (values, indices)]
    return moved[: node.outputs]


@substitute("Gather")
def pick(op: Builder, node: NodeView) -> ir.Value:
    """One place, or places one after the other, that are known: a part that is cut out."""
    indices = constant_of(node.need("indices"))
    axis = node.attr("axis", 0) % node.rank("data")
    places = [] if indices is None else [int(place) for place in indices.reshape(-1)]
    if indices is None or indices.ndim > 1 or not places or places != list(range(places[0], places[0] + len(places))):
        raise Blocked("the places that it picks are not one part")
    start, end = places[0], places[-1] + 1
    part = cut(op, node.need("data"), axis, start, *([end] if end != 0 else []))
    return part if indices.ndim else squeeze(op, part, axis)


@substitute("SpaceToDepth")
def space_to_depth(op: Builder, node: NodeView) -> ir.Value:
    """Blocks of pixels, moved before the channels."""
    x, dims, block = node.need("input"), node.dims("input"), node.attr("blocksize", 1)
    if dims is None or len(dims) != 4 or not all(isinstance(dim, int) for dim in dims[1:]):
        raise Blocked("its sizes are not known")
    channels, height, width = (int(dim) for dim in dims[1:])  # type: ignore[arg-type]
    split = op.Reshape(x, op.vector([0, channels, height // block, block, width // block, block]))
    moved = op.Transpose(split, perm=[0, 3, 5, 1, 2, 4])
    return op.Reshape(moved, op.vector([0, channels * block * block, height // block, width // block]))
