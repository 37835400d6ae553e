"""Compare the values inside a file with the model's, in little memory: a few at a time, in step with the model's run.

Two ways to compute a value of the file. *Chained*: from the file's inputs, as the file does; differences add up.
*Local*: from the model's own values around it, so that only what arises between them and the value is seen.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tonnx.errors import InvalidModel, TonnxError, VerificationFailed
from tonnx.proof.compare import Comparison, compare, incomparable
from tonnx.proof.locate.cut import Cutter
from tonnx.proof.locate.trace import Take, Trace

BUDGET = 16 << 20
"""Bytes of the model's values that are kept before the file's are computed."""
AT_ONCE = 64
"""Values that are computed in one part at most: each is an output, and outputs are not optimised away."""


@dataclass(frozen=True)
class Tolerances:
    """As the user gave them; None is the dtype's own."""

    rtol: float | None = None
    atol: float | None = None

    def compare(self, name: str, expected: np.ndarray, actual: np.ndarray) -> Comparison:
        return compare(name, expected, actual, self.rtol, self.atol, lowered="float32")  # nobody knows what was


class Stop(TonnxError):
    """Ends the run of a trace: what comes later cannot be computed."""


@dataclass(frozen=True)
class Region:
    """The nodes between values that both sides have and one such value behind them."""

    value: str
    nodes: tuple[int, ...]
    inputs: tuple[str, ...]
    """What the nodes read: values that both sides have, and inputs of the file."""


@dataclass
class Pairs:
    """A file beside the model, on the same inputs: which values of the file hold which of the model's."""

    cutter: Cutter
    trace: Trace
    feeds: dict[str, np.ndarray]
    names: dict[str, str]
    """Value of the file → value of the model."""
    outputs: dict[str, np.ndarray]
    """Output of the file → what the model gives for it."""
    tolerances: Tolerances

    def of_model(self) -> dict[str, list[str]]:
        """Value of the model → values of the file. Those that are outputs are compared with the outputs."""
        by_name: dict[str, list[str]] = {}
        for value, name in self.names.items():
            if value not in self.outputs:
                by_name.setdefault(name, []).append(value)
        return by_name

    def run_model(self, wanted: Collection[str], take: Take) -> None:
        """Have the model's values handed over, as they are computed."""
        self.trace.run({name: array.copy() for name, array in self.feeds.items()}, wanted, take)

    def region(self, value: str) -> Region:
        """The smallest part of the file that makes a value from others that both sides have."""
        nodes = self.cutter.between([value], self.names)
        return Region(value, tuple(nodes), tuple(self.cutter.boundary(nodes, self.names.keys() - {value})))


def chained(pairs: Pairs) -> dict[str, Comparison]:
    """The difference at every value that both have, each computed from what the file computed before it."""
    sweep = _Chained(pairs)
    try:
        pairs.run_model(pairs.of_model().keys(), sweep.take)
        sweep.finish()
    except Stop:
        pass
    return sweep.comparisons


class _Chained:
    def __init__(self, pairs: Pairs) -> None:
        self.comparisons: dict[str, Comparison] = {}
        self._cutter, self._tolerances = pairs.cutter, pairs.tolerances
        self._held: dict[str, np.ndarray] = dict(pairs.feeds)
        self._pairs, self._values = pairs, pairs.of_model()
        self._waiting: dict[str, np.ndarray] = {}
        self._done: set[int] = set()

    def take(self, name: str, array: np.ndarray) -> None:
        """A value of the model: kept until enough of them are there."""
        for value in self._values.get(name, ()):
            self._waiting[value] = array
        size = sum(array.nbytes for array in self._waiting.values())
        if size > BUDGET or len(self._waiting) >= AT_ONCE:
            self._flush()

    def finish(self) -> None:
        """The outputs, which nobody took."""
        self._waiting.update(self._pairs.outputs)
        self._flush()

    def _flush(self) -> None:
        waiting, self._waiting = self._waiting, {}
        if not waiting:
            return
        try:
            self._advance(waiting)
        except (VerificationFailed, InvalidModel):
            # Somewhere in this part: one value after the other finds the place.
            for value in sorted(waiting, key=lambda value: self._cutter.maker.get(value, -1)):
                try:
                    self._advance({value: waiting[value]})
                except (VerificationFailed, InvalidModel) as error:
                    reason = f"{error.what}: {error.why}"
                    self.comparisons[value] = incomparable(value, waiting[value], reason)
                    raise Stop("the file does not run beyond this point") from error

    def _advance(self, waiting: Mapping[str, np.ndarray]) -> None:
        cutter = self._cutter
        wanted = [value for value in waiting if value in cutter.maker and value not in self._held]
        nodes = cutter.between(wanted, self._held)
        done = self._done | set(nodes)
        values = [name for index in nodes for name in cutter.proto.graph.node[index].output if name]
        kept = [name for name in values if any(reader not in done for reader in cutter.readers.get(name, ()))]
        tensors = [name for name in kept if cutter.is_tensor(name) and name not in self._held]
        results = cutter.run(nodes, self._held, list(dict.fromkeys([*wanted, *tensors]))) if nodes else {}
        for value, expected in waiting.items():
            actual = results.get(value, self._held.get(value))
            if actual is not None:
                self.comparisons[value] = self._tolerances.compare(value, expected, actual)
        self._done = done
        self._held.update({name: results[name] for name in tensors})
        inputs = set(cutter.inputs)
        for name in list(self._held):
            if name not in inputs and all(reader in done for reader in cutter.readers.get(name, ())):
                del self._held[name]


