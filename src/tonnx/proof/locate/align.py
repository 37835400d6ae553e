"""Which values of a file hold which of the model's: by what the file says, by their names, or by what they hold."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from tonnx.ir.facts import VALUE, Fact
from tonnx.ir.provenance import origin_of
from tonnx.ir.reach import reached
from tonnx.proof.compare import BLOCK
from tonnx.proof.locate.cut import Cutter
from tonnx.proof.locate.onnx_trace import run_in_parts
from tonnx.proof.locate.trace import Step, Take, Trace

Kind = tuple[str, tuple[int, ...]]
_SAME = 1e-3
"""Projections may differ by this part of the tensor's length: rounding is far below, other contents far above."""
_FOREIGN = 0.3
"""A file in which so many of the named values come from other operators was not made from this model."""


def stamped(cutter: Cutter, steps: Mapping[str, Step], stamp: Fact[str] = VALUE) -> dict[str, str]:
    """Value of the file → value of the model, as a file of tonnx says it; without what is not there in the model."""
    names: dict[str, str] = {}
    strange = named = 0
    for node in cutter.nodes:
        for value in node.outputs:
            name = stamp.get(value) or ""
            if name in steps and value.name:
                names[value.name] = name
                operator = origin_of(node).operator if stamp is VALUE else ""
                named += bool(operator)
                strange += bool(operator) and operator not in _operators(steps, name)
    return {} if strange > max(2, _FOREIGN * named) else names


def _operators(steps: Mapping[str, Step], name: str) -> set[str]:
    """That of the value, and those right before it: a layer keeps its own when the norm behind it is folded into it."""
    return {steps[one].operator for one in (name, *steps[name].inputs) if one in steps}


@dataclass(frozen=True)
class ContentMatch:
    """What contents tell about a file that says nothing of the model's values."""

    names: dict[str, str]
    """Value of the file → value of the model."""
    kinds: dict[str, Kind]
    """The dtype and shape of every value of the file."""
    ours: dict[str, Kind]
    """The dtype and shape of every value of the model."""
    ends: dict[str, str]
    """Output of the file → the value of the model that it should hold."""


def by_contents(
    cutter: Cutter,
    trace: Trace,
    feeds: dict[str, np.ndarray],
    outputs: Mapping[str, np.ndarray],
    steps: Mapping[str, Step],
) -> ContentMatch:
    """The values of a file that says nothing, beside those of the model, whose outputs are ``outputs``.

    Values of the same shape and contents are the same. Where a value of the file has the name of one of the model's,
    and names can be trusted because they agree with contents elsewhere, it is that one even if it holds something else.
    """
    ours: dict[str, Mark] = {}
    trace.run({name: array.copy() for name, array in feeds.items()}, steps.keys(), _marking(ours))
    theirs: dict[str, Mark] = {}
    wanted = [name for name in cutter.maker if cutter.is_tensor(name)]
    run_in_parts(cutter, dict(feeds), wanted, _marking(theirs))
    shapes, own = ({name: mark.kind for name, mark in marks.items()} for marks in (theirs, ours))
    kinds: dict[object, list[str]] = {}
    for name, mark in ours.items():
        if mark.telling:
            kinds.setdefault(mark.kind, []).append(name)

    def twins(marks: Mapping[str, Mark]) -> dict[str, str]:
        matches = {}
        for value, mark in marks.items():
            like = [name for name in kinds.get(mark.kind, ()) if ours[name].same(mark)] if mark.telling else []
            if like:
                matches[value] = min(like, key=lambda name: ours[name].distance(mark))
        return matches

    matched = twins(theirs)
    inner = [value for value in theirs if value in ours and value not in cutter.outputs]
    named = {value: value for value in inner if ours[value].kind == theirs[value].kind}
    if _trusted(cutter, named, ours, theirs):
        matched.update(named)
    return ContentMatch(matched, shapes, own, twins({name: mark_of(array) for name, array in outputs.items()}))


def _trusted(cutter: Cutter, named: Mapping[str, str], ours: Mapping[str, Mark], theirs: Mapping[str, Mark]) -> bool:
    """Whether equal names mean equal values: all but a few of those that are made from equal ones are equal."""
    equal = {value for value in named if ours[value].same(theirs[value])}
    first = [v for v in named if v not in equal and not _depends_on_other(cutter, v, named, equal)]
    return len(first) <= max(2, 0.05 * len(equal))


def _depends_on_other(cutter: Cutter, value: str, named: Mapping[str, str], equal: Collection[str]) -> bool:
    nodes = cutter.between([value], named)
    return any(name in named and name not in equal for name in cutter.boundary(nodes, named.keys() - {value}))


@dataclass(frozen=True)
class Mark:
    """A few numbers that tell contents apart, whatever the size of a tensor."""

    kind: Kind
    figures: tuple[float, ...]  # length, largest, smallest, and projections on fixed directions
    telling: bool

    def same(self, other: Mark) -> bool:
        return self.kind == other.kind and self.distance(other) <= _SAME

    def distance(self, other: Mark) -> float:
        """The largest difference of a figure, as a part of the tensor's length."""
        length = max(self.figures[0], other.figures[0]) or 1.0 if self.figures else 1.0
        return max((abs(a - b) for a, b in zip(self.figures, other.figures, strict=True)), default=0.0) / length


def mark_of(array: np.ndarray) -> Mark:
    """Projections are on directions that look random but are the same in every run."""
    kind = (array.dtype.name, tuple(array.shape))
    if array.dtype.kind in "OSUTc" or not array.size:
        return Mark(kind, (), False)
    flat = array.reshape(-1)
    squares = first = second = 0.0
    high, low = -np.inf, np.inf
    for start in range(0, flat.size, BLOCK):
        block = flat[start : start + BLOCK].astype(np.float64)
        block[~np.isfinite(block)] = 0.0
        index = np.arange(start, start + block.size, dtype=np.float64)
        squares += float(block @ block)
        first += float(block @ (np.modf(index * 0.6180339887498949)[0] - 0.5))
        second += float(block @ (np.modf(index * 0.7548776662466927)[0] - 0.5))
        high, low = max(high, float(block.max())), min(low, float(block.min()))
    figures = (squares**0.5, high, low, first, second)
    return Mark(kind, figures, telling=array.size > 1 and high > low)


def _marking(into: dict[str, Mark]) -> Take:
    def take(name: str, array: np.ndarray) -> None:
        into[name] = mark_of(array)

    return take


def unmatched(steps: Mapping[str, Step], matched: Collection[str], end: str | None) -> list[Step]:
    """The model's values without a match that lead to ``end``, or to any of its outputs; in order."""
    read = {name for step in steps.values() for name in step.inputs}
    start = [name for name in steps if name not in read] if end is None else [end, *steps[end].inputs]
    left = steps.keys() - set(matched)
    found = set(reached(left.intersection(start), lambda name: left.intersection(steps[name].inputs)))
    return [step for name, step in steps.items() if name in found and name != end]
