"""Results and errors as JSON data. Keys are a promise to scripts: they are added, never renamed."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from tonnx.errors import RetargetError, TonnxError, UnsupportedOp, VerificationFailed
from tonnx.ir.history import operator_counts
from tonnx.proof.compare import EDGES
from tonnx.proof.data import comparison_data, finite

if TYPE_CHECKING:
    import onnx_ir as ir

    from tonnx.api.result import ExportResult
    from tonnx.proof import Verification
    from tonnx.proof.locate.located import Difference


def export_data(result: ExportResult) -> dict[str, Any]:
    """A finished export."""
    graph = result.model.graph
    return {
        "path": str(result.path) if result.path else None,
        "opset": result.opset,
        "ir_version": result.model.ir_version,
        "nodes": result.nodes,
        "operators": operator_counts(result.model),
        "size": result.size,
        "timings": {stage: round(seconds, 6) for stage, seconds in result.timings.items()},
        "inputs": [value_data(value) for value in graph.inputs if not value.is_initializer()],
        "outputs": [value_data(value) for value in graph.outputs],
        "notes": list(result.notes),
        "not_run": result.not_run or None,
        "verification": None if result.verification is None else verification_data(result.verification),
    }


def value_data(value: ir.Value) -> dict[str, Any]:
    """An input or output: a dimension is a number, a name, or null."""
    dims = None if value.shape is None else [d if isinstance(d, int) else d.value for d in value.shape]
    return {"name": value.name, "dtype": value.dtype.name.lower() if value.dtype else None, "shape": dims}


def verification_data(verification: Verification) -> dict[str, Any]:
    """The proof: one entry an output over everything tried, and one entry a set of sizes."""
    return {
        "ok": verification.ok,
        "compared": verification.compared,
        "outputs": [
            {
                "name": output.name,
                "ok": output.ok,
                "dtype": output.dtype,
                "shapes": [list(shape) for shape in output.shapes],
                "max_abs": finite(output.max_abs),
                "max_rel": finite(output.max_rel),
                "reason": output.reason,
                "at": output.at,
                "mean_abs": finite(output.mean_abs),
                "cosine": finite(output.cosine),
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
        "max_abs": finite(comparison.max_abs),
        "max_rel": finite(comparison.max_rel),
        "mean_abs": finite(comparison.mean_abs),
        "largest": finite(comparison.largest),
    }


def error_data(error: TonnxError) -> dict[str, Any]:
    """An error in its parts, with whatever list it carries."""
    data: dict[str, Any] = {
        "type": type(error).__name__,
        "what": error.what,
        "where": error.where,
        "why": error.why,
        "hint": error.hint,
    }
    if isinstance(error, UnsupportedOp):
        data["operators"] = [dataclasses.asdict(occurrence) for occurrence in error.occurrences]
    if isinstance(error, RetargetError):
        data["blockers"] = [dataclasses.asdict(blocker) for blocker in error.blockers]
    if isinstance(error, VerificationFailed) and error.verification is not None:
        data["verification"] = verification_data(error.verification)
    if isinstance(error, VerificationFailed) and error.located is not None:
        data["located"] = error.located.data()
    return data
