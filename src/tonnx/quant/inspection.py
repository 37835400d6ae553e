"""What quantisation does to a file, layer by layer: the file itself, with a switch at every rounding.

Each QuantizeLinear with its DequantizeLinear, and each stored weight whose floats are known, gets a switch: an input
that chooses between the rounded numbers and those before. With all of them off the file computes what it was made of.
With those of one layer on, the outputs show what this layer costs, and its result how much noise it adds.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx_ir as ir

from tonnx.ir.build import T
from tonnx.ir.infer import constant
from tonnx.ir.operands import attribute
from tonnx.ir.rewrite import builder_of
from tonnx.quant.layers import HANDED_ON, candidates
from tonnx.quant.observe import Feeds, Open, some_of
from tonnx.quant.search import output_loss

Original = tuple[np.ndarray, np.ndarray | None]
"""The weight of a layer as floats, and its bias."""

_BINS = 48
_SECONDS = 60.0
"""After that, layers are not measured any more."""
_ALIKE = 0.5
"""Of the magnitude: how far integers may be from the floats that they were made of."""
_DEVIATIONS = 6
"""Of a sum of rounding errors that biases may make up for."""
_COMPARED = 4096
"""Numbers of two weights that are compared."""


@dataclass
class Row:
    """A layer, or a value that is rounded for others than layers."""

    name: str
    operator: str
    scale: float | None = None
    """Of what it reads, if that is rounded."""
    zero_point: int = 0
    bits: int | None = None
    ends: tuple[float, float] = (0.0, 0.0)
    """What the least and the largest integer stand for."""
    weight_bits: int | None = None
    weight_scales: tuple[float, float] | None = None
    """The smallest and the largest."""
    clipped: float | None = None
    """The share of what it reads that is outside of the range."""
    histogram: dict[str, Any] | None = None
    """``ends``, and the counts between them of what it reads as ``float`` and as ``quantised``."""
    signal_to_noise: float | None = None
    """Decibels at its result, if only this is rounded."""
    loss: float | None = None
    """The error of the outputs by their magnitude, if only this is rounded."""

    def describe(self, values: np.ndarray) -> None:
        """What rounding does to the numbers that are read, of which these are some."""
        assert self.scale is not None
        values, (low, high) = values[np.isfinite(values)], self.ends
        half = self.scale / 2  # so much beyond the end is rounded to it, not cut off
        outside = (values < low - half) | (values > high + half)
        self.clipped = float(outside.mean()) if values.size else 0.0
        rounded = np.clip(np.rint(values / self.scale) * self.scale, low, high)
        ends = float(min(values.min(initial=0), low)), float(max(values.max(initial=0), high))
        float_counts, counts = (np.histogram(array, _BINS, ends)[0].tolist() for array in (values, rounded))
        self.histogram = {"ends": ends, "float": float_counts, "quantised": counts}


@dataclass
class Inspection:
    """What was seen; ``rows`` are sorted by harm."""

    rows: list[Row]
    clean: list[dict[str, np.ndarray]]
    """The outputs for each sample with nothing rounded, as far as the floats are known."""
    unknown: list[str] = field(default_factory=list)
    """Stored weights whose floats are not known: they stay rounded."""

    def data(self) -> dict[str, Any]:
        """As JSON data; what is not finite is missing."""
        rows = [{**vars(row), "signal_to_noise": _finite(row.signal_to_noise), "loss": _finite(row.loss)}
                for row in self.rows]  # fmt: skip
        return {"rows": rows, "unknown": self.unknown}


def _finite(number: float | None) -> float | None:
    return number if number is not None and np.isfinite(number) else None


def is_quantised(model: ir.Model) -> bool:
    """Whether there is something to look at."""
    return any(node.op_type == "DequantizeLinear" and node.domain == "" for node in model.graph)


def originals_of(model: ir.Model) -> list[Original]:
    pairs: list[Original] = []
    layers = [layer.node for layer in candidates(model)]
    for node in layers:
        weight, bias = (constant(node.inputs[i]) if i < len(node.inputs) else None for i in (1, 2))
        if weight is not None:
            pairs.append((weight, bias))
    of_layers = {value for node in layers for value in node.inputs[1:2]}
    rest = [constant(value) for value in model.graph.initializers.values() if value not in of_layers]
    return pairs + [(array, None) for array in rest if array is not None and array.dtype.kind == "f" and array.ndim > 1]


def inspect(
    model: ir.Model, originals: Sequence[Original], batches: Sequence[Feeds], opened: Open, *, rows: bool = True
) -> Inspection:
    """Look at a quantised model at CANON, which is used up. ``rows=False``: only at what is left with all of it off."""
    twin = _Twin(model, originals)
    run = opened(model)
    off = dict.fromkeys(twin.switches, np.asarray(False))
    results = [run({**feeds, **off}) for feeds in batches]
    clean = [{name: one[own] for name, own in twin.outputs.items()} for one in results]
    found = Inspection([], clean, twin.unknown)
    loss_of, began = output_loss(clean, batches), time.monotonic()
    for item in twin.items if rows else ():
        found.rows.append(item.row)
        if item.read:
            item.row.describe(np.concatenate([one[item.read].reshape(-1) for one in results]))
        if time.monotonic() - began > _SECONDS:
            continue
        on = {**off, **dict.fromkeys(item.switches, np.asarray(True))}
        noisy = [run({**feeds, **on}) for feeds in batches]
        outputs = iter([{name: one[own] for name, own in twin.outputs.items()} for one in noisy])
        item.row.loss = loss_of(lambda feeds, outputs=outputs: next(outputs))  # type: ignore[misc]
        item.row.signal_to_noise = _decibels(*([one[item.result] for one in some] for some in (results, noisy)))
    found.rows.sort(key=lambda row: 1.0 if row.loss is None else -row.loss)
    return found


def _decibels(wanted: Sequence[np.ndarray], rounded: Sequence[np.ndarray]) -> float:
    signal = sum(float(np.square(one.astype(np.float64)).sum()) for one in wanted)
    noise = sum(float(np.square(b.astype(np.float64) - a).sum()) for a, b in zip(wanted, rounded, strict=True))
    return float(10 * np.log10(signal / noise)) if signal and noise else float("inf")


@dataclass
class _Item:
    """A row, what switches it on, and which outputs of the twin show it."""

    row: Row
    switches: list[str]
    read: str
    """Some of the numbers that it reads; empty if those are not rounded."""
    result: str


@dataclass(frozen=True)
class _Rounding:
    """A switch at a value that is rounded, or at a stored weight."""

    switch: str
    source: ir.Value
    """The numbers before."""
    step: ir.Node
    """The DequantizeLinear."""
    row: Row


class _Twin:
    """The model with switches as inputs; its outputs are followed by some numbers of what layers read and give."""

    def __init__(self, model: ir.Model, originals: Sequence[Original]) -> None:
        self._graph, self._originals = model.graph, originals
        self._op = builder_of(model)
        self.switches: list[str] = []
        self.unknown: list[str] = []
        self._roundings: dict[ir.Value, _Rounding] = {}
        names = [str(value.name) for value in self._graph.outputs]
        for node in [node for node in self._graph if (node.domain, node.op_type) == ("", "DequantizeLinear")]:
            self._switch(node)
        self.outputs = dict(zip(names, (str(value.name) for value in self._graph.outputs), strict=True))
        self.items = self._items()
        self._graph.sort()

    def _switch(self, node: ir.Node) -> None:
        integers, result = node.inputs[0], node.outputs[0]
        if integers is None:
            return
        row = Row(str(result.name), "", bits=_bits(integers))
        if integers.const_value is not None:
            rounded = _dequantised(node)
            pair = None if rounded is None else self._original(rounded)
            if pair is None or rounded is None or _is_shifted(pair[0], rounded, node):
                if rounded is not None and rounded.ndim > 1:
                    self.unknown.append(str(integers.name))
                return
            name = self._new_switch()
            source = self._op.constant(pair[0].astype(np.float32))
            self._roundings[self._chosen(name, result, source)] = _Rounding(name, source, node, row)
            self._biases(name, result, pair[1], rounded - pair[0])
            return
        quantize, bounds = _way_back(integers)
        before = None if quantize is None else quantize.inputs[0]
        scale, zero = (constant(value) for value in (*node.inputs[1:3], None)[:2])
        if before is None or scale is None or scale.size != 1 or integers.dtype is None:
            return
        row.scale, row.zero_point = float(scale.reshape(-1)[0]), 0 if zero is None else int(zero.reshape(-1)[0])
        limits = ir_limits(integers.dtype)
        row.ends = tuple((end - row.zero_point) * row.scale for end in limits)  # type: ignore[assignment]
        if bounds != (None, None):
            low, high = (None if end is None else np.float32((end - row.zero_point) * row.scale) for end in bounds)
            before = self._op.Clip(before, low, high)
        name = self._new_switch()
        self._roundings[self._chosen(name, result, before)] = _Rounding(name, before, node, row)

    def _new_switch(self) -> str:
        name = self._op.names.unique("switch")
        self._graph.inputs.append(ir.Value(name=name, type=ir.TensorType(T.BOOL), shape=ir.Shape([])))
        self.switches.append(name)
        return name

    def _chosen(self, switch: str, rounded: ir.Value, source: ir.Value) -> ir.Value:
        """Readers of the rounded numbers get these, or those before."""
        value = next(value for value in self._graph.inputs if value.name == switch)
        readers, is_output = list(rounded.uses()), rounded.is_graph_output()
        chosen = self._op.Where(value, rounded, source)
        chosen.shape, chosen.type = rounded.shape, rounded.type
        for user, index in readers:
            user.replace_input_with(index, chosen)
        if is_output:
            for i, output in enumerate(self._graph.outputs):
                if output is rounded:
                    self._graph.outputs[i] = chosen
        return chosen

    def _biases(self, switch: str, weight: ir.Value, bias: np.ndarray | None, error: np.ndarray) -> None:
        """The biases of the layers that read a weight go with it: they may make up for what its rounding changes.

        What is off by more than ``error``, that of the weight, comes to is no quantisation, and stays.
        """
        for where, _ in list(weight.uses()):
            for layer, index in list(where.outputs[0].uses()):
                value = layer.inputs[2] if len(layer.inputs) > 2 and index == 1 else None
                if value is None or value.shape is None or bias is None or list(value.shape) != list(bias.shape):
                    continue
                own = _constant_of(value)
                if own is not None and bool((np.abs(own - bias) > _made_up(layer, error, bias)).any()):
                    made = value.producer()
                    self.unknown.append(str((value if made is None else made.inputs[0] or value).name))
                    continue
                gate = next(one for one in self._graph.inputs if one.name == switch)
                chosen = self._op.Where(gate, value, self._op.constant(bias.astype(np.float32)))
                layer.replace_input_with(2, chosen)

    def _original(self, rounded: np.ndarray) -> Original | None:
        """The floats that a weight was made of: the most similar ones of its shape, as they are or transposed."""
        best, least = None, _ALIKE
        for weight, bias in self._originals:
            for form in (weight, weight.T) if weight.ndim == 2 else (weight,):
                if form.shape == rounded.shape and (away := _away(form, rounded)) < least:
                    best, least = (form, bias), away
        return best

    def _items(self) -> list[_Item]:
        items, used = [], set[str]()
        for node in list(self._graph):
            read = [self._rounding(value) for value in node.inputs[:2]]
            weight = next((one for one in read[1:] if one is not None and one.row.scale is None), None)
            x = read[0] if read and read[0] is not None and read[0].row.scale is not None else None
            if node.op_type not in ("Conv", "ConvTranspose", "Gemm", "MatMul") or (x is None and weight is None):
                continue
            row = Row(str(node.name or node.outputs[0].name), node.op_type)
            if x is not None:
                row.scale, row.zero_point, row.bits, row.ends = x.row.scale, x.row.zero_point, x.row.bits, x.row.ends
            stored = weight.step if weight is not None else _stored_before(node)
            if stored is not None and (scales := constant(stored.inputs[1])) is not None:
                row.weight_bits, row.weight_scales = _bits(stored.inputs[0]), (float(scales.min()), float(scales.max()))
            switches = [one.switch for one in (x, weight) if one is not None]
            used.update(switches)
            items.append(self._item(row, switches, x, node.outputs[0]))
        for chosen, one in self._roundings.items():
            if one.switch not in used:
                producer = one.source.producer()
                one.row.operator = "" if producer is None else producer.op_type
                one.row.weight_bits = one.row.bits if one.row.scale is None else None
                one.row.name = str(one.source.name) if one.row.scale is not None else one.row.name
                items.append(self._item(one.row, [one.switch], one if one.row.scale is not None else None, chosen))
        return items

    def _item(self, row: Row, switches: list[str], x: _Rounding | None, result: ir.Value) -> _Item:
        values = (None if x is None else x.source, result)
        shown = [None if value is None else some_of(self._op, value) for value in values]
        self._graph.outputs.extend(value for value in shown if value is not None)
        read, some = ("" if value is None else str(value.name) for value in shown)
        return _Item(row, switches, read, some)

    def _rounding(self, value: ir.Value | None) -> _Rounding | None:
        """The switch at a value, or at the one whose numbers it has."""
        while value is not None and value not in self._roundings:
            node = value.producer()
            value = node.inputs[0] if node is not None and node.domain == "" and node.op_type in HANDED_ON else None
        return None if value is None else self._roundings[value]


def _stored_before(node: ir.Node) -> ir.Node | None:
    """The DequantizeLinear of a weight whose floats are not known."""
    maker = None if len(node.inputs) < 2 or node.inputs[1] is None else node.inputs[1].producer()
    return maker if maker is not None and maker.op_type == "DequantizeLinear" else None


def _way_back(integers: ir.Value) -> tuple[ir.Node | None, tuple[int | None, int | None]]:
    """The QuantizeLinear that integers come from, and where they are cut off on the way."""
    node, low, high = integers.producer(), None, None
    if node is not None and node.op_type == "Clip" and node.inputs[0] is not None:
        ends = [constant(value) for value in (*node.inputs[1:3], None, None)[:2]]
        low, high = (None if end is None else int(end.reshape(-1)[0]) for end in ends)
        node = node.inputs[0].producer()
    return (node if node is not None and node.op_type == "QuantizeLinear" else None), (low, high)


def _bits(integers: ir.Value | None) -> int | None:
    return None if integers is None or integers.dtype is None else int(integers.dtype.bitwidth)


def ir_limits(dtype: ir.DataType) -> tuple[int, int]:
    """The least and the largest integer of a type."""
    count = 1 << int(dtype.bitwidth)
    return (-count // 2, count // 2 - 1) if dtype.name.startswith("INT") else (0, count - 1)


def _dequantised(node: ir.Node) -> np.ndarray | None:
    integers, scale, zero = (constant(value) for value in (*node.inputs, None)[:3])
    if integers is None or scale is None or scale.dtype.kind not in "fV":
        return None
    axis = attribute(node, "axis", 1)
    block = attribute(node, "block_size", 0)
    parts = [scale.astype(np.float32), np.zeros_like(scale, np.float32) if zero is None else zero.astype(np.float32)]
    if block:
        parts = [np.repeat(part, block, axis).take(range(integers.shape[axis]), axis) for part in parts]
    elif scale.ndim == 1 and scale.size > 1:
        parts = [part.reshape([-1 if i == axis % integers.ndim else 1 for i in range(integers.ndim)]) for part in parts]
    return np.asarray((integers.astype(np.float32) - parts[1]) * parts[0])


def _constant_of(value: ir.Value) -> np.ndarray | None:
    """A bias as floats, stored so or as integers."""
    node = value.producer()
    return constant(value) if node is None else _dequantised(node) if node.op_type == "DequantizeLinear" else None


def _made_up(layer: ir.Node, error: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """The most by which each bias may differ to make up for what the rounding of the weight changes on average.

    Errors have no sign of their own: a sum of them is some deviations beside what they have in common.
    """
    transposed = layer.op_type == "Gemm" and attribute(layer, "transB", 0)
    axis = 0 if layer.op_type == "Conv" or transposed else 1
    rows = np.moveaxis(error, axis, 0).astype(np.float64)
    if len(rows) != len(bias):  # ConvTranspose with groups
        return np.full(bias.shape, np.inf)
    rows = rows.reshape(len(rows), -1)
    reach = np.abs(rows.sum(1)) + _DEVIATIONS * np.sqrt(np.square(rows).sum(1))
    step = layer.inputs[2].producer() if layer.inputs[2] is not None else None
    scale = None if step is None else constant(step.inputs[1])
    return np.asarray(reach * _largest_read(layer.inputs[0]) + (0 if scale is None else scale) + 1e-5 * np.abs(bias))


def _largest_read(value: ir.Value | None) -> float:
    """The largest magnitude that the integers behind a value stand for."""
    node = None if value is None else value.producer()
    while node is not None and node.domain == "" and node.op_type in HANDED_ON and node.inputs[0] is not None:
        node = node.inputs[0].producer()
    if node is None or node.op_type != "DequantizeLinear" or node.inputs[0] is None or node.inputs[0].dtype is None:
        return np.inf
    scale, zero = (constant(part) for part in (*node.inputs[1:3], None)[:2])
    ends = np.asarray(ir_limits(node.inputs[0].dtype)) - (0 if zero is None else zero.astype(np.int64).max())
    return np.inf if scale is None else float(np.abs(ends).max() * scale.max())


def _is_shifted(floats: np.ndarray, rounded: np.ndarray, node: ir.Node) -> bool:
    """Whether all numbers of a channel are off to one side by more than a step: rounding goes either way."""
    scale, axis = constant(node.inputs[1]), attribute(node, "axis", 1)
    if scale is None or scale.ndim > 1 or not floats.size:  # blocks
        return False
    others = tuple(i for i in range(floats.ndim) if scale.size == 1 or i != axis % floats.ndim)
    means = (rounded.astype(np.float64) - floats).mean(others)
    return bool((np.abs(means) > np.abs(scale.reshape(means.shape).astype(np.float64))).any())


def _away(floats: np.ndarray, rounded: np.ndarray) -> float:
    """The difference of two weights by the magnitude of the first, at some places."""
    step = max(1, floats.size // _COMPARED)
    a, b = (array.reshape(-1)[::step].astype(np.float64) for array in (floats, rounded))
    return float(np.sqrt(np.square(a - b).sum() / max(np.square(a).sum(), 1e-30)))
