"""Networks that multiply integers: calibrated on samples, layer by layer as far as the loss allows; or as they go."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np
import onnx_ir as ir
from onnx_ir.passes.common import LiftConstantsToInitializersPass

from tonnx.errors import InvalidArgument, told_as
from tonnx.io import read as reading
from tonnx.ir import provenance
from tonnx.ir.rewrite import drop_unread, no_collection
from tonnx.ir.target import CANON, ORT_CPU, Target
from tonnx.legalise import legalise
from tonnx.passes import clean_up, fit_runtime, keep_from_fusing, optimise
from tonnx.passes.rows import widen_rows
from tonnx.proof.judge import UnopenedSession, run_of
from tonnx.quant.histogram import METHODS, Histogram
from tonnx.quant.layers import Candidate, candidates, matched, name_nodes, pool_means, too_small
from tonnx.quant.observe import Feeds, Observed, Run, largest, observe
from tonnx.quant.qdq import Step
from tonnx.quant.rescale import equalise, places, smooth
from tonnx.quant.search import Loss, Point, output_loss, until_met
from tonnx.quant.static import Known, Written, channels_needed, origins_of, steps_needed, write_static, write_trial
from tonnx.run.model import Model
from tonnx.run.samples import count_rows

AUTO = "auto"
"""The method of `_TRIED` with which the network loses least."""
_TRIED = {"minmax": 1.6, "percentile 99.999": 1.0, "percentile 99.99": 2.2}
"""By which their square errors count. Seen on twenty small networks: to cut off a share of 1e-5 is most often best. But
ranges of half of the samples cut off more than those of all, and a few rows decide: so all values are taken where
that is clearly closer, and more is cut off where that is far closer.
"""
_CLEAR = 1.5
"""By which square errors differ if half of the rows are enough."""
_TRIED_ROWS = 64
"""Rows of samples that methods are tried on: more would cost as much again as to look at all samples once."""
_KEPT = 32
_KEPT_BYTES = 32 << 20
SINCE_16 = 21
"""The first opset whose QuantizeLinear gives 16 bits."""


@dataclass(frozen=True)
class Calibration:
    """How ranges are found, and what they are found on."""

    method: str = AUTO
    percentile: float = 99.99
    bits: int = 8
    max_loss: float | None = None
    metric: Callable[[Run], float] | None = None
    correct_bias: bool = True
    """Whether biases make up for what rounded weights change of the means."""
    equalise: bool = False
    """Whether channels between layers get ranges alike."""
    smooth: float | None = None
    """By which power of their ranges channels go from activations into weights."""

    def __post_init__(self) -> None:
        if self.method not in (AUTO, *METHODS):
            raise InvalidArgument(f"method must be {AUTO}, {' or '.join(METHODS)}, not {self.method!r}")
        if not 50 < self.percentile <= 100:
            raise InvalidArgument(f"percentile must lie between 50 and 100, not {self.percentile!r}")
        if self.max_loss is not None and not self.max_loss >= 0:
            raise InvalidArgument(f"max_loss must not be negative, not {self.max_loss!r}")
        if self.metric is not None and self.max_loss is None:
            raise InvalidArgument("metric needs max_loss: by how much it may fall")
        if self.smooth is not None and not 0 < self.smooth < 1:
            raise InvalidArgument(f"smooth must lie between 0 and 1, not {self.smooth!r}", hint="0.5 is usual")


@dataclass
class Calibrated:
    """A network that was calibrated."""

    model: ir.Model
    layers: list[Written]
    floats: dict[str, str]
    """Layers that multiply floats, and why."""
    method: str
    kept: list[dict[str, np.ndarray]]
    """Some of the samples."""
    wanted: list[dict[str, np.ndarray]]
    """What the original gives for them."""
    curve: list[Point] = field(default_factory=list)
    sensitivity: dict[str, float] = field(default_factory=dict)
    """What is lost if this layer alone multiplies integers."""
    histograms: dict[str, Histogram] = field(default_factory=dict)
    bits: int = 8
    notes: list[str] = field(default_factory=list)

    def lines(self) -> list[str]:
        """For people: the curve."""
        if not self.curve:
            return []
        rows = [
            f"{len(point.floats):>15}  {point.size:>13,}  {point.loss:>8.4f}  {point.seconds * 1e3:>8.3f}"
            for point in self.curve
        ]
        return ["layers in float  weight bytes      loss  run in ms", *rows]

    def data(self) -> dict[str, Any]:
        """The same as JSON data."""
        return {
            "method": self.method,
            "bits": self.bits,
            "layers": [
                {"name": layer.name, "operator": layer.operator, "scale": float(layer.step.scale),
                 "zero_point": layer.step.zero_point, "loss_alone": self.sensitivity.get(layer.name)}
                for layer in self.layers
            ],
            "curve": [{"floats": list(p.floats), "loss": p.loss, "weight_bytes": p.size, "seconds": p.seconds}
                      for p in self.curve],
        }  # fmt: skip


@no_collection()
def prepared(model: ir.Model) -> list[str]:
    """Put a float network into the one form in which layers are looked for; returns notes."""
    notes = reading.infer(model)
    provenance.remember(model)
    legalise(model, Target(CANON))
    LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(model)  # weights may be nodes
    notes += optimise(model).notes
    pool_means(model)
    name_nodes(model)
    return notes


@no_collection()
def finished(model: ir.Model, target: Target) -> list[str]:
    """Take a network from that form to the opset and the runtime that were asked for."""
    keep_from_fusing(model, target.runtime)  # at CANON, where normalisations are one node
    if target.runtime is not None:
        widen_rows(model)
    legalise(model, target)
    notes = fit_runtime(model, target.runtime)
    clean_up(model)
    return notes


def calibrate(model: ir.Model, read: Callable[[], ir.Model], samples: Iterator[dict[str, np.ndarray]],
              how: Calibration, skip: Sequence[str], target: Target) -> Calibrated:  # fmt: skip
    """The network with integers in its layers. ``model`` is in the form of `prepared`; only its weights may change."""
    if how.bits == 16 and target.opset < SINCE_16:
        raise InvalidArgument(
            f"activations of 16 bits need opset {SINCE_16}, not {target.opset}", hint=f"opset_version={SINCE_16}"
        )
    layers = candidates(model)
    skipped = matched(skip, layers)
    floats = {layer.name: f"left out by {skipped[layer.name]}" if layer.name in skipped else layer.why
              for layer in layers if layer.why or layer.name in skipped}  # fmt: skip
    chosen = [layer for layer in layers if layer.name not in floats]
    if target.runtime is not None:  # others may have no kernels for floats at all
        floats |= too_small(chosen)
        chosen = [layer for layer in chosen if layer.name not in floats]
    if not chosen:
        reasons = "; ".join(f"{name}: {why}" for name, why in list(floats.items())[:4])
        raise InvalidArgument("there is no layer that could multiply integers", why=reasons or "it has no such layer")
    notes = _equalised(model) if how.equalise else []
    if how.smooth is not None:
        samples, more = _smoothed(model, samples, how.smooth)
        notes += more
    keeper = _Keeper()
    channels = channels_needed(chosen) if how.correct_bias else {}
    observed = observe(model, steps_needed(chosen), channels, samples, _opened, keeper.add)
    study = _Study(model, read, chosen, observed, how, target, keeper)
    method = study.best_method()
    curve, sensitivity, lost = study.within_loss(method) if how.max_loss is not None else ([], {}, ())
    floats |= dict.fromkeys(lost, "it costs too much")
    final = [layer.name for layer in chosen if layer.name not in floats]
    result, written = study.written(final, method)
    kept, wanted = keeper.kept, keeper.wanted
    return Calibrated(result, written, floats, method, kept, wanted, curve, sensitivity, observed.histograms, how.bits,
                      notes)  # fmt: skip


def _equalised(model: ir.Model) -> list[str]:
    count = equalise(model)
    return [f"channels of {count} values between layers were equalised"]


def _smoothed(
    model: ir.Model, samples: Iterator[dict[str, np.ndarray]], power: float
) -> tuple[Iterator[dict[str, np.ndarray]], list[str]]:
    """Smooth by the first samples, which are still among those that it gives; with notes of what was done."""
    first, held = [], 0
    for feeds in samples:
        first.append(feeds)
        held += sum(array.nbytes for array in feeds.values())
        if len(first) == _KEPT or held > _KEPT_BYTES:
            break
    between = [place for place in places(model) if all(layer.node.op_type != "Conv" for layer in place.readers)]
    if between:
        axes = {str(place.value.name): place.axis for place in between}
        smooth(model, between, largest(model, axes, first, _opened), power)
    products = sum(layer.node.op_type != "Conv" and not layer.why for layer in candidates(model))
    note = f"{sum(len(place.readers) for place in between)} of {products} products read smoothed channels"
    return chain(first, samples), [note]


def model_of(model: ir.Model, recipe: Any) -> Model:
    """The network as what takes samples, with a recipe for pictures."""
    from tonnx.run.recipe import read_recipe

    return Model(UnopenedSession(model), None if recipe is None else read_recipe(recipe))


class _Keeper:
    """Keeps some of the samples, with what the network gives for them: of every other, or the only one.

    See `tonnx.quant.observe.Observed.part`.
    """

    def __init__(self) -> None:
        self.kept: list[dict[str, np.ndarray]] = []
        self.wanted: list[dict[str, np.ndarray]] = []
        self._draws, self._bytes = np.random.default_rng(0), 0

    def add(self, number: int, feeds: Feeds, outputs: dict[str, np.ndarray]) -> None:
        if number == 1:
            self.kept.clear()  # the first: it counts in the ranges
            self.wanted.clear()
        if number % 2 == 0 and number:
            return
        seen = number // 2
        full = len(self.kept) >= _KEPT or self._bytes >= _KEPT_BYTES
        place = int(self._draws.integers(seen + 1)) if full else seen
        if place > len(self.kept) or (full and place == len(self.kept)):
            return
        own = {name: np.array(array) for name, array in feeds.items()}  # whoever gave it may use its memory again
        self.kept[place : place + 1], self.wanted[place : place + 1] = [own], [outputs]
        if not full:
            self._bytes += sum(array.nbytes for array in own.values())

    def first(self, rows: int) -> list[tuple[dict[str, np.ndarray], dict[str, np.ndarray]]]:
        """What is right for so many rows, about, and those."""
        count = int(np.searchsorted(np.cumsum([count_rows(feeds) for feeds in self.kept]), rows)) + 1
        return list(zip(self.wanted[:count], self.kept[:count], strict=True))


def _opened(model: ir.Model, *, fused_integers: bool = True) -> Run:
    """What runs a copy of a network, which nobody else needs, on this processor."""
    widen_rows(model)
    drop_unread(model)
    return run_of(model, fused_integers=fused_integers)


@dataclass
class _Study:
    """One network, quantised in several ways and measured."""

    model: ir.Model
    read: Callable[[], ir.Model]
    """Gives the original."""
    layers: Sequence[Candidate]
    observed: Observed
    how: Calibration
    target: Target
    keeper: _Keeper
    known: Known = field(default_factory=dict)
    origins: dict[str, str] = field(init=False)
    """Of what is rounded for all layers; the ranges of the origins are known."""

    def __post_init__(self) -> None:
        self.origins = origins_of(self.layers)

    def steps(self, method: str, histograms: Mapping[str, Histogram]) -> dict[str, Step]:
        """Of all values that are rounded for some layer."""
        levels = 1 << self.how.bits
        kind, _, share = method.partition(" ")
        percentile = float(share) if share else self.how.percentile
        ranges = {name: histograms[name].range(kind, levels, percentile) for name in histograms}
        found = {name: Step.of(ends, self.how.bits) for name, ends in ranges.items()}
        return {name: found[origin] for name, origin in self.origins.items()}

    def written(self, names: Sequence[str], method: str) -> tuple[ir.Model, list[Written]]:
        """A copy with integers in some layers, in the form of `prepared`."""
        with no_collection():
            copy, steps = self.model.clone(), self.steps(method, self.observed.histograms)
            return copy, write_static(copy, names, steps, self.observed.means, self.known)

    def run(self, names: Sequence[str], method: str) -> tuple[Run, int]:
        """Such a copy for the runtime, and the bytes of its weights."""
        copy, _ = self.written(names, method)
        finished(copy, Target(max(self.target.opset, 13), ORT_CPU))
        return run_of(copy), weight_bytes(copy)

    def loss(self) -> Loss:
        """By the outputs, or by the user's metric."""
        metric = self.how.metric
        if metric is None:
            return output_loss(self.keeper.wanted, self.keeper.kept)
        best = _measured_by(metric, run_of(self.read()))
        return lambda run: best - _measured_by(metric, run)

    def best_method(self) -> str:
        if self.how.method != AUTO:
            return self.how.method
        names = [layer.name for layer in self.layers]
        with no_collection():
            copy = self.model.clone()
            trial = write_trial(copy, names, self.how.bits, self.observed.means, self.known)
            run = _opened(copy, fused_integers=False)
        # On samples that the ranges were not found on: those may reach further, and are cut off then.
        steps = {method: trial.feeds(self.steps(method, self.observed.part)) for method in _TRIED}

        def lost(method: str, wanted: Mapping[str, np.ndarray], sample: Feeds) -> float:
            noise = output_loss([wanted], [sample])(lambda feeds: run({**feeds, **steps[method]}))
            return _TRIED[method] * noise**2

        errors, rows = dict.fromkeys(_TRIED, 0.0), 0
        for wanted, feeds in self.keeper.first(_TRIED_ROWS):
            errors = {method: error + lost(method, wanted, feeds) for method, error in errors.items()}
            rows += count_rows(feeds)
            best, second = sorted(errors.values())[:2]
            if 2 * rows >= _TRIED_ROWS and second > _CLEAR * best:
                break
        return min(errors, key=errors.__getitem__)

    def within_loss(self, method: str) -> tuple[list[Point], dict[str, float], tuple[str, ...]]:
        """The curve, what each layer costs alone, and the layers that have to stay floats."""
        assert self.how.max_loss is not None
        loss, names = self.loss(), [layer.name for layer in self.layers]
        everything = self._measured(loss, names, method, ())
        if everything.loss <= self.how.max_loss:
            return [everything], {}, ()
        costs = self._costs(method)
        order = sorted(names, key=lambda name: -costs[name])
        best, curve = until_met(order, lambda floats: self._measured(loss, names, method, floats), self.how.max_loss)
        if best is None:
            raise InvalidArgument(
                f"max_loss={self.how.max_loss:g} is not met even with every layer in floats",
                why=f"the least loss was {min(point.loss for point in curve):.3g}",
            )
        return curve, costs, best.floats

    def _costs(self, method: str) -> dict[str, float]:
        """What is lost if a layer alone is rounded: they are put in order by it, which some rows are enough for."""
        loss = output_loss(*zip(*self.keeper.first(_TRIED_ROWS), strict=True))

        def lost(name: str) -> float:
            copy, _ = self.written([name], method)
            return loss(_opened(copy, fused_integers=False))

        return {layer.name: lost(layer.name) for layer in self.layers}

    def _measured(self, loss: Loss, names: Sequence[str], method: str, floats: tuple[str, ...]) -> Point:
        left = [name for name in names if name not in set(floats)]
        run, size = self.run(left, method)
        lost, feeds, fastest = loss(run), self.keeper.kept[0], np.inf
        for _ in range(5):
            began = time.perf_counter()
            run(feeds)
            fastest = min(fastest, time.perf_counter() - began)
        return Point(floats, lost, size, fastest)


def _measured_by(metric: Callable[[Run], float], run: Run) -> float:
    """What the user's own function says of a network."""
    with told_as(InvalidArgument, "the metric failed"):
        number = float(metric(run))
    if not np.isfinite(number):
        raise InvalidArgument(f"the metric gave {number}", hint="a number, larger if the network is better")
    return number


def weight_bytes(model: ir.Model) -> int:
    """Of all initializers and constants of the main graph."""
    constants = (node.outputs[0] for node in model.graph if (node.domain, node.op_type) == ("", "Constant"))
    made = (ir.convenience.get_const_tensor(value) for value in constants)
    stored = (value.const_value for value in model.graph.initializers.values())
    return sum(tensor.nbytes for tensor in (*stored, *made) if tensor is not None)
