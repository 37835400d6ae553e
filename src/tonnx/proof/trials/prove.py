"""Prove that a file computes what a model computes: on the example and at other sizes of what is dynamic."""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, takewhile
from pathlib import Path

import numpy as np

from tonnx.errors import CaptureError, TonnxError, VerificationFailed, cause_of
from tonnx.ir.size_expressions import derived_sizes
from tonnx.proof.compare import EXACT, Comparison, compare, incomparable
from tonnx.proof.judge import checked, open_session
from tonnx.proof.session import PATIENCE, Session, one_line
from tonnx.proof.subject import Arrays, Reference, Subject, copies
from tonnx.proof.trials.budget import Budget
from tonnx.proof.trials.inputs import Sizes, draw, following, other_sizes, symbol_sizes
from tonnx.proof.trials.ranking import Ranked, in_order
from tonnx.proof.trials.rounding import Quantised, is_rounding
from tonnx.proof.trials.saturation import runtime_saturates
from tonnx.proof.trials.thresholds import around
from tonnx.proof.trials.ties import settle, unsupported
from tonnx.proof.trials.values import (
    FAR,
    WIDE,
    WIDE_DRAW,
    ZEROS,
    doubt,
    drawn_values,
    is_sensitive,
    other_values,
    own_results,
    rounded_results,
    rounding_decides,
    wide_values,
)
from tonnx.proof.trials.verification import BEYOND, Trial, Verification

_Inputs = tuple[str, Sizes, dict[str, np.ndarray]]
"""A set of inputs: what it is called, the sizes of its dynamic dimensions, the arrays."""
_SIZES = 16
"""Other sizes that are tried unless somebody says how many."""
_APART = 1000
"""From here on trials at suspected sizes are numbered: their values are not those of other trials."""
_TWICE = 256 << 20
"""Bytes up to which a file is loaded a second time."""


def prove(
    model: str | Path | bytes,
    subject: Subject,
    *,
    check: bool = True,
    seed: int = 0,
    sizes: bool | int = True,
    random: Collection[str] = (),
    values: bool | int = False,
    optimised: bool = True,
    lowered: Mapping[str, str] | None = None,
    thresholds: Sequence[float] = (),
    budget: Budget | None = None,
) -> Verification:
    """Check the file, then compare it with ``subject`` on its example, and with ``sizes`` at other sizes.

    With ``values`` also on other draws, zeros, negative and large numbers. For both a number says how many. Without,
    only as long as an output stays below the tolerance, where anything would pass.

    A file that is not valid or does not load raises InvalidModel; one that computes something else is a Verification
    which is not ``ok``. Without a reference the file is only run. Outputs in ``random`` depend on random numbers of the
    file's; where the model's own ones change them too, only their shapes and dtypes are compared. ``optimised=False``
    lets ONNX Runtime run every node as it stands. Outputs in ``lowered`` are held to the dtype that is named there.
    With a ``budget``, values around ``thresholds`` and other draws are tried as far as it goes; never left out are the
    example, one other size of every dynamic dimension, and one other draw.
    """
    subject = _within_restriction(subject, seed)
    dims = symbol_sizes(subject.example, subject.dynamic)
    began, used = time.perf_counter(), time.process_time()
    expected = None if subject.reference is None else _run_once(subject.reference, subject.example)
    patience = max(PATIENCE, 100 * (time.perf_counter() - began))
    remarks = checked(model) if check else []
    quantised = Quantised(model) if subject.by_default else None
    session = open_session(model, optimised=optimised)
    prover = _Prover(subject, session, patience, random, quantised, lowered or {}, Ranked(model))
    trials = [prover.example(dims, expected)]
    failing = None if trials[0].ok else subject.example
    budget = budget or Budget(math.inf, draws=0)
    budget.begin(time.process_time() - used)
    others = (
        _suspected_sizes(subject, dims, seed) if sizes else iter(()),
        _other_sizes(subject, dims, seed, sizes),
        _other_values(subject, dims, seed, values),
        _more_values(subject, dims, seed, thresholds, budget.draws),
        takewhile(lambda _: _is_faint(trials), _other_values(subject, dims, seed, not values)),
    )
    for kind, group in enumerate(others, -1):
        if kind == 2 and optimised and expected is not None and _may_load_again(model, budget):
            trials.append(prover.as_it_stands(model, dims, expected))
            failing = subject.example if failing is None and not trials[-1].ok else failing
        for label, drawn_sizes, inputs in group:
            if not _is_needed(kind, trials, dims, values) and not budget.allows():
                continue
            trials.append(prover.invented(label, drawn_sizes, inputs, expected))
            if failing is None and not trials[-1].ok:
                failing = inputs
    trials, tied = prover.together(trials, dims, seed, expected) if sizes else (trials, [])
    if all(trial.skipped is not None for trial in trials):
        raise VerificationFailed("ONNX Runtime does not run the model", why=trials[0].skipped)
    restricted = "" if subject.restriction is None else f"right where {subject.restriction}"
    told = tuple(filter(None, (*remarks, session.remark, restricted, *tied, *budget.told())))
    return Verification(tuple(trials), session.brought_up_by, failing=failing, remarks=told)


