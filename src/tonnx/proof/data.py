"""The proof as JSON data. Keys are a promise to scripts: they are added, never renamed."""

from __future__ import annotations

import math
from typing import Any

from tonnx.proof.compare import EDGES, Comparison


def finite(number: float) -> float | None:
    """JSON has no infinity: null stands for "entirely different"."""
    return number if math.isfinite(number) else None


def comparison_data(comparison: Comparison) -> dict[str, Any]:
    """One value, the model's beside the file's."""
    return {
        "name": comparison.name,
        "ok": comparison.ok,
        "shape": list(comparison.shape),
        "dtype": comparison.dtype,
        "max_abs": finite(comparison.max_abs),
        "max_rel": finite(comparison.max_rel),
        "mean_abs": finite(comparison.mean_abs),
        "cosine": finite(comparison.cosine),
        "largest": finite(comparison.largest),
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
