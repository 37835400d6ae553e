"""Element by element, and small things: Clip, Dropout, Gemm, TopK, Constant; broadcasting of Max and its like."""

from __future__ import annotations

import math
from functools import reduce

import numpy as np
import onnx_ir as ir

from tonnx.ir.build import Builder, T
from tonnx.ir.infer import broadcast, dims_of, same_dims
from tonnx.legalise.node_view import Blocked, NodeView, constant_of, known
from tonnx.legalise.table import UP, attributes_become_inputs, down, same, up
from tonnx.legalise.versioned_ops import arange

# None: the element type is not known, behind a node of another domain. The type rule lets that pass, too.
_FLOATS = (T.FLOAT16, T.BFLOAT16, T.FLOAT, T.DOUBLE, None)

# Clip


@down("Clip", 12)
def clip_integers(op: Builder, node: NodeView) -> ir.Value | None:
    """Before 12 only floats are clipped, and by ONNX Runtime no doubles; the others are chosen, which loses nothing."""
    x = node.need("input")
    if x.dtype in _FLOATS and x.dtype != T.DOUBLE:
        return None
    if (low := node["min"]) is not None:
        x = op.Where(op.Less(x, low), low, x)
    if (high := node["max"]) is not None:
        x = op.Where(op.Less(high, x), high, x)
    return op.Identity(x) if x is node["input"] else x


@down("Clip", 11)
def clip_attributes(op: Builder, node: NodeView) -> ir.Value:
    """The bounds become attributes; one that is computed at run time becomes a Max or Min."""
    x, low, high = node.need("input"), node["min"], node["max"]
    bounds: dict[str, float] = {}
    if x.dtype == T.DOUBLE:  # by default the bounds are those of float32
        bounds = {"min": -math.inf, "max": math.inf}
    for name, value in (("min", low), ("max", high)):
        if value is not None and (array := constant_of(value)) is not None:
            bounds[name] = float(array.reshape(-1)[0])
    if low is not None and constant_of(low) is None:
        x = op.Max(x, low)
    if bounds:
        x = op.Clip(x, **bounds)
    if high is not None and constant_of(high) is None:
        x = op.Min(x, high)
    return op.Identity(x) if x is node["input"] else x


@up("Clip", 11)
def clip_inputs(op: Builder, node: NodeView) -> ir.Value:
    """The bounds become inputs."""
    dtype = node.dtype("input")
    low, high = (
        op.constant(value, dtype) if (value := node.attr(name)) is not None else None for name in ("min", "max")
    )
    return op.Clip(node["input"], low, high)


# Types that have no wider one


@down(("Max", "Min"), 12)
def extremum_of_integers(op: Builder, node: NodeView) -> ir.Value | None:
    """Before 12 only floats are compared so; integers are chosen, which loses nothing."""
    inputs = [value for value in node.inputs if value is not None]
    if inputs[0].dtype in _FLOATS:
        return None
    best = inputs[0]
    for value in inputs[1:]:
        best = op.Where(op.Less(best, value) if node.op_type == "Max" else op.Less(value, best), value, best)
    return op.Identity(best) if best is inputs[0] else best


@down("Relu", 14)
def relu_of_integers(op: Builder, node: NodeView) -> ir.Value | None:
    """Before 14 for floats only."""
    x = node.need("X")
    if x.dtype in _FLOATS:
        return None
    zero = op.constant(0, x.dtype)
    return op.Where(op.Less(x, zero), zero, x)


@down("Equal", 11)
def equal_floats(op: Builder, node: NodeView) -> ir.Value | None:
    """Before 11 only integers are compared so: neither less nor greater, and both are numbers."""
    a, b = node.need("A"), node.need("B")
    if a.dtype is None or a.dtype not in _FLOATS:
        return None
    result = op.Not(op.Or(op.Less(a, b), op.Greater(a, b)))
    for value in (a, b):
        array = constant_of(value)
        if array is None or np.isnan(array).any():
            one, zero = op.constant(1.0, value.dtype), op.constant(0.0, value.dtype)
            result = op.And(result, op.Or(op.Less(value, one), op.Greater(value, zero)))
    return result


