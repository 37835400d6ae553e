"""Channels between layers made larger or smaller so that all of them are told apart by the same steps.

Where a value is made by one layer (or normalisation) and only read by others, each of its channels may be divided by a
number if the weights that make it are, and the weights that read it are multiplied by the same: the network computes
what it did. Which numbers, is the difference:

- Equalisation (Nagel and others, 2019) needs no data: a channel's weights get the same range on both sides.
- SmoothQuant (Xiao and others, 2022) moves a power of the range that activations have on data into the weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from tonnx.ir.build import Builder
from tonnx.ir.infer import dims_of
from tonnx.ir.rewrite import builder_of
from tonnx.quant.layers import KINDS, Candidate, candidate_of, candidates

_HANDING_ON = frozenset("Relu LeakyRelu MaxPool AveragePool GlobalAveragePool GlobalMaxPool Identity Dropout".split())
"""Operators that give c · x where they get it with c · x, for any positive c of a channel."""
_NORMS = {"LayerNormalization": (1, 2), "RMSNormalization": (1,), "BatchNormalization": (1, 2),
          "InstanceNormalization": (1, 2), "GroupNormalization": (1, 2)}  # fmt: skip
"""Which inputs are what results are multiplied by, and what is added to them."""
_ROUNDS = 8
"""Of equalisation: a layer between two others is changed from both sides."""
_LARGEST = 1e4
"""Factors lie within this, and its inverse: beyond, a channel is as good as dead on one of the sides."""


@dataclass(frozen=True)
class _Constant:
    """An input of a node that has to change, and the axis of its channels."""

    node: ir.Node
    index: int
    axis: int

    @property
    def array(self) -> np.ndarray:
        value = self.node.inputs[self.index]
        assert value is not None and value.const_value is not None
        return value.const_value.numpy()

    def scaled(self, op: Builder, factors: np.ndarray) -> None:
        array = self.array
        wide = factors.reshape([-1 if i == self.axis % array.ndim else 1 for i in range(array.ndim)])
        _store(op, self.node, self.index, array * wide)


@dataclass(frozen=True)
class Between:
    """A value whose channels may be divided by any numbers."""

    value: ir.Value
    axis: int
    """Of the channels."""
    makers: tuple[_Constant, ...]
    """The first is what results are multiplied by; the others are added."""
    readers: tuple[Candidate, ...]

    def divide(self, op: Builder, factors: np.ndarray) -> None:
        """The value by the factors, channel by channel; what reads it makes up for that."""
        for constant in self.makers:
            constant.scaled(op, 1 / factors)
        for layer in self.readers:
            _store(op, layer.node, 1, _weight(layer) * _beside(layer, factors))

    def made_range(self) -> np.ndarray:
        """The largest weight that makes each channel."""
        first = self.makers[0]
        rows = np.moveaxis(first.array, first.axis, 0)
        return np.abs(rows).reshape(len(rows), -1).max(1)

    def read_range(self) -> np.ndarray:
        """The largest weight that reads each channel."""
        return np.max([_read_range(layer, len(self.made_range())) for layer in self.readers], axis=0)


def places(model: ir.Model) -> list[Between]:
    """Where channels may be divided, in the order of the graph."""
    layers = {layer.node: layer for layer in candidates(model) if not layer.why}
    result = []
    for value in dict.fromkeys(layer.x for layer in layers.values()):
        users = [user for user, index in value.uses()]
        if value.is_graph_output() or value.producer() is None or any(user not in layers for user in users):
            continue
        rank = len(dims_of(value) or ())
        axes = {1 if layers[user].node.op_type == "Conv" else rank - 1 for user in users}
        if rank and len(axes) == 1:
            axis = axes.pop()
            makers = _makers(value, axis, rank)
            if makers:
                result.append(Between(value, axis, tuple(makers), tuple(layers[user] for user in dict.fromkeys(users))))
    return result


def _makers(value: ir.Value, axis: int, rank: int) -> list[_Constant]:
    """The constants to divide so that the value's channels are; nothing where that cannot be said."""
    node = value.producer()
    if node is None or node.domain != "" or not node.inputs or value.is_graph_output():
        return []
    source = node.inputs[0]
    if node.op_type in _HANDING_ON:
        return _makers(source, axis, rank) if source is not None and len(source.uses()) == 1 else []
    if node.op_type in KINDS:
        layer = candidate_of(node)
        if layer is None or layer.why or axis != (1 if node.op_type == "Conv" else rank - 1):
            return []
        return [_Constant(node, 1, layer.axis), *([] if layer.bias is None else [_Constant(node, 2, 0)])]
    if node.op_type in _NORMS:
        is_last = node.op_type in ("LayerNormalization", "RMSNormalization")
        own_axis = node.attributes["axis"].as_int() % rank if "axis" in node.attributes else rank - 1
        if axis != (own_axis if is_last else 1) or (is_last and own_axis != rank - 1):
            return []
        constants = [_Constant(node, i, 0) for i in _NORMS[node.op_type] if i < len(node.inputs) and node.inputs[i]]
        return constants if all(_is_vector(constant) for constant in constants) else []
    if node.op_type == "Add":
        return _sum(node, axis, rank)
    return []


