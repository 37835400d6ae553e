"""What a proof tried, and what came of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tonnx.errors import VerificationFailed
from tonnx.ir.target import OLDEST_RUN
from tonnx.proof.compare import Comparison
from tonnx.proof.subject import Arrays

BEYOND = " (which the capture takes for impossible)"
"""How the label ends of a trial at sizes just outside of the limits that the capture assumes."""


@dataclass(frozen=True)
class Trial:
    """One set of inputs: compared, or only run (no comparisons), or left out because the model itself fails on it."""

    label: str
    sizes: Mapping[str, int]
    shapes: Mapping[str, tuple[int, ...]]
    comparisons: tuple[Comparison, ...] = ()
    skipped: str | None = None
    doubt: str | None = None
    """Why a difference at values that were invented is not held against the file."""
    saturated: str | None = None
    """Whose integer kernels cut sums off on these inputs: judged on the same within the observed range."""

    @property
    def ok(self) -> bool:
        return self.doubt is not None or all(comparison.ok for comparison in self.comparisons)


@dataclass(frozen=True)
class OutputSummary:
    """One output over all trials. ``reason`` and ``at`` are of its worst failure, None if there is none."""

    name: str
    dtype: str
    shapes: tuple[tuple[int, ...], ...]
    max_abs: float
    max_rel: float
    ok: bool
    reason: str | None = None
    at: str | None = None
    all_nan: bool = False
    drawn: bool = False  # random in the model itself: in some trials only shapes and dtypes were compared
    rounded: bool = False  # in some trials numbers were rounded to another step, see `rounding`
    reordered: bool = False  # in some trials rows of equal scores stand in another order, see `ranking`
    sensitive: bool = False  # in some trials rounding the inputs changes the model's own results by as much
    measured: bool = True  # False: in all of them
    faint: bool = False  # no value exceeds the absolute tolerance, so that zeros would have passed as well
    mean_abs: float = 0.0
    cosine: float = 1.0  # the smallest
    share: float = 0.0  # of elements out of tolerance, over all trials
    histogram: tuple[int, ...] = ()  # over all trials, see `compare.EDGES`
    relative: float | None = None  # the largest difference as a part of the largest value, where that is the measure

    def __str__(self) -> str:
        head = f"[{'✓' if self.ok else '✗'}] {self.name} {self.shapes[0]} {self.dtype}"
        if self.drawn and not self.measured:
            return f"{head}  random in the model itself: only shapes and types were compared"
        note = "  (nothing but NaN: this proves little)" if self.all_nan else ""
        if self.drawn:
            note = "  (without dropout; with it, only shapes and types were compared)"
        if self.rounded:
            note = "  (some numbers are rounded to the next step; rounding itself changes the results by more)"
        if self.reordered:
            note = "  (rows of equal scores are others or stand in another order: the rest was compared)"
        if self.sensitive:
            note = "  (rounding its inputs changes the model's own results by as much)"
        if self.faint:
            note = "  (all values are below the absolute tolerance: this proves little)"
        measure = f"max rel {self.max_rel:.2g}"
        if self.relative is not None:
            measure = f"relative to the largest value {self.relative:.2g}"
        return f"{head}  max abs {self.max_abs:.2g}  {measure}{note}"


@dataclass(frozen=True)
class Verification:
    """What was tried and what came of it. The first trial is the example."""

    trials: tuple[Trial, ...]
    brought_up_by: str = ""
    """Who brought a file of an opset below 7 up to 7, where it was run; empty for newer ones."""
    judged_as: str = ""
    """Why not the file itself was run, but its form for ONNX Runtime's CPU; empty where it was."""
    failing: Arrays | None = field(default=None, repr=False, compare=False)
    """The inputs of the first trial that fails: what `tonnx.proof.locate.search` starts from."""
    remarks: tuple[str, ...] = ()
    """Where the installed onnx or ONNX Runtime is too old for the file: what stood in for it."""

    @property
    def ok(self) -> bool:
        return all(trial.ok for trial in self.trials)

    @property
    def compared(self) -> bool:
        """False if there was no model to compare with: the file was checked, loaded and run, no more."""
        return any(trial.comparisons for trial in self.trials)

    @property
    def worst(self) -> Comparison | None:
        """The comparison that is furthest out of its tolerance, or nearest to it if all is well."""
        ranked = self._ranked()
        return ranked[0][1] if ranked else None

    @property
    def only_example(self) -> bool:
        """True if other sizes were tried and the model itself failed at every one of them."""
        others = [trial for trial in self.trials[1:] if dict(trial.sizes) != dict(self.trials[0].sizes)]
        return bool(others) and all(trial.skipped is not None for trial in others)

    def per_output(self) -> list[OutputSummary]:
        """One summary for each output, in the order of the outputs."""
        grouped: dict[str, list[tuple[Trial, Comparison]]] = {}
        for trial in self.trials:
            for comparison in trial.comparisons:
                grouped.setdefault(comparison.name, []).append((trial, comparison))
        return [_summary(name, group) for name, group in grouped.items()]

    def raise_if_failed(self) -> None:
        """Raise VerificationFailed with the worst output and its figures, unless everything agrees."""
        if self.ok:
            return
        trial, worst = self._ranked()[0]
        outputs = self.per_output()
        figures = f": max abs {worst.max_abs:.2g}, max rel {worst.max_rel:.2g}" if worst.measured else ""
        failed = sum(not output.ok for output in outputs)
        raise VerificationFailed(
            f"output {worst.name!r} of the file differs from the model's "
            f"({failed} of {len(outputs)} outputs fail){figures}",
            where=f"at {_place(trial)}, shape {worst.shape}, {worst.dtype}",
            why=worst.reason,
            hint=self._limit(),
            verification=self,
        )

    def _limit(self) -> str | None:
        """What to do where the file fails only below some size of one dimension, or only above."""
        example = self.trials[0].sizes
        compared = [trial for trial in self.trials if trial.skipped is None]
        failing = [trial for trial in compared if not trial.ok]
        names = {name for trial in failing for name, n in trial.sizes.items() if n != example[name]}
        if len(names) != 1 or not self.trials[0].ok:
            return None
        (name,) = names
        wrong, right = ({trial.sizes[name] for trial in compared if trial.ok is ok} for ok in (False, True))
        if max(wrong) < min(right):
            limit = f"min={max(wrong) + 1}"
        elif min(wrong) > max(right):
            limit = f"max={min(wrong) - 1}"
        else:
            return None
        sizes = " or ".join(map(str, sorted(wrong)))
        return f"if {name} is never {sizes}, say so: torch.export.Dim({name!r}, {limit}) in dynamic_shapes"

    def __str__(self) -> str:
        lines = []
        tried = _sizes_tried(self.trials)
        if self.brought_up_by:
            by = self.brought_up_by
            lines.append(f"[!] ONNX Runtime runs opset {OLDEST_RUN} and up: run there, brought up by {by}")
        if self.judged_as:
            lines.append(f"[!] judged in the form of runtime='ort-cpu': {self.judged_as}")
        lines += [f"[!] {remark}" for remark in self.remarks]
        if not self.compared:
            ran = sum(trial.skipped is None for trial in self.trials)
            at = f", sizes tried: {tried}" if tried else ""
            lines.append(f"[!] not compared with the model: checked, loaded and run on {ran} inputs{at}")
        for output in self.per_output():
            lines.append(f"{output}   sizes tried: {tried}" if tried else str(output))
            if output.reason:
                lines.append(f"    at {output.at}: {output.reason}")
        for trial in self.trials:
            if trial.skipped is not None and not self.compared:
                lines.append(f"[-] {trial.label} left out, the file does not run there: {trial.skipped}")
            elif trial.skipped is not None:
                lines.append(f"[-] {trial.label} left out, the model itself fails there: {trial.skipped}")
            elif trial.doubt is not None:
                lines.append(f"[-] {trial.label} not judged: {trial.doubt}")
        lines += self._saturated()
        if self.only_example and self.compared:
            lines.append("[!] the model itself fails at every other size tried: only the example is proven")
        return "\n".join(lines)

    def _saturated(self) -> list[str]:
        """Whose integer kernels are not to be trusted on this processor, and what was done about it."""
        lines = []
        if any(comparison.saturated for trial in self.trials for comparison in trial.comparisons):
            lines.append(
                "[!] this processor's integer kernels saturate in ONNX Runtime: the file was judged without them, and "
                "is off with them; with runtime='ort-cpu' a file has no integers that saturate"
            )
        for framework in dict.fromkeys(trial.saturated for trial in self.trials if trial.saturated):
            labels = ", ".join(trial.label for trial in self.trials if trial.saturated == framework)
            lines.append(
                f"[!] this processor's integer kernels saturate in {framework}: judged on values within the observed "
                f"range ({labels})"
            )
        return lines

    def _ranked(self) -> list[tuple[Trial, Comparison]]:
        """Every comparison with its trial, the worst first."""
        pairs = [(trial, comparison) for trial in self.trials for comparison in trial.comparisons]
        return sorted(pairs, key=lambda pair: _badness(pair[1]), reverse=True)


