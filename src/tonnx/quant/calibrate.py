"""Look at the values inside of a network while it runs, in little more memory than it needs by itself.

The network computes what is asked of its values: their ends, and some of them for a histogram. Nothing else leaves it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

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


def histograms(model: ir.Model, names: Sequence[str], samples: Iterable[Feeds], opened: Open) -> dict[str, Histogram]:
    """Of the values of these names, over all samples. The model is not changed."""
    copy = model.clone()
    probes = _probe(copy, names)
    run = opened(copy)
    counted = {name: Histogram() for name in names}
    for number, feeds in enumerate(samples):
        results = run(feeds)
        for name, (low, high, some) in probes.items():
            ends = float(results[low]), float(results[high])
            if not np.isfinite(ends).all():
                raise InvalidArgument(
                    f"the network itself computes numbers that are not finite on sample {number}",
                    why=f"the value {name} reaches from {ends[0]:g} to {ends[1]:g}",
                )
            counted[name].add(results[some], *ends)
    return counted


def _probe(model: ir.Model, names: Sequence[str]) -> dict[str, tuple[str, str, str]]:
    """Further outputs of the graph, by value: the least, the largest, and some of the numbers. No others are left."""
    graph = model.graph
    op = Builder(graph, names=Names(names_in(model)), opset=model.opset_imports[""])
    values = ir.convenience.create_value_mapping(graph)
    graph.outputs.clear()
    probes = {}
    for name in names:
        value = values[name]
        flat = op.Reshape(value, [-1])
        step = op.Add(op.Mul(op.Div(op.Size(value), 2 * _TAKEN), 2), 1)  # odd: rows are mostly even
        dims = dims_of(value)
        if dims is not None and all(isinstance(dim, int) for dim in dims):
            step = op.constant([int(np.prod(dims)) // (2 * _TAKEN) * 2 + 1])  # type: ignore[arg-type]
        else:
            step = op.Reshape(step, [1])
        some = op.Slice(flat, [0], [np.iinfo(np.int64).max], [0], step)
        low, high = (op.Identity(reduce(value, keepdims=0)) for reduce in (op.ReduceMin, op.ReduceMax))
        probes[name] = (str(low.name), str(high.name), str(some.name))
        graph.outputs.extend([low, high, some])
    return probes