def _within_restriction(subject: Subject, seed: int) -> Subject:
    """The subject with an example that the file's operators take."""
    dims = symbol_sizes(subject.example, subject.dynamic)
    if subject.restriction is None or subject.restriction.allows(dims):
        return subject
    nearest = subject.restriction.nearest(dims)
    return replace(subject, example=_drawn(subject, nearest[0], seed, 0)) if nearest else subject


def _may_load_again(model: str | Path | bytes, budget: Budget) -> bool:
    """Whether there is time, and memory for the weights a second time."""
    from tonnx.proof.parts import nbytes

    return budget.draws > 0 and nbytes(model) <= _TWICE and budget.allows()


def _is_needed(kind: int, trials: Sequence[Trial], dims: Sizes, values: bool | int) -> bool:
    """Whether a trial of suspected sizes (-1), other ones (0), other values (1) or more of them (2) is a must."""
    if kind < 0:
        return True
    compared = [trial for trial in trials[1:] if trial.skipped is None]
    if kind == 0:
        return not all(any(trial.sizes[symbol] != size for trial in compared) for symbol, size in dims.items())
    return kind == 1 and (values is True or not any(trial.sizes == dims for trial in compared))


def _is_faint(trials: Sequence[Trial]) -> bool:
    """Whether some output was nowhere above the absolute tolerance: other values may move it."""
    return any(output.faint for output in Verification(tuple(trials)).per_output())


