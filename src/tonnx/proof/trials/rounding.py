"""Quantised networks, and those in half precision: how much of a difference is rounding.

A number that lies between two steps may be rounded either way: PyTorch multiplies by the inverse of the scale where
ONNX divides, and ONNX Runtime adds up in integers where it can. One step more or less in one layer moves all that
comes after it. What that may come to is measured, not guessed: the same file without rounding, only cut off at the
ends of each range, shows what rounding as a whole does to the results. Rounding a few numbers the other way does
about as much.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from tonnx.errors import TonnxError
from tonnx.ir.schema import attribute_type
from tonnx.proof.judge import open_session
from tonnx.proof.session import Session
from tonnx.proof.trials import written_out
from tonnx.proof.trials.saturation import Exact, exact_form
from tonnx.proof.trials.values import is_float
from tonnx.proof.upward import load_proto

TIMES = 3.0
"""Honest files of forty small networks came to 0.8 in the middle and to 2.1 at worst."""
FACTORS = (1.0, 0.93, 1.07, 0.81, -1.0)
"""What inputs are multiplied by to see rounding at work."""

_BETWEEN = ("Clip", "Min", "Max")
_RANGES = {onnx.TensorProto.UINT8: (0, 255), onnx.TensorProto.INT8: (-128, 127)}


class Quantised:
    """A quantised file beside itself, without rounding and without kernels that saturate; made when first asked for."""

    def __init__(self, model: str | os.PathLike[str] | bytes) -> None:
        self._model = model

    @cached_property
    def exact(self) -> Exact | None:
        """What the file means; None if it multiplies no integers."""
        return exact_form(self._model)

    @cached_property
    def smooth(self) -> Session | None:
        """The file without rounding; None if it quantises nothing, or does not run without."""
        proto = without_rounding(self._model)
        try:
            return None if proto is None else open_session(proto.SerializeToString())
        except TonnxError:
            return None

    def allows(self, inputs: Mapping[str, np.ndarray], name: str, expected: np.ndarray, actual: np.ndarray) -> bool:
        """Whether a difference is no more than what rounding makes of this output."""
        smooth, exact = self.smooth, self.exact
        if smooth is None or exact is None:
            return False
        both = [smooth.run, exact.session.run]
        return is_rounding(inputs, expected, actual, lambda feeds: tuple(run(feeds)[name] for run in both))


def is_rounding(
    inputs: Mapping[str, np.ndarray],
    expected: np.ndarray,
    actual: np.ndarray,
    both: Callable[[dict[str, np.ndarray]], Iterable[np.ndarray]],
) -> bool:
    """Whether a difference is no more than what rounding makes. ``both`` gives the result without it, and with it."""
    if not is_float(expected) or expected.shape != actual.shape or not expected.size:
        return False
    difference = np.abs(actual.astype(np.float64) - expected.astype(np.float64))
    if not np.isfinite(difference).all():
        return False
    noise = []
    for factor in FACTORS:  # an output of a few numbers says little about what rounding may do
        try:
            flat, stepped = both({key: _scaled(array, factor) for key, array in inputs.items()})
        except (TonnxError, KeyError):
            return False
        if flat.shape != expected.shape:
            return False
        noise.append(np.abs(flat.astype(np.float64) - stepped.astype(np.float64)))
    measured = np.stack(noise)
    # The mean of a few numbers is itself one draw, which may well be twice what is usual.
    times = TIMES * (1 + 1 / np.sqrt(difference.size))
    return bool(difference.max() <= TIMES * measured.max() and _rms(difference) <= times * _rms(measured))


def _scaled(array: np.ndarray, factor: float) -> np.ndarray:
    """Infinite numbers are those of masks, which hide the rest if they change their sign."""
    return np.asarray(np.where(np.isinf(array), array, array * factor), array.dtype) if is_float(array) else array


def _rms(values: np.ndarray) -> float:
    return float(np.sqrt((values**2).mean()))


def without_rounding(model: str | os.PathLike[str] | bytes) -> onnx.ModelProto | None:
    """The model with each way to integers and back replaced by a cut at the ends of their range."""
    proto = load_proto(model, weights=False)
    stepped = _quantises(proto.graph)
    if not stepped and not written_out.rounds(proto.graph):
        return None
    if not isinstance(model, bytes):
        onnx.load_external_data_for_model(proto, os.path.dirname(os.path.abspath(os.fspath(model))))
    opset = next((entry.version for entry in proto.opset_import if entry.domain in ("", "ai.onnx")), 0)
    changed = _unround(proto.graph, opset, {}) if stepped else written_out.unround(proto.graph)
    return proto if changed else None


def _quantises(graph: onnx.GraphProto) -> bool:
    return any(
        node.op_type == "QuantizeLinear" or any(_quantises(a.g) for a in node.attribute if a.HasField("g"))
        for node in graph.node
    )


def _unround(graph: onnx.GraphProto, opset: int, outer: Mapping[str, onnx.TensorProto]) -> bool:
    """Change a graph, and the bodies of its loops; whether there was anything to change."""
    makers = {output: node for node in graph.node for output in node.output}
    constants = {**outer, **{tensor.name: tensor for tensor in graph.initializer}}
    nodes: list[onnx.NodeProto] = []
    changed = False
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                changed |= _unround(attribute.g, opset, constants)
        before = len(nodes)
        maker, cuts = makers.get(node.input[0]) if node.input else None, []
        while maker is not None and maker.op_type in _BETWEEN:
            cuts.append(maker)
            maker = makers.get(maker.input[0])
        if maker is not None and maker.op_type == "QuantizeLinear":
            if node.op_type == "DequantizeLinear":
                bounds = _bounds(maker, cuts, constants)
                _back(graph, node, _unrounded(maker.input[0], makers), bounds, opset)
                changed = True
            elif node.op_type == "MatMulInteger" and node.input[1] in constants:
                nodes += _product(graph, node, maker, constants)
                changed = True
        if len(nodes) == before:
            nodes.append(node)
    kept = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del graph.node[:], graph.value_info[:]  # types that hold no longer
    graph.node.extend(kept)
    return changed


def _back(
    graph: onnx.GraphProto, node: onnx.NodeProto, source: str, bounds: tuple[float, float] | None, opset: int
) -> None:
    """DequantizeLinear of what was quantised: the number itself, within the range."""
    del node.input[:], node.attribute[:]
    node.input.append(source)
    node.op_type = "Identity" if bounds is None else "Clip"
    if bounds is not None:
        _cut(graph, node, bounds, opset)


def _unrounded(name: str, makers: Mapping[str, onnx.NodeProto]) -> str:
    """Of ``Floor(x / s + 0.5) · s``, which is how halves are rounded up before QuantizeLinear: x; else the same."""
    source = name
    for op_types in (("Mul",), ("Floor",), ("Add",), ("Div", "Mul")):
        maker = makers.get(source)
        if maker is not None and maker.op_type in op_types:
            source = maker.input[0]
        elif "Mul" not in op_types:  # by a scale of 1 nothing is multiplied
            return name
    return source


def _product(
    graph: onnx.GraphProto, node: onnx.NodeProto, maker: onnx.NodeProto, constants: Mapping[str, onnx.TensorProto]
) -> list[onnx.NodeProto]:
    """MatMulInteger of what was quantised: of the numbers in steps."""
    weight = numpy_helper.to_array(constants[node.input[1]]).astype(np.float32)
    if len(node.input) > 3 and node.input[3] in constants:
        weight = weight - numpy_helper.to_array(constants[node.input[3]]).astype(np.float32)
    name = node.output[0]
    graph.initializer.append(numpy_helper.from_array(weight, f"{name}.weight"))
    return [
        onnx.helper.make_node("Div", [maker.input[0], maker.input[1]], [f"{name}.steps"]),
        onnx.helper.make_node("MatMul", [f"{name}.steps", f"{name}.weight"], [name]),
    ]


def _cut(graph: Any, node: onnx.NodeProto, bounds: tuple[float, float], opset: int) -> None:
    for name, bound in zip(("min", "max"), bounds, strict=True):
        if attribute_type("Clip", name, opset) is not None:
            node.attribute.append(onnx.helper.make_attribute(name, bound))
        else:
            graph.initializer.append(numpy_helper.from_array(np.float32(bound), f"{node.output[0]}.{name}"))
            node.input.append(graph.initializer[-1].name)


def _bounds(
    node: onnx.NodeProto, cuts: Sequence[onnx.NodeProto], constants: Mapping[str, onnx.TensorProto]
) -> tuple[float, float] | None:
    """What the smallest and the largest integer mean, cut at ends of their own as well, as a Relu of integers is.

    None where each channel has its own, or the run tells.
    """
    if len(node.input) < 3 or any(name not in constants for name in node.input[1:3]):
        return None
    scale, zero = (constants[name] for name in node.input[1:3])
    if zero.data_type not in _RANGES or list(scale.dims) not in ([], [1]):
        return None
    step, place = (float(numpy_helper.to_array(part).reshape(-1)[0]) for part in (scale, zero))
    low, high = _RANGES[zero.data_type]
    for cut in cuts:
        ends = [_number(constants.get(name)) for name in cut.input[1:3]]
        least, most = {"Clip": (*ends, None, None), "Max": (*ends, None), "Min": (None, *ends)}[cut.op_type][:2]
        low, high = max(low, low if least is None else least), min(high, high if most is None else most)
    return (low - place) * step, (high - place) * step


def _number(tensor: onnx.TensorProto | None) -> int | None:
    array = None if tensor is None else numpy_helper.to_array(tensor)
    return int(array.reshape(-1)[0]) if array is not None and array.size == 1 else None
