"""The proof as JSON data. Keys are a promise to scripts: they are added, never renamed."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from tonnx.proof.compare import EDGES, Comparison

if TYPE_CHECKING:
    from tonnx.proof.locate.located import Difference
    from tonnx.proof.trials.verification import Verification


def finite(number: float) -> float | None:
    """JSON has no infinity: null stands for "entirely different"."""
    return number if math.isfinite(number) else None


def _figures(measured: object, *names: str) -> dict[str, float | None]:
    return {name: finite(getattr(measured, name)) for name in names}


def comparison_data(comparison: Comparison) -> dict[str, Any]:
    """One value, the model's beside the file's."""
    return {
        "name": comparison.name,
        "ok": comparison.ok,
        "shape": list(comparison.shape),
        "dtype": comparison.dtype,
        **_figures(comparison, "max_abs", "max_rel", "mean_abs", "cosine", "largest"),
        "out_of_tolerance": comparison.mismatched,
        "total": comparison.total,
        "share": finite(comparison.share),
        "histogram": {"edges": list(EDGES), "counts": list(comparison.histogram)},
        "rtol": comparison.tolerance.rtol,
        "atol": comparison.tolerance.atol,
        "allclose": comparison.allclose,
        "close": comparison.close,
        "reason": comparison.reason,
    }


def verification_data(verification: Verification) -> dict[str, Any]:
    """The proof: one entry an output over everything tried, and one entry a set of sizes."""
    return {
        "ok": verification.ok,
        "compared": verification.compared,
        "judged_as": verification.judged_as or None,
        "outputs": [
            {
                "name": output.name,
                "ok": output.ok,
                "dtype": output.dtype,
                "shapes": [list(shape) for shape in output.shapes],
                **_figures(output, "max_abs", "max_rel"),
                "reason": output.reason,
                "at": output.at,
                **_figures(output, "mean_abs", "cosine"),
                "share": output.share,
                "histogram": {"edges": list(EDGES), "counts": list(output.histogram)},
            }
            for output in verification.per_output()
        ],
        "trials": [
            {
                "label": trial.label,
                "sizes": dict(trial.sizes),
                "ok": trial.ok,
                "skipped": trial.skipped,
                "saturated": trial.saturated,
                "outputs": [comparison_data(comparison) for comparison in trial.comparisons],
            }
            for trial in verification.trials
        ],
    }


def difference_data(difference: Difference) -> dict[str, Any]:
    """A value inside the file beside the model's."""
    node, comparison = difference.node, difference.comparison
    return {
        "value": difference.value,
        "framework_value": difference.framework_value or None,
        "node": None if node is None else node.name or None,
        "op_type": None if node is None else node.op_type,
        "index": None if node is None else node.index,
        "ok": comparison.ok,
        **_figures(comparison, "max_abs", "max_rel", "mean_abs", "largest"),
    }