def _more_values(
    subject: Subject, dims: Sizes, seed: int, thresholds: Sequence[float], count: int
) -> Iterator[_Inputs]:
    """Draws of other scales; then values around what the file compares with, and other draws, in turns."""
    if subject.reference is None:
        return
    free = {name: array for name, array in subject.example.items() if name not in subject.weights}
    for number in range(min(count, len(WIDE))):
        for label, inputs in wide_values(free, seed, 3 + number):
            yield label, dims, {**subject.example, **inputs}
    for number in range(count if thresholds else count // 8):  # where nothing is decided, other draws show little more
        near = around(free, thresholds, (seed, number)) if thresholds else None
        if near is not None:
            yield f"around constants {number + 1}", dims, {**subject.example, **near}
        for label, inputs in drawn_values(free, seed, 3 + number):
            yield label, dims, {**subject.example, **inputs}


PLAIN = "every node as it stands"
"""How the trial of the example is called in which ONNX Runtime optimises nothing."""


def _other_sizes(subject: Subject, dims: Sizes, seed: int, count: bool | int) -> Iterator[_Inputs]:
    limit = _SIZES if count is True else count
    batch = {symbol for axes in subject.dynamic.values() for axis, symbol in axes.items() if axis == 0}
    assignments = _permitted(subject, other_sizes(dims, subject.ranges(dims), limit, batch))
    # Those that change most dimensions come first: one of them may be all that there is time for.
    assignments.sort(key=lambda sizes: -sum(sizes[symbol] != size for symbol, size in dims.items()))
    outside = following(subject.beyond(dims), derived_sizes(list(dims)), subject.limits)
    beyond = _permitted(subject, [sizes for sizes in outside if sizes != dims]) if limit else []
    for index, sizes in enumerate([*assignments, *beyond]):
        label = _label(sizes, dims) + (BEYOND if sizes in beyond else "")
        yield label, sizes, _drawn(subject, sizes, seed, index)


def _suspected_sizes(subject: Subject, dims: Sizes, seed: int) -> Iterator[_Inputs]:
    for index, (sizes, where) in enumerate(subject.suspected):
        for permitted in _permitted(subject, [dict(sizes)]):
            label = f"{_label(permitted, dims)}, where the model may go another way: {where}"
            yield label, permitted, _drawn(subject, permitted, seed, _APART + index)


def _permitted(subject: Subject, assignments: list[Sizes]) -> list[Sizes]:
    """The sizes that the file's operators take; of others, what comes nearest."""
    if subject.restriction is None:
        return assignments
    nearest = [each for sizes in assignments for each in subject.restriction.nearest(sizes)]
    return [sizes for place, sizes in enumerate(nearest) if sizes not in nearest[:place]]


def _label(sizes: Sizes, dims: Sizes) -> str:
    return ", ".join(f"{symbol}={size}" for symbol, size in sizes.items() if size != dims[symbol])


def _drawn(subject: Subject, sizes: Sizes, seed: int, index: int) -> dict[str, np.ndarray]:
    # Seeded by trial, so that one trial can be repeated without those before it.
    return draw(subject.example, subject.dynamic, sizes, np.random.default_rng([seed, index]))


def _other_values(subject: Subject, dims: Sizes, seed: int, count: bool | int) -> Iterator[_Inputs]:
    if not count or subject.reference is None:
        return
    weights = {name: subject.example[name] for name in subject.weights}
    free = {name: array for name, array in subject.example.items() if name not in weights}
    for label, inputs in islice(other_values(free, seed, bold=count is True), None if count is True else int(count)):
        yield label, dims, {**inputs, **weights}


def _run_once(reference: Reference, example: Arrays) -> Sequence[np.ndarray]:
    """Before the file is blamed for anything: does the model itself run on its example?"""
    try:
        return reference(copies(example))
    except TonnxError:
        raise
    except Exception as error:  # the user's own code
        raise CaptureError("the model itself fails on the example", why=one_line(cause_of(error))) from error


@dataclass(frozen=True)
class _Prover:
    subject: Subject
    session: Session
    patience: float
    random: Collection[str]
    quantised: Quantised | None
    lowered: Mapping[str, str]
    ranked: Ranked

    def example(self, sizes: Sizes, expected: Sequence[np.ndarray] | None) -> Trial:
        inputs = dict(self.subject.example)
        if expected is None:
            return self._run(("example", sizes, _shapes(inputs)), inputs)
        trial = Trial("example", sizes, _shapes(inputs), self._judge(inputs, expected))
        if not trial.ok:
            trial, inputs = self._within_range(trial, inputs)
        return trial if trial.ok else self._as_sensitive(trial, inputs, expected)

    def as_it_stands(self, model: str | Path | bytes, sizes: Sizes, expected: Sequence[np.ndarray]) -> Trial:
        """The example once more, without the fusions of ONNX Runtime, which can hide what other runtimes would run."""
        try:
            plain = replace(self, session=open_session(model, optimised=False))
        except TonnxError as error:  # types of constants, for one, that it only takes if it can fold them
            return Trial(PLAIN, sizes, _shapes(self.subject.example), skipped=error.why or error.what)
        return replace(plain.example(sizes, expected), label=PLAIN)

    def _as_sensitive(self, trial: Trial, inputs: Arrays, expected: Sequence[np.ndarray]) -> Trial:
        """The example's trial, its differences excused where rounding the inputs changes the model's own results so."""
        reference = self.subject.reference
        if reference is None or not self.subject.by_default or trial.saturated is not None:
            return trial
        try:
            tied = self._equal_scores_decide(trial, inputs, expected)
            sensitive = tied or is_sensitive(reference, inputs, expected, trial.comparisons, self.subject.rounded)
            if not sensitive and not self._rounding_decides(trial, inputs, expected):
                return trial
        except Exception:  # noqa: BLE001 (the user's own code, which took the example itself; what differs is told)
            return trial
        excused = (
            c if c.ok else replace(c, ok=True, reason=None, reordered=tied, sensitive=not tied)
            for c in trial.comparisons
        )
        return replace(trial, comparisons=tuple(excused))

    def _equal_scores_decide(self, trial: Trial, inputs: Arrays, expected: Sequence[np.ndarray]) -> bool:
        """Whether the results differ only in rows whose scores are those of others, so that any of them may stand."""
        failed = [(c, want) for c, want in zip(trial.comparisons, expected, strict=False) if not c.ok]
        if not all(comparison.name in self.ranked.outputs for comparison, _ in failed):
            return False
        try:
            return self.ranked.hangs_on_last_bits(inputs, failed, self.session.run(inputs, self.patience))
        except TonnxError:  # the file does not run there, which the trial says
            return False

    def _rounding_decides(self, trial: Trial, inputs: Arrays, expected: Sequence[np.ndarray]) -> bool:
        rounded = rounded_results(self.subject.rounded, inputs)
        if not rounded or not all(comparison.measured for comparison in trial.comparisons):
            return False
        try:
            wide = None if self.subject.wide is None else self.subject.wide(copies(inputs))
        except Exception:  # noqa: BLE001 (the user's own code, with other dtypes than it was written for)
            wide = None
        return rounding_decides(rounded, wide, expected, trial.comparisons)

    def other(self, label: str, sizes: Sizes, inputs: dict[str, np.ndarray]) -> Trial:
        if self.subject.reference is None:
            return self._run((label, sizes, _shapes(inputs)), inputs)
        try:
            expected = self.subject.reference(copies(inputs))
        except Exception as error:  # noqa: BLE001
            # The reference is the user's own code at a size we invented: it may raise anything (an assert, a
            # RuntimeError of its framework, a KeyError). None of it is about the file, and none is lost: the
            # reason goes into the trial.
            return Trial(label, sizes, _shapes(inputs), skipped=one_line(cause_of(error), limit=160))
        comparisons = self._judge(inputs, expected)
        if not any(c.measured for c in comparisons) and not any(want.size for want in expected):
            # Paddle makes windows that do not fit an empty output; ONNX Runtime refuses them.
            reason = one_line(f"it gives empty outputs only, and {comparisons[0].reason}", limit=160)
            return Trial(label, sizes, _shapes(inputs), skipped=reason)
        exact = [c.name for c in comparisons if not c.ok and c.tolerance is EXACT and c.measured]
        # A wide draw has a row of zeros: equals that are ranked, and nothing else.
        if exact and (label == ZEROS or (label.endswith(WIDE_DRAW) and self.ranked.outputs.issuperset(exact))):
            reason = "values are equal: what sorts them may do it any way"
            return Trial(label, sizes, _shapes(inputs), skipped=reason)
        return Trial(label, sizes, _shapes(inputs), comparisons)

    def invented(
        self, label: str, sizes: Sizes, inputs: dict[str, np.ndarray], usual: Sequence[np.ndarray] | None
    ) -> Trial:
        """Values that were drawn or made up: the model is not made for all, and some lie on the edge of a branch."""
        trial, reference = self.other(label, sizes, inputs), self.subject.reference
        if trial.ok or reference is None:
            return trial
        trial, inputs = self._within_range(trial, inputs)
        if trial.ok:
            return trial
        if _shapes(inputs) != _shapes(self.subject.example):
            failure = unsupported(reference, self.subject.example, inputs)
            if failure is not None:
                return Trial(label, sizes, _shapes(inputs), skipped=failure)
        expected, rounded = reference(copies(inputs)), self.subject.rounded
        reason = doubt(reference, inputs, expected, usual, trial.comparisons, label == FAR, rounded)
        if reason is None and self._equal_scores_decide(trial, inputs, expected):
            reason = "scores that differ by their last bits alone decide there which rows are chosen"
        return trial if reason is None else replace(trial, doubt=reason, comparisons=())

    def together(
        self, trials: Sequence[Trial], dims: Sizes, seed: int, usual: Sequence[np.ndarray] | None
    ) -> tuple[list[Trial], list[str]]:
        """The trials with those of sizes that belong together in the example, and what is to be told of it."""
        subject = self.subject
        if subject.reference is None:
            return list(trials), []

        def judge(assignments: list[Sizes]) -> list[Trial]:
            return [
                self.invented(_label(sizes, dims), sizes, _drawn(subject, sizes, seed, len(trials) + index), usual)
                for index, sizes in enumerate(_permitted(subject, assignments))
            ]

        return settle(trials, dims, subject.ranges(dims), judge)

    def _within_range(self, trial: Trial, inputs: dict[str, np.ndarray]) -> tuple[Trial, dict[str, np.ndarray]]:
        """A trial that failed where the framework's integer kernels may be cut off: on inputs where they are not."""
        exact = self.quantised.exact if self.quantised is not None and self.subject.saturates is not None else None
        framework = self.subject.saturates() if exact is not None and self.subject.saturates is not None else None
        if exact is None or framework is None or exact.is_safe(inputs):
            return trial, inputs
        within = exact.safe(inputs, self.subject.example)
        if within is None:
            cut = f"this processor's integer kernels saturate in {framework}, on smaller inputs too"
            failed = tuple(c if c.ok else replace(c, reason=f"{c.reason}; {cut}") for c in trial.comparisons)
            return replace(trial, comparisons=failed), inputs
        return replace(self.other(trial.label, dict(trial.sizes), within), saturated=framework), within

    def _run(self, what: tuple[str, Sizes, dict[str, tuple[int, ...]]], inputs: dict[str, np.ndarray]) -> Trial:
        """Without a reference: where the file does not run, the model may not either, since the sizes are invented."""
        try:
            self.session.run(inputs, self.patience)
        except VerificationFailed as error:
            return Trial(*what, skipped=error.why or error.what)
        return Trial(*what)

    def _judge(self, inputs: dict[str, np.ndarray], expected: Sequence[np.ndarray]) -> tuple[Comparison, ...]:
        """Compare every output. The model works on these inputs: what the file cannot do is a failure."""
        names = self.subject.outputs
        if len(expected) != len(names):
            reason = f"the model gives {len(expected)} outputs, the file has {len(names)}"
            return tuple(incomparable(name, np.empty(0), reason) for name in names)
        try:
            actual = self.session.run(inputs, self.patience)
        except VerificationFailed as error:
            reason = f"{error.what}: {error.why}"
            return tuple(incomparable(name, want, reason) for name, want in zip(names, expected, strict=True))
        comparisons = [
            self._compare(name, want, actual[name])
            if name in actual
            else incomparable(name, want, f"the file has no output {name!r}, only {', '.join(actual)}")
            for name, want in zip(names, expected, strict=True)
        ]
        for i, comparison in enumerate(comparisons):
            if self.quantised is not None and not comparison.ok and comparison.measured:
                comparisons[i] = self._by_steps(self.quantised, inputs, comparison, expected[i], actual)
            if not comparisons[i].ok and comparison.measured and self._is_coarseness(i, inputs, expected[i], actual):
                comparisons[i] = replace(comparison, ok=True, reason=None, excess=1.0, rounded=True)
        if not all(comparison.ok for comparison in comparisons):
            comparisons = self._as_sets(inputs, expected, actual, comparisons)
        return self._without_chance(inputs, expected, comparisons)

    def _compare(self, name: str, expected: np.ndarray, actual: np.ndarray) -> Comparison:
        rtol, atol = self.subject.rtol, self.subject.atol
        return compare(name, expected, actual, rtol, atol, lowered=self.lowered.get(name))

    def _by_steps(
        self,
        quantised: Quantised,
        inputs: dict[str, np.ndarray],
        comparison: Comparison,
        expected: np.ndarray,
        actual: Mapping[str, np.ndarray],
    ) -> Comparison:
        """A difference beyond the tolerance: whether numbers are rounded to the next step, or cut off by a kernel."""
        name, file = comparison.name, actual[comparison.name]
        exact = quantised.exact
        outputs = exact.run(inputs) if exact is not None and exact.signed and runtime_saturates() else None
        meant = file if outputs is None else outputs[name]
        if not self._compare(name, meant, file).ok and not quantised.allows(inputs, name, meant, file):
            file, comparison = meant, replace(self._compare(name, expected, meant), saturated=True)
        if comparison.ok or not quantised.allows(inputs, name, expected, file):
            return comparison
        return replace(comparison, ok=True, reason=None, excess=1.0, rounded=True)

    def _is_coarseness(self, place: int, inputs: Arrays, expected: np.ndarray, actual: Arrays) -> bool:
        models = [self.subject.reference, self.subject.coarse]
        runs = [model for model in models if model is not None]
        return len(runs) == len(models) and is_rounding(
            inputs, expected, actual[self.subject.outputs[place]],
            lambda feeds: [np.asarray(run(copies(feeds))[place]) for run in runs],
        )  # fmt: skip

    def _as_sets(
        self, inputs: Arrays, expected: Sequence[np.ndarray], actual: Arrays, comparisons: list[Comparison]
    ) -> list[Comparison]:
        """Rows that were ranked, compared in any order where their scores are equal."""
        names, reference = self.subject.outputs, self.subject.reference
        ranked = [i for i, name in enumerate(names) if name in self.ranked.outputs and comparisons[i].measured]

        def compared(i: int, rows: np.ndarray) -> Comparison:
            return self._compare(names[i], expected[i], rows)

        def reorders(group: Sequence[int]) -> bool:
            assert reference is not None
            return any(
                moved[i].shape == expected[i].shape and not compared(i, moved[i]).ok
                for moved in own_results(reference, inputs, rounded=self.subject.rounded)
                for i in group
            )

        arrays = [actual.get(name, expected[i]) for i, name in enumerate(names)]
        return in_order(expected, arrays, comparisons, ranked, compared, reorders)

    def _without_chance(
        self, inputs: dict[str, np.ndarray], expected: Sequence[np.ndarray], comparisons: list[Comparison]
    ) -> tuple[Comparison, ...]:
        """An output that is random in the file and in the model is not compared by its values."""
        doubtful = [i for i, c in enumerate(comparisons) if not c.ok and c.measured and c.name in self.random]
        if doubtful and self.subject.redrawn is not None:
            again = self.subject.redrawn(copies(inputs))
            for i in doubtful:
                if not np.array_equal(expected[i], again[i]):
                    comparisons[i] = replace(comparisons[i], ok=True, reason=None, drawn=True, max_abs=0.0, max_rel=0.0)
        return tuple(comparisons)


def _shapes(inputs: Mapping[str, np.ndarray]) -> dict[str, tuple[int, ...]]:
    return {name: array.shape for name, array in inputs.items()}