def _badness(comparison: Comparison) -> tuple[bool, float, float]:
    return (not comparison.ok, comparison.excess, comparison.max_abs)


def _place(trial: Trial) -> str:
    return "the example" if trial.label == "example" else trial.label


def _summary(name: str, group: list[tuple[Trial, Comparison]]) -> OutputSummary:
    trial, worst = max(group, key=lambda pair: _badness(pair[1]))
    comparisons = [comparison for _, comparison in group]
    total = sum(comparison.total for comparison in comparisons)
    return OutputSummary(
        name=name,
        dtype=comparisons[0].dtype,
        shapes=tuple(dict.fromkeys(comparison.shape for comparison in comparisons)),
        max_abs=max(comparison.max_abs for comparison in comparisons),
        max_rel=max(comparison.max_rel for comparison in comparisons),
        ok=worst.ok,
        reason=worst.reason,
        at=None if worst.ok else _place(trial),
        drawn=any(comparison.drawn for comparison in comparisons),
        rounded=any(comparison.rounded for comparison in comparisons),
        reordered=any(comparison.reordered for comparison in comparisons),
        sensitive=any(comparison.sensitive for comparison in comparisons),
        measured=not all(comparison.drawn for comparison in comparisons),
        all_nan=all(comparison.total and comparison.nans == comparison.total for comparison in comparisons),
        faint=all(
            comparison.total > comparison.nans and comparison.largest <= comparison.tolerance.atol
            for comparison in comparisons
            if comparison.tolerance.atol and comparison.measured
        )
        and any(comparison.tolerance.atol for comparison in comparisons),
        mean_abs=sum(comparison.mean_abs * comparison.total for comparison in comparisons) / (total or 1),
        cosine=min(comparison.cosine for comparison in comparisons),
        share=sum(comparison.mismatched for comparison in comparisons) / total if total else float(not worst.ok),
        relative=max(comparison.relative for comparison in comparisons)
        if all(c.tolerance.atol and not c.tolerance.rtol for c in comparisons)
        else None,
        histogram=tuple(map(sum, zip(*(c.histogram for c in comparisons if c.histogram), strict=True))),
    )


def _sizes_tried(trials: Sequence[Trial]) -> str:
    """``batch=1,2,3 h=8,9`` over the trials that were compared."""
    tried: dict[str, set[int]] = {}
    for trial in trials:
        if trial.skipped is None:
            for symbol, size in trial.sizes.items():
                tried.setdefault(symbol, set()).add(size)
    return " ".join(f"{symbol}={','.join(map(str, sorted(sizes)))}" for symbol, sizes in tried.items())