@down("Pow", 12)
def power_of_one_type(op: Builder, node: NodeView) -> ir.Value | None:
    """Before 12 base and exponent are floats of one type; a whole power of integers is a product."""
    x, y = node.need("X"), node.need("Y")
    if (dtype := x.dtype) is None or y.dtype is None:
        return None
    exponent = constant_of(y)
    if dtype not in _FLOATS:
        if exponent is not None and exponent.size == 1 and exponent.item() in (1, 2, 3, 4):
            result = x
            for _ in range(int(exponent.item()) - 1):
                result = op.Mul(result, x)
            return op.Identity(x) if result is x else result
        if dtype in (T.INT64, T.UINT64):
            raise Blocked("powers of 64-bit integers do not fit the floats that older versions take")
        wide = T.DOUBLE
    else:
        wide = dtype
    if wide == dtype == y.dtype:
        return None
    return op.cast(op.Pow(op.cast(x, wide), op.cast(y, wide)), dtype)


@down("Flatten", 9)
def flatten_any_type(op: Builder, node: NodeView) -> ir.Value | None:
    """Before 9 for floats only; Reshape takes every type."""
    x, axis = node.need("input"), node.attr("axis", 1)
    if x.dtype in _FLOATS:
        return None
    if axis in (0, 1):
        return op.Reshape(x, [1, -1] if axis == 0 else [0, -1])
    return op.Reshape(x, op.vector([op.product(op.sizes(x)[:axis]), -1]))


@down("BitShift", 28)
def shift_unsigned(op: Builder, node: NodeView) -> None:
    """Signed integers came with 28, and what it means to shift them too far."""
    if node.dtype("X") not in (T.UINT8, T.UINT16, T.UINT32, T.UINT64):
        raise Blocked("before 28 only unsigned integers are shifted")


# Dropout


@down("Dropout", 12)
def dropout_inference(op: Builder, node: NodeView) -> tuple[ir.Value, ...]:
    """At inference it passes everything on."""
    x = node.need("data")
    training = node["training_mode"]
    if training is not None and (constant_of(training) is None or bool(constant_of(training))):
        ratio = node["ratio"]
        if ratio is None or (array := constant_of(ratio)) is None or array.item() != 0:
            raise Blocked("before 12 dropout is for inference only")
    results = [op.Identity(x)]
    if node.outputs > 1:
        results.append(op.ConstantOfShape(op.Shape(x), value=ir.Tensor(np.ones([1], dtype=np.bool_))))
    return tuple(results)


@up("Dropout", 12)
def dropout_input(op: Builder, node: NodeView) -> tuple[ir.Value, ...]:
    """The ratio becomes an input."""
    return op.Dropout(node["data"], op.constant(node.attr("ratio", 0.5), T.FLOAT), _outputs=node.outputs)


@up("Dropout", 10)
def dropout_mask(op: Builder, node: NodeView) -> tuple[ir.Value, ...]:
    """The mask was of the input's type."""
    results = list(op.Dropout(node["data"], ratio=node.attr("ratio"), _outputs=node.outputs))
    if node.used(1):
        results[1] = op.Cast(results[1], to=int(node.dtype("data")))
    return tuple(results)


# Gemm


@down("Gemm", 11, up="C became optional")
def gemm_with_zero(op: Builder, node: NodeView) -> ir.Value | None:
    """C may not be missing."""
    if node["C"] is not None:
        return None
    zero = op.constant([0], node.dtype("A"))
    return op.Gemm(node["A"], node["B"], zero, **node.attributes())


# TopK

attributes_become_inputs("TopK", 10, "k")


@down("TopK", 11, up="the largest, sorted, are the default")
def top_k_smallest(op: Builder, node: NodeView) -> tuple[ir.Value, ...]:
    """The smallest are the largest of what is negated. Sorted is one of the orders that "unsorted" allows."""
    x, axis = node.need("X"), node.attr("axis", -1) % node.rank("X")
    if node.attr("largest", 1):
        return op.TopK(x, node["K"], axis=axis, _outputs=2)
    wide = {T.UINT8: T.INT32, T.UINT16: T.INT32, T.UINT32: T.INT64}.get(node.dtype("X"), node.dtype("X"))
    values, indices = op.TopK(op.Neg(op.cast(x, wide)), node["K"], axis=axis, _outputs=2)
    return op.cast(op.Neg(values), node.dtype("X")), indices


@down("TopK", 10)
def top_k_attribute(op: Builder, node: NodeView) -> tuple[ir.Value, ...]:
    """K becomes an attribute; one computed at run time picks from all, sorted."""
    x, axis, k = node.need("X"), node.attr("axis", -1), node.need("K")
    if (array := constant_of(k)) is not None:
        return op.TopK(x, k=int(array.item()), axis=axis, _outputs=2)
    axis %= node.rank("X")
    size = op.size(x, axis)
    if not isinstance(size, int):
        raise Blocked("K and the size that it picks from are both known only at run time")
    first = arange(op, k)
    return tuple(op.Gather(value, first, axis=axis) for value in op.TopK(x, k=size, axis=axis, _outputs=2))


