"""Any ONNX file with fewer nodes: ``tonnx.optimise``. Needs neither torch nor paddle."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any, BinaryIO

import numpy as np
import onnx
import onnx_ir as ir
from onnx_ir.passes.common import (
    RemoveUnusedFunctionsPass,
    RemoveUnusedNodesPass,
    RemoveUnusedOpsetsPass,
)

from tonnx.api.deliver import deliver
from tonnx.api.request import check_options
from tonnx.api.result import format_size
from tonnx.api.retarget import RetargetResult, file_subject
from tonnx.errors import RetargetError, TonnxError
from tonnx.io import read as reading
from tonnx.io import write
from tonnx.ir import provenance
from tonnx.ir.target import CANON, Target
from tonnx.legalise import legalise
from tonnx.passes import clean_up, list_initializers, optimise_at_own_opset
from tonnx.passes import optimise as optimise_at_canon
from tonnx.passes.static_shapes import fix_sizes, settle_shapes
from tonnx.proof.session import Session
from tonnx.proof.signature import Signature, check_fit, signature_lines
from tonnx.proof.subject import Subject
from tonnx.stages import Progress, Stages
from tonnx.versions import untested

_SLOWER = 1.1
"""A ratio of medians above which a file counts as slower; below, the clock cannot tell."""
_TIMED = 0.4
"""Seconds that timing both files may take."""


@dataclass(kw_only=True)
class OptimiseResult(RetargetResult):
    """A file with fewer nodes: what went, how its time compares, and the proof."""

    ratio: float | None = None
    """Seconds of the result by seconds of the original; None where they were not run."""
    kept: str = ""
    """Why the original was kept as it is; empty where it was not."""

    def __str__(self) -> str:
        before, after = self.before.total(), self.after.total()
        time_ratio = "" if self.ratio is None else f", {self.ratio:.2f} of its time"
        size = f", {format_size(self.size)}" if self.size else ""
        lines = [f"{self.path or 'model'}: {before} → {after} nodes{time_ratio}{size}"]
        lines += [f"  the original as it was: {self.kept}"] if self.kept else []
        return "\n".join([*lines, *self._change_lines(), *signature_lines(self.model), *self._proof_lines()])

    def data(self) -> dict[str, Any]:
        """The same as JSON data."""
        return {**super().data(), "ratio": self.ratio, "kept": self.kept or None}


def optimise(
    model: str | os.PathLike[str] | bytes | onnx.ModelProto | ir.Model,
    f: str | os.PathLike[str] | BinaryIO | None = None,
    *,
    sizes: Mapping[str, int] | None = None,
    inputs: Mapping[str, np.ndarray] | None = None,
    verify: bool = True,
    rtol: float | None = None,
    atol: float | None = None,
    external_data: bool | None = None,
    progress: Progress | None = None,
) -> OptimiseResult:
    """Take out of any ONNX model what it does not need, at its own opset, and prove that it still computes the same.

    The result never has more nodes than the original, and is never slower as far as a short measurement can tell:
    then the original is what is written.

    Example::

        print(tonnx.optimise("model.onnx", "smaller.onnx"))

    Args:
        model: a path, the file's bytes, an ``onnx.ModelProto`` or an onnx-ir model. It is not changed.
        f: where to write; None writes nothing.
        sizes: dynamic dimensions that get a fixed size: ``{"batch": 1}``; what follows from them is computed.
        inputs: arrays by input name for the proof; random ones that fit the input types otherwise.
        verify: run both models in ONNX Runtime, compare them and their time.
        rtol, atol: tolerances, by default those of each output's dtype.
        external_data: True writes the weights to ``<f>.data``; None keeps one file below 2 GiB.
        progress: called with the name of each stage as it begins.
    """
    check_options(f, external_data, rtol, atol)
    arrays, stages = dict(inputs or {}), Stages(progress)
    with reading.blaming(model):
        with stages("read"):
            read = _reader(model, sizes or {})
            original = read()
        opset = original.opset_imports[""]
        result = OptimiseResult(original, opset, source=opset, before=_count(original), notes=untested())
        check_fit(Signature.of(original), arrays)
        with stages("optimise"):
            result.model = min(_candidates(read, opset, result.notes), key=lambda candidate: _count(candidate).total())
        if _count(result.model).total() >= result.before.total():
            _keep(result, read, "there is nothing to take out")
        subject = file_subject(model, read, result, arrays).within(rtol, atol) if verify else None
        if subject is not None and subject.reference is not None and not result.kept:
            with stages("time"):
                _time(result, read, subject)
        result.after = _count(result.model)
        if (result.model.ir_version or 0) < reading.OVERRIDABLE_SINCE:
            list_initializers(result.model)  # reading took them out of the inputs, where such files have them
        provenance.stamp(result.model)
        deliver(result, f, stages, subject, external_data=external_data, runtime=None)
    result.timings = stages.seconds
    return result


def _reader(model: Any, sizes: Mapping[str, int]) -> Callable[[], ir.Model]:
    read = reading.reader(model)

    def sized() -> ir.Model:
        fresh = read()
        if sizes:
            fix_sizes(fresh, sizes)
        return fresh

    return sized


def _candidates(read: Callable[[], ir.Model], opset: int, notes: list[str]) -> list[ir.Model]:
    """The model with all passes, which know the operators of the newest opset; and with those that need not know it."""
    candidates = [_prepared(read)]
    optimise_at_own_opset(candidates[0])
    if opset <= CANON:
        model = _prepared(read)
        ir_version = model.ir_version
        try:
            legalise(model, Target(CANON))
            told = optimise_at_canon(model).notes
            legalise(model, Target(opset))
        except RetargetError as error:
            notes.append(f"some passes were left out: {error.blockers[0]}")
        else:
            clean_up(model, fold=True)
            model.ir_version = max(ir_version or 0, model.ir_version or 0)
            notes += told
            candidates.append(model)
    for candidate in candidates:
        for tidy in (RemoveUnusedNodesPass, RemoveUnusedFunctionsPass, RemoveUnusedOpsetsPass):
            tidy()(candidate)
    return candidates


def _prepared(read: Callable[[], ir.Model]) -> ir.Model:
    """With constants as initializers, and shapes that are known written down."""
    model = read()
    settle_shapes(model)
    return model


def _count(model: ir.Model) -> Counter[str]:
    """Nodes by operator; what a Constant holds is no computation."""
    return Counter(node.op_type for node in model.graph.all_nodes() if (node.domain, node.op_type) != ("", "Constant"))


def _time(result: OptimiseResult, read: Callable[[], ir.Model], subject: Subject) -> None:
    """The result beside the original, turn by turn; the original is kept if it is the faster one."""
    try:
        sessions = [Session(write.to_bytes(model), threads=1) for model in (read(), result.model)]
        result.ratio = _ratio(sessions, dict(subject.example))
        if result.ratio > _SLOWER:
            result.ratio = _ratio(sessions, dict(subject.example))
    except TonnxError as error:  # what is wrong with the result is told by the proof
        result.notes.append(f"not timed: {error.why or error.what}")
        return
    if result.ratio > _SLOWER:
        _keep(result, read, f"with fewer nodes it takes {result.ratio:.2f} times as long in ONNX Runtime")
        result.ratio = None


def _keep(result: OptimiseResult, read: Callable[[], ir.Model], why: str) -> None:
    """The original is the result, without what it declares wrongly."""
    result.model, result.kept = read(), why
    result.notes += reading.correct_shapes(result.model)


def _ratio(sessions: list[Session], feeds: dict[str, np.ndarray]) -> float:
    seconds: list[list[float]] = [[], []]
    start = time.perf_counter()
    while len(seconds[1]) < 3 or (time.perf_counter() - start < _TIMED and len(seconds[1]) < 200):
        for session, taken in zip(sessions, seconds, strict=True):
            began = time.process_time()
            session.run(dict(feeds))
            taken.append(time.process_time() - began)
    one, other = (median(taken[1:]) for taken in seconds)
    return other / one if one else 1.0