def _sum(node: ir.Node, axis: int, rank: int) -> list[_Constant]:
    """A result with a vector of constants added to it."""
    for index in (0, 1):
        added, other = node.inputs[index], node.inputs[1 - index]
        if added is None or other is None or not added.is_initializer() or len(other.uses()) != 1:
            continue
        dims = dims_of(added) or ()
        from_end = rank - axis
        if len(dims) >= from_end and all(size == 1 for place, size in enumerate(dims) if place != len(dims) - from_end):
            makers = _makers(other, axis, rank)
            return [*makers, _Constant(node, index, len(dims) - from_end)] if makers else []
    return []


def _store(op: Builder, node: ir.Node, index: int, array: np.ndarray) -> None:
    """Other numbers for a constant of a node; other readers of the same constant keep what they have."""
    old = node.inputs[index]
    assert old is not None
    tensor = ir.Tensor(array.astype(np.float32), name=str(old.name))
    if len(old.uses()) > 1:
        node.replace_input_with(index, op.initializer(str(old.name), tensor))
    else:
        old.const_value = tensor


def _is_vector(constant: _Constant) -> bool:
    value = constant.node.inputs[constant.index]
    return value is not None and value.is_initializer() and value.shape is not None and value.shape.rank() == 1


def _weight(layer: Candidate) -> np.ndarray:
    assert layer.weight.const_value is not None
    return layer.weight.const_value.numpy()


def _beside(layer: Candidate, factors: np.ndarray) -> np.ndarray:
    """One factor for each number of a weight that reads the channels, in a shape that broadcasts to it."""
    weight = _weight(layer)
    if layer.node.op_type != "Conv":
        return factors.reshape([-1 if i != layer.axis else 1 for i in range(weight.ndim)])
    groups = len(factors) // weight.shape[1]
    rows = factors.reshape(groups, -1).repeat(len(weight) // groups, axis=0)
    return rows.reshape(*rows.shape, *[1] * (weight.ndim - 2))


def _read_range(layer: Candidate, channels: int) -> np.ndarray:
    weight = np.abs(_weight(layer))
    if layer.node.op_type != "Conv":
        return np.asarray(weight.max(layer.axis))
    groups = channels // weight.shape[1]
    rows = weight.reshape(groups, len(weight) // groups, weight.shape[1], -1)
    return np.asarray(rows.max((1, 3)).reshape(-1))


def equalise(model: ir.Model) -> int:
    """Give the channels between layers the same range on both sides; returns how many values were changed."""
    between = [place for place in places(model) if place.makers[0].node.op_type in KINDS]
    op = builder_of(model)
    for _ in range(_ROUNDS):
        for place in between:
            place.divide(op, _factors(np.sqrt(place.made_range()), np.sqrt(place.read_range())))
    return len(between)


def smooth(model: ir.Model, between: Sequence[Between], largest: Mapping[str, np.ndarray], power: float) -> int:
    """Move a power of the activations' ranges into the weights; returns how many values were changed.

    ``largest``: the largest magnitude of each channel, by the value's name.
    """
    op = builder_of(model)
    for place in between:
        seen = largest[str(place.value.name)]
        place.divide(op, _factors(seen**power, place.read_range() ** (1 - power)))
    return len(between)


def _factors(above: np.ndarray, below: np.ndarray) -> np.ndarray:
    """Their ratio within limits; 1 where a channel is nothing at all on one of the sides."""
    usable = (above > 0) & (below > 0)
    ratio = np.where(usable, above, 1) / np.where(usable, below, 1)
    return np.clip(ratio, 1 / _LARGEST, _LARGEST).astype(np.float32)
