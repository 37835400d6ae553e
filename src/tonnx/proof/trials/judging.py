"""Compare a file with its model on one set of inputs, and say of a difference whether it is the file's."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from tonnx.errors import TonnxError, VerificationFailed, cause_of
from tonnx.proof.compare import EXACT, Comparison, compare, incomparable
from tonnx.proof.judge import open_session
from tonnx.proof.session import Session, one_line
from tonnx.proof.subject import Arrays, Subject, copies
from tonnx.proof.trials.inputs import Sizes
from tonnx.proof.trials.plan import Inputs, Plan
from tonnx.proof.trials.ranking import Ranked, in_order
from tonnx.proof.trials.rounding import Quantised, is_rounding
from tonnx.proof.trials.saturation import runtime_saturates
from tonnx.proof.trials.ties import settle, unsupported
from tonnx.proof.trials.values import (
    FAR,
    WIDE_DRAW,
    ZEROS,
    doubt,
    is_sensitive,
    own_results,
    rounded_results,
    rounding_decides,
)
from tonnx.proof.trials.verification import Trial

PLAIN = "every node as it stands"
"""How the trial of the example is called in which ONNX Runtime optimises nothing."""


@dataclass(frozen=True)
class Judge:
    """Runs the file on inputs, compares it with the model, and asks what a difference is if there is one."""

    subject: Subject
    session: Session
    patience: float
    random: Collection[str]
    quantised: Quantised | None
    lowered: Mapping[str, str]
    ranked: Ranked
    drawn: set[str] = field(default_factory=set)
    """Outputs that have been seen to change with the random numbers of the model."""

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

    def other(self, case: Inputs) -> Trial:
        """Inputs that are not the example; where the model itself fails on them, that says nothing of the file."""
        label, sizes, inputs = case.label, case.sizes, case.arrays
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

    def invented(self, case: Inputs, usual: Sequence[np.ndarray] | None) -> Trial:
        """Values that were drawn or made up: the model is not made for all, and some lie on the edge of a branch.

        ``usual``: the model's results for the example.
        """
        trial, reference = self.other(case), self.subject.reference
        if trial.ok or reference is None:
            return trial
        trial, inputs = self._within_range(trial, case.arrays)
        if trial.ok:
            return trial
        if _shapes(inputs) != _shapes(self.subject.example):
            failure = unsupported(reference, self.subject.example, inputs)
            if failure is not None:
                return Trial(case.label, case.sizes, _shapes(inputs), skipped=failure)
        expected, rounded = reference(copies(inputs)), self.subject.rounded
        reason = doubt(reference, inputs, expected, usual, trial.comparisons, case.label == FAR, rounded)
        if reason is None and self._equal_scores_decide(trial, inputs, expected):
            reason = "scores that differ by their last bits alone decide there which rows are chosen"
        return trial if reason is None else replace(trial, doubt=reason, comparisons=())

    def together(
        self, trials: Sequence[Trial], plan: Plan, usual: Sequence[np.ndarray] | None
    ) -> tuple[list[Trial], list[str]]:
        """The trials with those of sizes that belong together in the example, and what is to be told of it."""
        if self.subject.reference is None:
            return list(trials), []

        def judge(assignments: list[Sizes]) -> list[Trial]:
            return [self.invented(case, usual) for case in plan.at(assignments, len(trials))]

        return settle(trials, plan.dims, self.subject.ranges(plan.dims), judge)

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
        return replace(self.other(Inputs(trial.label, dict(trial.sizes), within)), saturated=framework), within

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
                    self.drawn.add(comparisons[i].name)
                if comparisons[i].name in self.drawn:
                    comparisons[i] = replace(comparisons[i], ok=True, reason=None, drawn=True, max_abs=0.0, max_rel=0.0)
        return tuple(comparisons)


def _shapes(inputs: Mapping[str, np.ndarray]) -> dict[str, tuple[int, ...]]:
    return {name: array.shape for name, array in inputs.items()}