@dataclass
class Local:
    """What a region computes from the model's own values."""

    region: Region
    comparison: Comparison
    feeds: dict[str, np.ndarray] = field(default_factory=dict)
    expected: np.ndarray | None = None
    actual: np.ndarray | None = None


def local(pairs: Pairs, values: Iterable[str]) -> list[Local]:
    """The regions of values, computed from the model's own. The arrays of the first one that is wrong are kept."""
    regions = [pairs.region(value) for value in values]
    sweep = _Local(pairs, regions)
    pairs.run_model(sweep.wanted, sweep.take)
    sweep.flush()
    order = {region.value: place for place, region in enumerate(regions)}
    return sorted(sweep.judged, key=lambda judged: order[judged.region.value])


class _Local:
    def __init__(self, pairs: Pairs, regions: Sequence[Region]) -> None:
        self.judged: list[Local] = []
        self._pairs = pairs
        self._have = {**pairs.feeds, **pairs.outputs}  # by the file's names
        self._ready: list[Region] = []
        self._needed: dict[str, int] = {}
        self._missing: dict[str, set[str]] = {}
        self._waiting: dict[str, list[Region]] = {}
        for region in regions:
            values = dict.fromkeys((*region.inputs, region.value))
            for value in values:
                self._needed[value] = self._needed.get(value, 0) + 1
                self._waiting.setdefault(value, []).append(region)
            self._missing[region.value] = set(values)
        self._by_model = pairs.of_model()
        self.wanted = {pairs.names[value] for value in self._needed if value in pairs.names}
        for value in [value for value in self._have if value in self._needed]:
            self._arrived(value)

    def _arrived(self, value: str) -> None:
        for region in self._waiting.pop(value, ()):
            missing = self._missing[region.value]
            missing.discard(value)
            if not missing:
                self._ready.append(region)

    def take(self, name: str, array: np.ndarray) -> None:
        for value in self._by_model.get(name, ()):
            if value in self._needed:
                self._have[value] = array
                self._arrived(value)
        size = sum(self._have[v].nbytes for region in self._ready for v in (*region.inputs, region.value))
        if size > BUDGET or len(self._ready) >= AT_ONCE:
            self.flush()

    def flush(self) -> None:
        """Judge the regions for which all is there."""
        ready, self._ready = self._ready, []
        if not ready:
            return
        try:
            self._judge(ready)
        except (VerificationFailed, InvalidModel):
            for region in ready:
                try:
                    self._judge([region])
                except (VerificationFailed, InvalidModel) as error:
                    expected = self._have[region.value]
                    reason = f"{error.what}: {error.why}"
                    self._add(Local(region, incomparable(region.value, expected, reason)))
        for region in ready:
            for value in dict.fromkeys((*region.inputs, region.value)):
                self._needed[value] -= 1
                if not self._needed[value] and value not in self._pairs.feeds:
                    del self._have[value]

    def _judge(self, regions: Sequence[Region]) -> None:
        nodes = sorted({index for region in regions for index in region.nodes})
        wanted = [region.value for region in regions]
        feeds = {value: self._have[value] for region in regions for value in region.inputs}
        # Values that one region is given and another one computes: both, under two names.
        results = self._pairs.cutter.run(nodes, feeds, wanted)
        for region in regions:
            actual = results[region.value]
            comparison = self._pairs.tolerances.compare(region.value, self._have[region.value], actual)
            self._add(Local(region, comparison, actual=actual))

    def _add(self, judged: Local) -> None:
        if not judged.comparison.ok and all(other.comparison.ok for other in self.judged):
            judged.feeds = {value: self._have[value] for value in judged.region.inputs}
            judged.expected = self._have[judged.region.value]
        else:
            judged.actual = None
        self.judged.append(judged)


def ancestors(cutter: Cutter, values: Collection[str]) -> set[str]:
    """All values that these are computed from, and they themselves."""
    nodes = cutter.between(values, ())
    return {name for index in nodes for name in cutter.proto.graph.node[index].output} | set(values)
