"""Look at the values inside of a network while it runs, in little more memory than it needs by itself.

The network computes what is asked of its values: their ends, and some of them for a histogram. Nothing else leaves it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from tonnx.errors import InvalidArgument
from tonnx.ir.build import Builder, Names
from tonnx.ir.infer import dims_of
from tonnx.ir.rewrite import names_in
from tonnx.quant.histogram import Histogram

Feeds = Mapping[str, np.ndarray]
Run = Callable[[Feeds], dict[str, np.ndarray]]
Open = Callable[[ir.Model], Run]
"""Makes a function of a model that runs it."""

_TAKEN = 8192
"""About how many values of a tensor are counted at each run."""


@dataclass(frozen=True)
class Mean:
    """Of each channel of what a layer multiplies."""

    channels: np.ndarray
    sizes: tuple[int, ...]
    """Of the last sample."""


@dataclass
class Observed:
    """What was seen of the values of a network."""

    histograms: dict[str, Histogram]
    part: dict[str, Histogram]
    """Of every other sample: what ranges cost is measured on those that they were not found on."""
    means: dict[str, Mean]


def observe(
    model: ir.Model, names: Sequence[str], channels: Mapping[str, int], samples: Iterable[Feeds], opened: Open
) -> Observed:
    """The histograms of some values over all samples, and the means of each index of an axis of others.

    The model is not changed. ``names`` are the former, ``channels`` the axes of the latter.
    """
    copy = model.clone()
    probes, averages = _probe(copy, names, channels)
    run = opened(copy)
    counted, part = ({name: Histogram() for name in names} for _ in range(2))
    means = {name: Mean(np.zeros(1), ()) for name in channels}
    for number, feeds in enumerate(samples):
        results = run(feeds)
        for name, (average, sizes) in averages.items():
            before = means[name].channels
            now = before + (results[average].astype(np.float64) - before) / (number + 1)
            means[name] = Mean(now, tuple(int(size) for size in results[sizes]))
        for name, (low, high, some) in probes.items():
            ends = float(results[low]), float(results[high])
            if not np.isfinite(ends).all():
                raise InvalidArgument(
                    f"the network itself computes numbers that are not finite on sample {number}",
                    why=f"the value {name} reaches from {ends[0]:g} to {ends[1]:g}",
                )
            counted[name].add(results[some], *ends)
            if number % 2 == 0:
                part[name].add(results[some], *ends)
    return Observed(counted, part, means)


def largest(
    model: ir.Model, channels: Mapping[str, int], samples: Iterable[Feeds], opened: Open
) -> dict[str, np.ndarray]:
    """The largest magnitude at each index of an axis of some values. The model is not changed."""
    copy = model.clone()
    graph = copy.graph
    op = Builder(graph, names=Names(names_in(copy)), opset=copy.opset_imports[""])
    values = ir.convenience.create_value_mapping(graph)
    graph.outputs.clear()
    probes = {}
    for name, axis in channels.items():
        others = [other for other in range(len(dims_of(values[name]) or ())) if other != axis]
        probes[name] = op.ReduceMax(op.Abs(values[name]), others, keepdims=0)
        graph.outputs.append(probes[name])
    run = opened(copy)
    seen = {name: np.zeros(1, np.float32) for name in channels}
    for feeds in samples:
        results = run(feeds)
        seen = {name: np.maximum(seen[name], results[str(probe.name)]) for name, probe in probes.items()}
    return seen


def _probe(
    model: ir.Model, names: Sequence[str], channels: Mapping[str, int]
) -> tuple[dict[str, tuple[str, str, str]], dict[str, tuple[str, str]]]:
    """Outputs of the graph in the place of its own: the least, the largest, some of the numbers; means, and sizes."""
    graph = model.graph
    op = Builder(graph, names=Names(names_in(model)), opset=model.opset_imports[""])
    values = ir.convenience.create_value_mapping(graph)
    graph.outputs.clear()
    probes = {}
    for name in names:
        value = values[name]
        some = some_of(op, value)
        low, high = (op.Identity(reduce(value, keepdims=0)) for reduce in (op.ReduceMin, op.ReduceMax))
        probes[name] = (str(low.name), str(high.name), str(some.name))
        graph.outputs.extend([low, high, some])
    averages = {}
    for name, axis in channels.items():
        rank = len(dims_of(values[name]) or ())
        mean = op.ReduceMean(values[name], [other for other in range(rank) if other != axis % rank], keepdims=0)
        sizes = op.Identity(op.Shape(values[name]))
        averages[name] = str(mean.name), str(sizes.name)
        graph.outputs.extend([mean, sizes])
    return probes, averages


def some_of(op: Builder, value: ir.Value) -> ir.Value:
    """Some thousand numbers of a value, spread over all of it."""
    dims = dims_of(value)
    if dims is not None and all(isinstance(dim, int) for dim in dims):
        step = op.constant([int(np.prod(dims)) // (2 * _TAKEN) * 2 + 1])  # type: ignore[arg-type]
    else:
        step = op.Reshape(op.Add(op.Mul(op.Div(op.Size(value), 2 * _TAKEN), 2), 1), [1])  # odd: rows are mostly even
    return op.Slice(op.Reshape(value, [-1]), [0], [np.iinfo(np.int64).max], [0], step)