# Constant


@down("Constant", 12, up="new attributes")
def constant_tensor(op: Builder, node: NodeView) -> ir.Value | None:
    """Numbers, lists and strings become a tensor."""
    if {"value", "sparse_value"} & set(node.node.attributes):
        return None
    tensor = ir.convenience.get_const_tensor(node.node.outputs[0])
    if tensor is None:
        raise Blocked("its value is a parameter of the enclosing function")
    (constant,) = op.node("Constant", [], [ir.AttrTensor("value", tensor)], [(tensor.dtype, [*tensor.numpy().shape])])
    return constant


@down("Constant", 11, up="a new attribute")
def constant_dense(op: Builder, node: NodeView) -> None:
    """Sparse constants cannot be written."""
    if "sparse_value" in node.node.attributes:
        raise Blocked("sparse constants came with opset 11")


@down("Constant", 9)
def constant_float(op: Builder, node: NodeView) -> ir.Value | None:
    """Before 9 only floats are constants; initializers can be anything, but a function has none."""
    array = known(constant_of(node.node.outputs[0]), "its value is a parameter of the enclosing function")
    dtype = T.from_numpy(array.dtype)
    if dtype in (T.FLOAT16, T.FLOAT, T.DOUBLE):
        return None
    if not op.constants_as_nodes:
        return op.constant(array)
    wide = array.astype(np.float64)
    if not (wide.astype(array.dtype) == array).all():
        raise Blocked("its value does not fit a float, and a function has no initializers")
    tensor = ir.Tensor(wide)
    (constant,) = op.node("Constant", [], [ir.AttrTensor("value", tensor)], [(T.DOUBLE, [*array.shape])])
    return op.Cast(constant, to=int(dtype))


# Broadcasting


@down(("Max", "Min"), 8)
def extremum_of_equal_shapes(op: Builder, node: NodeView) -> ir.Value | None:
    """All inputs must have one shape: each gets a zero of every other shape added to it."""
    inputs = [value for value in node.inputs if value is not None]
    if _one_shape(inputs):
        return None
    if (bound := _lone_float(inputs)) is not None:
        value, number = bound
        low, high = (number, math.inf) if node.op_type == "Max" else (-math.inf, number)
        return op.Clip(value, min=low, max=high)
    return getattr(op, node.op_type)(*(_broadcast(op, value, inputs) for value in inputs))


def _lone_float(inputs: list[ir.Value]) -> tuple[ir.Value, float] | None:
    """A value and one number to compare it with, which Clip does alone."""
    if len(inputs) != 2 or inputs[0].dtype != T.FLOAT:
        return None
    for value, other in (inputs, inputs[::-1]):
        array = constant_of(other)
        if array is None or array.size != 1 or value.shape is None or value.shape.rank() < array.ndim:
            continue
        if np.isfinite(array).all():
            return value, float(array.item())
    return None


@down(("Sum", "Mean"), 8)
def sum_by_adding(op: Builder, node: NodeView) -> ir.Value | None:
    """Add broadcasts, Sum does not."""
    inputs = [value for value in node.inputs if value is not None]
    if _one_shape(inputs):
        return None
    total = reduce(op.Add, inputs)
    return total / float(len(inputs)) if node.op_type == "Mean" else total


same(("Max", "Min", "Sum", "Mean"), 8, "equal shapes need no broadcasting", direction=UP)


def _one_shape(values: list[ir.Value]) -> bool:
    return all(same_dims(dims_of(values[0]), dims_of(value)) for value in values[1:])


def _broadcast(op: Builder, value: ir.Value, others: list[ir.Value]) -> ir.Value:
    """``value`` in the shape that all of ``others`` have together."""
    result = broadcast([dims_of(other) for other in others])
    array = constant_of(value)
    if array is not None and result is not None and all(isinstance(d, int) for d in result):
        return op.constant(np.broadcast_to(array, [int(d) for d in result if isinstance(d, int)]).copy())
    if (dtype := value.dtype) is None:
        raise Blocked("the element type of its input is not known")
    for other in others:
        if other is value or _one_shape([value, other]):
            continue
        if dtype == other.dtype and dtype in (T.FLOAT, T.DOUBLE):
            value = op.Mul(value, op.Pow(other, op.constant(0.0, dtype)))  # x⁰ is 1, also of a NaN
            continue
        # Never true, also for NaN: a zero in the shape of the other.
        zero = op.Cast(op.Less(other, other), to=int(dtype))
        value = op.Add(value, zero)
    return value
