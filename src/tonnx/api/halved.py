"""Networks in half precision: which nodes stay in float32 is found by emulation, on samples or on drawn inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cache, partial
from typing import Any

import numpy as np
import onnx_ir as ir

from tonnx.api.calibrated import finished, prepared
from tonnx.errors import InvalidArgument
from tonnx.io import write
from tonnx.ir.target import ORT, Target
from tonnx.passes import keep_from_fusing
from tonnx.proof.compare import default_tolerance
from tonnx.proof.judge import run_of
from tonnx.proof.session import Session
from tonnx.proof.subject import Reference, Subject
from tonnx.quant.half import HALVES, SINCE, Emulation, makers, rounded_to_half, to_half
from tonnx.quant.observe import Feeds, Run

_TOLERANCES = {"fp16": 0.01, "bf16": 0.05}
"""Errors of a node's results by their magnitude; rounding alone comes to 0.0003 and 0.002."""


@dataclass
class Halved:
    """A network in half precision."""

    model: ir.Model
    nodes: int
    """How many compute in half precision."""
    emulated: Callable[[], ir.Model]
    """Makes the network in float32 that rounds as this one does."""
    floats: dict[str, str] = field(default_factory=dict)
    """Nodes that stay in float32, and why."""
    notes: list[str] = field(default_factory=list)


def halve(
    model: ir.Model, to: str, samples: Iterable[Feeds], skip: Sequence[str], target: Target, keep_io: bool
) -> Halved:
    """Convert a model, which is changed. ``samples`` are what its nodes are emulated on."""
    half = HALVES[to]
    if target.opset < SINCE[half]:
        hint = f"opset_version={SINCE[half]}"
        raise InvalidArgument(f"{to} needs opset {SINCE[half]}, not {target.opset}", hint=hint)
    notes = prepared(model)
    if not any(value.dtype == ir.DataType.FLOAT for node in model.graph for value in node.outputs):
        raise InvalidArgument("the file computes nothing in float32", hint="begin with the float file")
    floats = _skipped(model, skip)
    emulation = Emulation(model, half, target.opset)
    run = Session(write.to_bytes(emulation.model)).run if emulation.model.graph.outputs else None
    for feeds in samples:
        if run is not None:
            emulation.add(run(feeds))
    nodes = {str(node.name): node for node in model.graph}
    for name, alone in emulation.by_node().items():
        if why := alone.why(half, _TOLERANCES[to]):
            floats.setdefault(name, why)
            if alone.own <= _TOLERANCES[to] < alone.error:  # of numbers that were rounded before it reads them
                for maker in makers(nodes[name]):
                    floats.setdefault(maker, f"{name} needs what it gives in float32")
    emulated = partial(rounded_to_half, model.clone(), half, floats, target.opset)
    count = to_half(model, half, floats, keep_io, target.opset)
    keep_from_fusing(model, ORT)  # the file is for any runtime, and this one crashes where it computes products wider
    notes += finished(model, target)
    return Halved(model, count, emulated, floats, notes)


def _skipped(model: ir.Model, patterns: Sequence[str]) -> dict[str, str]:
    names = {
        str(node.name): [str(node.name), *(str(v.name) for v in node.inputs if v is not None and v.is_initializer())]
        for node in model.graph
    }
    floats: dict[str, str] = {}
    for pattern in patterns:
        hits = [node for node, own in names.items() if any(fnmatchcase(name, pattern) for name in own)]
        if not hits:
            raise InvalidArgument(f"no weight or node has a name like {pattern!r}")
        floats |= dict.fromkeys(hits, f"left out by {pattern}")
    return floats


def half_subject(subject: Subject, halved: Halved, to: str) -> Subject:
    """The original as what a file in half precision is compared with: its arrays are of the file's types."""
    if subject.reference is None:
        return subject
    inputs = {str(value.name): _dtype(value) for value in halved.model.graph.inputs}
    outputs = {str(value.name): _dtype(value) for value in halved.model.graph.outputs}
    example = {name: array.astype(inputs[name]) for name, array in subject.example.items()}

    def narrowed(original: Reference, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
        floats = {name: array.astype(subject.example[name].dtype, copy=False) for name, array in feeds.items()}
        results = zip(subject.outputs, original(floats), strict=True)
        return [np.asarray(array, outputs[name] or array.dtype) for name, array in results]

    @cache
    def emulation() -> Run:
        return run_of(halved.emulated())

    def emulated(feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
        results = emulation()(feeds)
        return [results[name] for name in subject.outputs]

    reference = partial(narrowed, subject.reference)
    largest = max((_magnitude(array) for array in reference(dict(example)) if array.dtype.kind not in "iub"), default=1)
    tolerance = default_tolerance(HALVES[to].numpy())
    judged = replace(subject, example=example, reference=reference, coarse=partial(narrowed, emulated))
    within = judged.within(2 * tolerance.rtol, tolerance.atol * max(largest, 1e-3))
    return replace(within, by_default=True)


def _magnitude(array: np.ndarray) -> float:
    numbers = array.astype(np.float64)
    return float(np.abs(numbers[np.isfinite(numbers)]).max(initial=0))


def _dtype(value: ir.Value) -> Any:
    return None if value.dtype is None or value.dtype == ir.DataType.STRING else value.dtype.numpy()
