"""Narrow a large region down, in a file that does not say which of its values are the model's.

Everything behind a fault is wrong, so nothing there can be matched by what it holds. But when a value of the file is
replaced by the model's, and the output is right from then on, that value was the model's and the fault lies before it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tonnx.errors import InvalidModel, VerificationFailed
from tonnx.proof.locate.align import ContentMatch
from tonnx.proof.locate.sweep import Pairs, Region
from tonnx.proof.locate.trace import Step

_STEPS = 12
"""Values of the model that are tried, the first ones without a match."""
_TESTS = 48
_BEHIND = 8
"""Values behind the first one with which all is right that are tried as well."""


def narrow(
    pairs: Pairs, match: ContentMatch, region: Region, end: str | None, steps: Sequence[Step]
) -> tuple[str, str] | None:
    """The value of the file, and the model's that it should hold, after which all is right; or None.

    ``end`` is the model's value that the region should compute, ``steps`` are those before it that have no match.
    """
    tried = [step.name for step in steps[:_STEPS] if step.name in match.ours]
    if not tried and end is None:
        return None
    arrays = _arrays(pairs, region, [*tried, *([end] if end is not None else ())])
    expected = pairs.outputs.get(region.value, arrays.get(end or ""))
    if expected is None:
        return None
    inputs = {value: arrays.get(pairs.names.get(value, ""), pairs.feeds.get(value)) for value in region.inputs}
    if any(array is None for array in inputs.values()):
        return None
    nodes = (pairs.cutter.proto.graph.node[index] for index in region.nodes)
    values = [name for node in nodes for name in node.output if name in match.kinds]
    region_feeds = {value: array for value, array in inputs.items() if array is not None}

    def right(value: str, name: str) -> bool:
        return _is_right(pairs, {**region_feeds, value: arrays[name]}, region.value, expected)

    tests = 0
    for name in tried:
        places = [value for value in values if match.kinds[value] == match.ours[name] and value != region.value]
        for place, value in enumerate(places):
            tests += 1
            if tests > _TESTS:
                return None
            if right(value, name):
                hits = [value, *(v for v in places[place + 1 : place + 1 + _BEHIND] if right(v, name))]
                return _meant(pairs, region_feeds, hits), name
    if end is None or end not in match.ours:
        return None
    # Perhaps what follows the fault only hands on what the region should compute.
    copies = [value for value in values if match.kinds[value] == match.ours[end] and value != region.value][-_BEHIND:]
    first = _meant(pairs, region_feeds, [*copies, region.value])
    return (first, end) if first != region.value and right(first, end) else None


def _meant(pairs: Pairs, feeds: Mapping[str, np.ndarray], hits: list[str]) -> str:
    """Which of these values of the file is the model's: with its value in the place of each, all is right.

    The last one, or the first that is the same in the file, a copy. An earlier one may be right by chance only: what
    is normalised already does not change when it is normalised again.
    """
    if len(hits) == 1:
        return hits[0]
    try:
        own = pairs.cutter.run(pairs.cutter.between(hits, feeds), feeds, hits)
    except (VerificationFailed, InvalidModel):
        return hits[-1]
    return next(value for value in hits if pairs.tolerances.compare(value, own[hits[-1]], own[value]).ok)


def _arrays(pairs: Pairs, region: Region, tried: Sequence[str]) -> dict[str, np.ndarray]:
    arrays: dict[str, np.ndarray] = {}
    wanted = {pairs.names[value] for value in region.inputs if value in pairs.names} | set(tried)
    pairs.run_model(wanted, arrays.__setitem__)
    return arrays


def _is_right(pairs: Pairs, fed: Mapping[str, np.ndarray], output: str, expected: np.ndarray) -> bool:
    try:
        result = pairs.cutter.run(pairs.cutter.between([output], fed), fed, [output])
    except (VerificationFailed, InvalidModel):
        return False
    return pairs.tolerances.compare(output, expected, result[output]).ok
