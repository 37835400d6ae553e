"""From a node that has nodes inside to the one among them that is wrong: the same search, on the part written out."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from tonnx.errors import TonnxError
from tonnx.io import read
from tonnx.ir import facts
from tonnx.ir.provenance import INSIDE
from tonnx.proof.locate.cut import Cutter
from tonnx.proof.locate.trace import Opened, Step, Take, Trace
from tonnx.proof.locate.unfold import Place, has_inside, unfold

if TYPE_CHECKING:
    from tonnx.proof.locate.located import Located, NodeInfo
    from tonnx.proof.locate.search import Case


def opened_case(case: Case, cutter: Cutter, located: Located) -> Case | None:
    """The part around a fault with branches, loops and functions written out; None if there are none, or none known."""
    from tonnx.proof.locate.search import Case

    local = located.local
    if local is None or local.expected is None or not located.confirmed:
        return None
    nodes = local.region.nodes
    if not any(has_inside(cutter, index) for index in nodes):
        return None
    names = [step.name for step in located.steps]
    try:
        opener = getattr(case.trace, "opened", None)
        opened = opener(dict(case.whole or case.feeds), names) if opener is not None else None
        trace = case.trace if opened is None else opened.trace
        places = case.places
        flat = unfold(
            cutter,
            nodes,
            local.feeds,
            local.region.value,
            lambda _: _passes(opened),
            lambda index: "" if places is None else places[index].turn,
        )
    except TonnxError:
        return None
    if flat is None:
        return None
    read.infer(flat.model)
    marks = case.marks or _marks(cutter)
    outer = case.outer or ("" if opened is None or len(opened.passes) != 1 else next(iter(opened.passes)))
    inner = {new: f"{outer}{marks[old]}@{turn}" for new, (old, turn) in flat.values.items() if old in marks and outer}
    step_names = {step.name for step in trace.steps()}
    output = str(flat.model.graph.outputs[0].name)
    return Case(
        flat.model,
        _Elsewhere(trace, case.whole or case.feeds),
        dict(local.feeds),
        {output: local.expected},
        case.tolerances,
        case.stamp,
        whole=case.whole or case.feeds,
        model_values={**located.model_values, **{value: name for value, name in inner.items() if name in step_names}},
        marks=marks,
        outer=outer,
        places=[_resolved(place, case.places) for place in flat.places],
    )


def _resolved(place: Place, before: Sequence[Place] | None) -> Place:
    """A place in a graph that is itself a part written out, as one in the file."""
    if before is None:
        return place
    around = before[place.index]
    name = around.name if place.name is None else place.name
    inside = ", in ".join(text for text in (place.inside, around.inside) if text)
    return Place(around.index, inside, name, place.turn or around.turn)


def _marks(cutter: Cutter) -> dict[str, str]:
    """What the values inside of branches and loops hold, where the file says it."""
    marks = {}
    for node in cutter.model.graph.all_nodes():
        for value in node.outputs:
            mark = facts.VALUE.get(value) or ""
            if mark.startswith(INSIDE) and value.name:
                marks[value.name] = mark
    return marks


def placed(case: Case, node: NodeInfo) -> NodeInfo:
    """A node of a part that was written out as one of the file."""
    place = Place(node.index) if case.places is None else case.places[node.index]
    name = node.name if place.name is None else place.name
    return replace(node, index=place.index, inside=place.inside, name=name)


def _passes(opened: Opened | None) -> int | None:
    """How often the one loop among the steps runs."""
    counts = [] if opened is None else list(opened.passes.values())
    return counts[0] if len(counts) == 1 else None


class _Elsewhere:
    """A trace of the whole model: its values are what they are, whatever a part of the file is run on."""

    def __init__(self, trace: Trace, feeds: dict[str, np.ndarray]) -> None:
        self.framework = trace.framework
        self._trace, self._feeds = trace, feeds

    def steps(self) -> Sequence[Step]:
        return self._trace.steps()

    def run(self, feeds: dict[str, np.ndarray], wanted: Collection[str], take: Take) -> None:
        self._trace.run({name: array.copy() for name, array in self._feeds.items()}, wanted, take)

    def opened(self, feeds: dict[str, np.ndarray], steps: Collection[str]) -> Opened | None:
        opener = getattr(self._trace, "opened", None)
        result: Opened | None = None if opener is None else opener(self._feeds, steps)
        return result
