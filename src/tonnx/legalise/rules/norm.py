"""Normalisations: GroupNormalization's per-channel scale (21), BatchNormalization (15, 14, 9); and written out."""

from __future__ import annotations

import onnx_ir as ir

from tonnx.ir.build import Builder, T
from tonnx.ir.infer import dims_of
from tonnx.legalise.node_view import Blocked, NodeView
from tonnx.legalise.table import down, up
from tonnx.legalise.versioned_ops import reduce

_HALF = (ir.DataType.FLOAT16, ir.DataType.BFLOAT16)


def normalise_groups(op: Builder, x: ir.Value, groups: int, epsilon: float) -> ir.Value:
    """Zero mean and unit variance over every group of channels: instance normalisation of [N, groups, everything].

    This is the form in which PyTorch exports group normalisation, and which runtimes fuse.
    """
    dtype = x.dtype
    assert dtype is not None
    # stash_type says that half precision is normalised in float32.
    wide = op.cast(x, ir.DataType.FLOAT) if dtype in _HALF else x
    flat = op.Reshape(wide, [0, groups, -1])
    one, zero = op.constant([1.0] * groups, wide.dtype), op.constant([0.0] * groups, wide.dtype)
    normal = op.InstanceNormalization(flat, one, zero, epsilon=epsilon)
    return op.cast(_in_shape_of(op, normal, x), dtype)


def _in_shape_of(op: Builder, flat: ir.Value, x: ir.Value) -> ir.Value:
    """As ``x`` is; by a constant if no more than its batch and one other size are known only at run time."""
    dims = dims_of(x)
    if dims is None or 0 in dims or sum(not isinstance(dim, int) for dim in dims[1:]) > 1:
        return op.Reshape(flat, op.Shape(x))
    sizes = [dim if isinstance(dim, int) else 0 if axis == 0 else -1 for axis, dim in enumerate(dims)]
    return op.Reshape(flat, sizes, _shape=dims)


@down("GroupNormalization", 21)
def group_norm_per_channel(op: Builder, node: NodeView) -> ir.Value:
    """Scale and bias of each channel are applied outside; version 18 has them per group."""
    x, scale, bias = node.need("X"), node.need("scale"), node.need("bias")
    node.dtype("X")
    dims, groups = node.dims("X"), node.attr("num_groups")
    if dims is not None and dims[1] == groups and x.dtype not in _HALF:
        return op.InstanceNormalization(x, scale, bias, epsilon=node.attr("epsilon", 1e-5))
    per_channel = [-1] + [1] * (node.rank("X") - 2)
    normal = normalise_groups(op, x, groups, node.attr("epsilon", 1e-5))
    normal.shape = x.shape
    return normal * op.Reshape(scale, per_channel) + op.Reshape(bias, per_channel)


@up("GroupNormalization", 21)
def group_norm_per_group(op: Builder, node: NodeView) -> ir.Value:
    """Every channel gets the scale and bias of its group."""
    groups = node.attr("num_groups")
    channels = node.dims("X")
    if channels is None or not isinstance(channels[1], int):
        raise Blocked("the number of channels is not known, and scale and bias are per channel from opset 21 on")
    each = channels[1] // groups

    def spread(per_group: ir.Value) -> ir.Value:
        return op.Reshape(op.Expand(op.Unsqueeze(per_group, [1]), [groups, each]), [-1])

    return op.GroupNormalization(
        node["X"],
        spread(node.need("scale")),
        spread(node.need("bias")),
        num_groups=groups,
        epsilon=node.attr("epsilon"),
    )


# BatchNormalization


@down("BatchNormalization", 15, up="one type for all is allowed")
def batch_norm_two_types(op: Builder, node: NodeView) -> ir.Value | tuple[ir.Value, ...] | None:
    """Scale and bias have the type of X; where they differ, X is computed in theirs."""
    return _in_one_type(op, node, ("scale", "B"))


@down("BatchNormalization", 14)
def batch_norm_inference(op: Builder, node: NodeView) -> ir.Value | tuple[ir.Value, ...] | None:
    """Training is written out; mean and variance have the type of X."""
    if node.attr("training_mode", 0):
        return _batch_norm_training(op, node)
    return _in_one_type(op, node, ("scale", "B", "input_mean", "input_var"))


def _in_one_type(op: Builder, node: NodeView, names: tuple[str, ...]) -> ir.Value | tuple[ir.Value, ...] | None:
    x, dtype = node.need("X"), node.dtype("X")
    others = {node.dtype(name) for name in names}
    if others <= {dtype}:
        return None
    wide = ir.DataType.DOUBLE if ir.DataType.DOUBLE in {dtype, *others} else ir.DataType.FLOAT
    inputs = [
        op.cast(value, wide) if name in (*names, "X") else value
        for name, value in zip(("X", "scale", "B", "input_mean", "input_var"), node.node.inputs, strict=True)
        if value is not None
    ]
    assert x is node.node.inputs[0]
    first, *rest = op.BatchNormalization(*inputs, _outputs=node.outputs, **node.attributes("training_mode"))
    return (op.cast(first, dtype), *rest)


