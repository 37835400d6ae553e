"""Look at the values inside of a network while it runs, in little more memory than it needs by itself.

The network computes what is asked of its values: their ends, and some of them for a histogram. Nothing else leaves it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice

import numpy as np
import onnx_ir as ir

from tonnx.errors import InvalidArgument
from tonnx.ir.build import Builder
from tonnx.ir.infer import dims_of
from tonnx.ir.rewrite import builder_of, no_collection
from tonnx.quant.histogram import Histogram

Feeds = Mapping[str, np.ndarray]
Run = Callable[[Feeds], dict[str, np.ndarray]]
Open = Callable[[ir.Model], Run]
"""Makes a function of a model that runs it."""
Keep = Callable[[int, Feeds, dict[str, np.ndarray]], None]
"""Gets the number of a sample, the sample, and what the network gives for it."""

_TAKEN = 8192
"""About how many values of a tensor are counted at each run."""


@dataclass(frozen=True)
class Mean:
    """Of each channel of what a layer multiplies."""

    channels: np.ndarray
    sizes: tuple[int, ...]
    """Of the whole value in one of the samples."""


@dataclass
class Observed:
    """What was seen of the values of a network."""

    histograms: dict[str, Histogram]
    part: dict[str, Histogram]
    """Of every other sample: what ranges cost is measured on those that they were not found on."""
    means: dict[str, Mean]


def observe(
    model: ir.Model, names: Sequence[str], channels: Mapping[str, int], samples: Iterable[Feeds], opened: Open,
    keep: Keep,
) -> Observed:  # fmt: skip
    """The histograms of some values over all samples, and the means of each index of an axis of others.

    The model is not changed. ``names`` are the former, ``channels`` the axes of the latter.
    """
    samples = iter(samples)
    first = list(islice(samples, 1))
    with no_collection():
        copy = model.clone()
        outputs = [str(value.name) for value in copy.graph.outputs]
        probes, averages = _probe(copy, names, channels, _sizes(copy, *first))
        run = opened(copy)
    halves = [{name: Histogram() for name in names} for _ in range(2)]
    means = {name: Mean(np.zeros(1), ()) for name in channels}
    for number, feeds in enumerate(chain(first, samples)):
        results = run(feeds)
        for name, (average, sizes) in averages.items():
            before = means[name].channels
            now = before + (results[average].astype(np.float64) - before) / (number + 1)
            means[name] = Mean(now, sizes if isinstance(sizes, tuple) else tuple(map(int, results[sizes])))
        for name, (low, high, taken) in probes.items():
            ends, some = (float(results[low]), float(results[high])), _some(results[taken])
            if not np.isfinite(ends).all():
                what = "the data has" if name in feeds else "the network itself computes"
                raise InvalidArgument(
                    f"{what} numbers that are not finite in sample {number}, which integers cannot stand for",
                    why=f"the value {name} reaches from {ends[0]:g} to {ends[1]:g}",
                )
            halves[number % 2][name].add(some, *ends)
        keep(number, feeds, {name: results[name] for name in outputs})
    part, rest = halves
    return Observed({name: part[name].with_those_of(rest[name]) for name in names}, part, means)


def largest(
    model: ir.Model, channels: Mapping[str, int], samples: Iterable[Feeds], opened: Open
) -> dict[str, np.ndarray]:
    """The largest magnitude at each index of an axis of some values. The model is not changed."""
    copy = model.clone()
    graph = copy.graph
    op = builder_of(copy)
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


def _sizes(model: ir.Model, feeds: Feeds | None = None) -> dict[str, int]:
    """What the dimensions that have names are in a sample."""
    if feeds is None:
        return {}
    dims = ((dim, size) for value in model.graph.inputs if (array := feeds.get(str(value.name))) is not None
            for dim, size in zip(dims_of(value) or (), array.shape, strict=False))  # fmt: skip
    return {dim.value: size for dim, size in dims if isinstance(dim, ir.SymbolicDim) and dim.value is not None}


def _dims(value: ir.Value, sizes: Mapping[str, int]) -> tuple[int, ...] | None:
    """The dimensions of a value where those with names are so large; None where one is not known."""
    dims = dims_of(value)
    known = None if dims is None else [dim if isinstance(dim, int) else sizes.get(dim.value or "") for dim in dims]
    return None if known is None or None in known else tuple(known)  # type: ignore[arg-type]


def _probe(
    model: ir.Model, names: Sequence[str], channels: Mapping[str, int], sizes: Mapping[str, int]
) -> tuple[dict[str, tuple[str, str, str]], dict[str, tuple[str, str | tuple[int, ...]]]]:
    """Outputs of the graph beside its own: the least, the largest, some of the numbers; means, and sizes.

    ``sizes``: of dimensions that have names, in one of the samples. What they tell is not computed in each run.
    """
    graph = model.graph
    op = builder_of(model)
    values = ir.convenience.create_value_mapping(graph)
    probes = {}
    for name in names:
        value = values[name]
        some = some_of(op, value, sizes)
        low, high = (reduce(value, keepdims=0) for reduce in (op.ReduceMin, op.ReduceMax))
        probes[name] = (str(low.name), str(high.name), str(some.name))
        graph.outputs.extend([low, high, some])
    averages: dict[str, tuple[str, str | tuple[int, ...]]] = {}
    for name, axis in channels.items():
        rank = len(dims_of(values[name]) or ())
        mean = op.ReduceMean(values[name], [other for other in range(rank) if other != axis % rank], keepdims=0)
        graph.outputs.append(mean)
        dims = _dims(values[name], sizes)
        if dims is None:
            graph.outputs.append(op.Identity(op.Shape(values[name])))
        averages[name] = str(mean.name), dims or str(graph.outputs[-1].name)
    return probes, averages


def some_of(op: Builder, value: ir.Value, sizes: Mapping[str, int] | None = None) -> ir.Value:
    """Some thousand numbers of a value, spread over all of it. ``sizes``: about what dimensions with names will be."""
    dims = _dims(value, sizes or {})
    if dims is not None:
        step = op.constant([int(np.prod(dims)) // (2 * _TAKEN) * 2 + 1])
    else:
        step = op.Reshape(op.Add(op.Mul(op.Div(op.Size(value), 2 * _TAKEN), 2), 1), [1])  # odd: rows are mostly even
    return op.Slice(op.Reshape(value, [-1]), [0], [np.iinfo(np.int64).max], [0], step)


def _some(array: np.ndarray) -> np.ndarray:
    """The same of an array, which may be larger than was thought."""
    return array[:: array.size // (2 * _TAKEN) * 2 + 1]
