"""A network that multiplies integers: activations and weights rounded between QuantizeLinear and DequantizeLinear."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import onnx_ir as ir

from tonnx.ir.build import Builder
from tonnx.ir.pairs import is_depthwise
from tonnx.ir.rewrite import builder_of
from tonnx.quant.integers import Form, Stored, by_channel
from tonnx.quant.layers import Candidate, Rounded, candidates, rounded_values
from tonnx.quant.observe import Mean
from tonnx.quant.qdq import Step, rounded_activation, rounded_bias, step_inputs, stored_floats

WEIGHTS = Form(8, 0, symmetric=True)
Known = dict[tuple[str, Form], tuple[Stored, np.ndarray | None]]
"""Weights of a network that were rounded before, with the biases that make up for it, by layer."""


@dataclass(frozen=True)
class Written:
    """A layer as it was written."""

    name: str
    operator: str
    weight: str
    stored: Stored
    step: Step
    """Of what it multiplies."""


def write_static(
    model: ir.Model, chosen: Sequence[str], steps: Mapping[str, Step], means: Mapping[str, Mean],
    known: Known | None = None,
) -> list[Written]:  # fmt: skip
    """Let the chosen layers multiply integers. ``steps``: of values, by name; see `steps_needed`.

    ``means``: of each channel of what layers multiply, by the value's name. Biases make up for what rounded weights
    change of the results' means then.
    """
    op = builder_of(model)
    layers = [layer for layer in candidates(model) if layer.name in set(chosen)]
    rounded = rounded_values(layers)
    of = {value: steps[str(origin.name)] for value, origin in rounded.origins.items()}
    known = {} if known is None else known
    written = [
        Written(layer.name, layer.node.op_type, str(layer.weight.name), *_weights(op, layer, of, means, known))
        for layer in layers
    ]
    for value, step in of.items():
        _round(op, value, rounded, [op.constant(part) for part in step.parts()])
    model.graph.sort()
    return written


@dataclass(frozen=True)
class Trial:
    """A network that rounds as its layers would, in steps that are inputs of it: one for all that are tried."""

    inputs: Mapping[str, tuple[str, str]]
    """The scale and the zero point of each value, by its name."""

    def feeds(self, steps: Mapping[str, Step]) -> dict[str, np.ndarray]:
        pairs = ((ports, steps[name].parts()) for name, ports in self.inputs.items())
        return {port: part for ports, parts in pairs for port, part in zip(ports, parts, strict=True)}


def write_trial(
    model: ir.Model, chosen: Sequence[str], bits: int, means: Mapping[str, Mean],
    known: Known,
) -> Trial:  # fmt: skip
    """The same as `write_static`, but that layers multiply floats: those that the integers stand for."""
    op = builder_of(model)
    layers = [layer for layer in candidates(model) if layer.name in set(chosen)]
    rounded = rounded_values(layers)
    for layer in layers:
        stored, bias = _stored(layer, bits, means, known)
        layer.node.replace_input_with(1, op.initializer(str(layer.weight.name), ir.Tensor(stored.floats())))
        if bias is not None and layer.bias is not None:
            layer.node.replace_input_with(2, op.initializer(str(layer.bias.name), ir.Tensor(bias)))
    names = dict.fromkeys(str(origin.name) for origin in rounded.origins.values())
    inputs = {name: step_inputs(op, name, bits) for name in names}
    for value, origin in rounded.origins.items():
        _round(op, value, rounded, inputs[str(origin.name)])
    model.graph.sort()
    return Trial({name: (str(scale.name), str(zero.name)) for name, (scale, zero) in inputs.items()})


def origins_of(layers: Sequence[Candidate]) -> dict[str, str]:
    """Every value that is rounded, and the one whose step it takes; by name. With fewer layers there may be others."""
    return {str(value.name): str(origin.name) for value, origin in rounded_values(layers).origins.items()}


def steps_needed(layers: Sequence[Candidate]) -> list[str]:
    """The values whose ranges have to be known, by name."""
    return list(dict.fromkeys(origins_of(layers).values()))


def channels_needed(layers: Sequence[Candidate]) -> dict[str, int]:
    """The values whose means are worth to be known, and the axis of their channels: those of layers with a bias."""
    return {
        str(layer.x.name): 1 if layer.node.op_type == "Conv" else -1
        for layer in layers
        if layer.bias is not None and layer.x.shape is not None
    }


def _weights(
    op: Builder, layer: Candidate, steps: Mapping[ir.Value, Step], means: Mapping[str, Mean],
    known: Known,
) -> tuple[Stored, Step]:  # fmt: skip
    """The weight and the bias as integers; the layer reads what they stand for."""
    step = steps[layer.x]
    stored, bias = _stored(layer, step.bits, means, known)
    stored = replace(stored, zero_point=np.zeros(stored.scale.shape, np.int8))  # without one, Gemm is not fused
    layer.node.replace_input_with(1, stored_floats(op, str(layer.weight.name), stored))
    if bias is not None and layer.bias is not None:
        integers = rounded_bias(bias, stored.scale * step.scale)
        if integers is not None:
            layer.node.replace_input_with(2, stored_floats(op, str(layer.bias.name), integers))
    return stored, step


def _stored(layer: Candidate, bits: int, means: Mapping[str, Mean], known: Known) -> tuple[Stored, np.ndarray | None]:
    """The weight as integers, and the bias that makes up for what they change."""
    weight, bias = layer.weight.const_value, None if layer.bias is None else layer.bias.const_value
    assert weight is not None
    # No kernel multiplies 16 bits by 8, and those for depthwise convolutions add up each product in 32 bits.
    form = replace(WEIGHTS, paired=bits == 8 and not is_depthwise(layer.node))
    if (layer.name, form) in known:
        return known[layer.name, form]
    stored, corrected = by_channel(weight.numpy(), layer.axis, form), None
    if bias is not None:
        shift = _shift(weight.numpy() - stored.floats(), layer, means.get(str(layer.x.name)))
        corrected = np.asarray(bias.numpy() + shift)
    known[layer.name, form] = stored, corrected
    return stored, corrected


def _shift(error: np.ndarray, layer: Candidate, mean: Mean | None) -> np.ndarray:
    """By how much the mean of each channel of the result has changed with the weight."""
    rows = np.moveaxis(error, layer.axis, 0)
    if mean is None:
        return np.zeros(len(rows), np.float32)
    if layer.node.op_type != "Conv":
        return (rows @ mean.channels).astype(np.float32)
    for axis in range(2, rows.ndim):
        inside = _inside(layer.node, axis - 2, rows.shape[axis], mean.sizes[axis])
        rows = rows * inside.reshape([-1 if i == axis else 1 for i in range(rows.ndim)])
    sums = rows.reshape(*rows.shape[:2], -1).sum(-1)
    groups = len(mean.channels) // sums.shape[1]
    of_group = mean.channels.reshape(groups, -1).repeat(len(rows) // groups, axis=0)
    return np.asarray((sums * of_group).sum(1), np.float32)


def _inside(conv: ir.Node, axis: int, taps: int, size: int) -> np.ndarray:
    """The share of all windows in which each place of the filter lies on the picture, and not on zeros around it."""
    rank = len(conv.inputs[0].shape or ()) - 2 if conv.inputs[0] is not None else 0
    defaults = {"pads": [0] * 2 * rank, "strides": [1] * rank, "dilations": [1] * rank}
    given = {name: list(conv.attributes[name].as_ints()) for name in defaults if name in conv.attributes}
    pads, strides, dilations = ({**defaults, **given}[name] for name in defaults)
    first, stride = np.arange(taps) * dilations[axis] - pads[axis], strides[axis]
    windows = (size + pads[axis] + pads[axis + rank] - dilations[axis] * (taps - 1) - 1) // stride + 1
    places = first[:, None] + np.arange(max(windows, 1)) * stride
    return np.asarray(((places >= 0) & (places < size)).mean(1))


def _round(op: Builder, value: ir.Value, rounded: Rounded, step: Sequence[ir.Value]) -> None:
    """Readers get the rounded numbers; where nobody may read others, a result of the graph is rounded, too."""
    whole = value in rounded.whole
    readers = [(user, index) for user, index in value.uses() if whole or user in rounded.readers]
    graph, is_output = op.graph, whole and value.is_graph_output()
    floats = rounded_activation(op, value, *step)
    for user, index in readers:
        user.replace_input_with(index, floats)
    if is_output:
        for i, output in enumerate(graph.outputs):
            if output is value:
                graph.outputs[i] = floats
        name = value.name
        value.name = op.names.unique(f"{name}_float")
        floats.name = name