def _batch_norm_training(op: Builder, node: NodeView) -> tuple[ir.Value, ...]:
    x, dtype = node.need("X"), node.dtype("X")
    rank = node.rank("X")
    momentum = node.attr("momentum", 0.9)
    axes = [axis for axis in range(rank) if axis != 1]
    wide = op.cast(x, ir.DataType.FLOAT) if dtype in _HALF else x
    mean = op.ReduceMean(wide, axes=axes, keepdims=1)
    centred = wide - mean
    variance = op.ReduceMean(centred * centred, axes=axes, keepdims=1)
    normal = op.cast(centred / op.Sqrt(variance + node.attr("epsilon", 1e-5)), dtype)
    per_channel = [-1] + [1] * (rank - 2)
    scale, bias = (op.cast(node.need(name), dtype) for name in ("scale", "B"))
    results = [normal * op.Reshape(scale, per_channel) + op.Reshape(bias, per_channel)]
    for name, batch in (("input_mean", mean), ("input_var", variance)):
        running = node.need(name)
        now = op.cast(op.Reshape(batch, [-1]), node.dtype(name))
        results.append(running * momentum + now * (1.0 - momentum))
    return tuple(results[: node.outputs])


@up("BatchNormalization", 14)
def batch_norm_one_output(op: Builder, node: NodeView) -> ir.Value:
    """At inference there is one output."""
    if any(node.used(i) for i in range(1, node.outputs)):
        raise Blocked("the outputs of training had another meaning before opset 14")
    return op.BatchNormalization(*node.inputs, **node.attributes())


@down("BatchNormalization", 9)
def batch_norm_no_statistics(op: Builder, node: NodeView) -> None:
    """The statistics are per channel, which was the default."""


@up("BatchNormalization", 9)
def batch_norm_spatial(op: Builder, node: NodeView) -> ir.Value | None:
    """Statistics of every single position are written out."""
    if node.attr("spatial", 1):
        return None
    if any(node.used(i) for i in range(1, node.outputs)):
        raise Blocked("the outputs of training had another meaning before opset 14")
    x, scale, bias, mean, var = (node.need(name) for name in ("X", "scale", "B", "mean", "var"))
    return (x - mean) / op.Sqrt(var + node.attr("epsilon", 1e-5)) * scale + bias


# Written out, in the forms that ONNX Runtime and TensorRT fuse back into one kernel


def _last_axes(node: NodeView) -> list[int]:
    """The axes from ``axis`` to the last one, counted from the back (so that no rank is needed for -1)."""
    axis = int(node.attr("axis", -1))
    if axis >= 0:
        axis -= node.rank("X")
    return list(range(axis, 0))


@down("RMSNormalization", 23)
def rms_normalization(op: Builder, node: NodeView) -> ir.Value:
    """x / √(mean(x²) + ε) · scale, the normalised part in the stash type."""
    x, scale = node.need("X"), node.need("scale")
    wide = op.cast(x, T(node.attr("stash_type", 1)))
    mean_square = reduce(op, "ReduceMean", op.Pow(wide, 2.0), _last_axes(node))
    normalised = wide / op.Sqrt(mean_square + node.attr("epsilon", 1e-5))
    return op.cast(normalised, node.dtype("scale")) * scale


@down("GroupNormalization", 18)
def group_normalization(op: Builder, node: NodeView) -> ir.Value:
    """Instance normalisation of (batch, groups, everything): the form in which PyTorch exported it."""
    x = node.need("X")
    flat = op.Reshape(x, [0, node.attr("num_groups"), -1])
    epsilon = node.attr("epsilon", 1e-5)
    normal = op.InstanceNormalization(flat, node.need("scale"), node.need("bias"), epsilon=epsilon)
    return _in_shape_of(op, normal, x)


@down("LayerNormalization", 17)
def layer_normalization(op: Builder, node: NodeView) -> list[ir.Value | None]:
    """(x − mean) / √(variance + ε) · scale + bias, the normalised part in the stash type."""
    x, scale, bias = node.need("X"), node.need("Scale"), node["B"]
    axes = _last_axes(node)
    wide = op.cast(x, T(node.attr("stash_type", 1)))
    mean = reduce(op, "ReduceMean", wide, axes)
    centred = wide - mean
    variance = reduce(op, "ReduceMean", op.Pow(centred, 2.0), axes)
    deviation = op.Sqrt(variance + node.attr("epsilon", 1e-5))
    result = op.cast(centred / deviation, node.dtype("X")) * scale
    if bias is not None:
        result = result + bias
    return [result, mean, op.Reciprocal(deviation) if node.used(2) else None][: node.outputs]


@down("MeanVarianceNormalization", 9)
def mean_variance_normalization(op: Builder, node: NodeView) -> ir.Value:
    """(x − mean) / (standard deviation + 1e-9)."""
    x, axes = node.need("X"), node.attr("axes", [0, 2, 3])
    centred = x - reduce(op, "ReduceMean", x, axes)
    return centred / (op.Sqrt(reduce(op, "ReduceMean", centred * centred, axes)) + 1e-9)
