"""The last stage of export and retarget: write, prove what was written, and only then give it its name."""

from __future__ import annotations

import io
import os
import tempfile
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from tonnx.api.stages import Stages
from tonnx.errors import InvalidArgument, InvalidModel, TonnxError, VerificationFailed
from tonnx.ir.provenance import VALUE
from tonnx.ir.target import ORT_CPU

if TYPE_CHECKING:
    import numpy as np
    import onnx_ir as ir

    from tonnx.proof import Verification
    from tonnx.proof.locate.located import Located
    from tonnx.proof.locate.trace import Trace


FEW_VALUES = 2
"""Other draws and other signs: what every file is tried on."""


class Result(Protocol):
    """What is delivered: `ExportResult` and `RetargetResult` are such."""

    model: ir.Model
    path: Path | None
    size: int
    verification: Verification | None
    notes: list[str]
    not_run: str


@dataclass
class Proof:
    """What a file is compared with."""

    reference: Callable[[dict[str, np.ndarray]], list[np.ndarray]] | None
    """None: there is nothing to compare with; the file is only checked, loaded and run."""
    example: dict[str, np.ndarray]
    dynamic: Mapping[str, Mapping[int, str]] = field(default_factory=dict)
    limits: Mapping[str, tuple[int, int | None]] = field(default_factory=dict)
    rtol: float | None = None
    atol: float | None = None
    weights: Collection[str] = ()
    """Inputs that are weights of the model: the reference has its own, and no others are tried."""
    redrawn: Callable[[dict[str, np.ndarray]], list[np.ndarray]] | None = None
    """The model with other random numbers: what it changes cannot be compared."""
    calm: Callable[[dict[str, np.ndarray]], list[np.ndarray]] | None = None
    """The model in training with its dropouts switched off."""
    runs: bool = True
    """False: no runtime here has all of its operators, and the file is only checked."""
    trace: Callable[[], Trace] | None = None
    """The values inside the original, to say where the file departs from it."""
    stamp: str = VALUE
    """The key under which the file's values name the original's."""
    saturates: Callable[[], str | None] | None = None
    """Names the framework whose integer kernels the reference uses, if they saturate on this processor."""
    steps: bool | None = None
    """Whether quantised numbers may be rounded to the next step; None: where no tolerance is given."""
    runtime: str | None = ORT_CPU
    """The profile of the file; where it is none, ONNX Runtime may need another form to judge it."""
    values: bool | int = FEW_VALUES
    """On how many other values than the example's the file is tried; True: on all that there are."""

    def release(self) -> None:
        """Let go of the original, which may have a file open that is about to be replaced."""
        self.reference = self.redrawn = self.calm = self.trace = None


def check_options(f: Any, external_data: bool | None, rtol: float | None, atol: float | None) -> None:
    """What can be known to be wrong before the long work begins."""
    for name, tolerance in (("rtol", rtol), ("atol", atol)):
        if tolerance is not None and (not isinstance(tolerance, (int, float)) or not tolerance >= 0):
            raise InvalidArgument(f"{name} must be a number that is at least 0, not {tolerance!r}")
    if f is None:
        return
    if isinstance(f, (str, os.PathLike)):
        path = Path(f)
        if not os.fspath(f) or path.is_dir():
            why = "it is a folder" if os.fspath(f) else None
            raise InvalidArgument(f"f must be the path of a file, not {os.fspath(f)!r}", why=why)
        if not path.parent.is_dir():
            raise InvalidArgument(
                f"cannot write {path}",
                why=f"the folder {path.parent} does not exist",
                hint="make the folder first",
            )
    elif not hasattr(f, "write"):
        raise InvalidArgument(f"f must be a path, a binary file-like object or None, not {f!r}")
    elif isinstance(f, io.TextIOBase):
        raise InvalidArgument("the file object is open for text", hint="open it with mode 'wb'")
    elif external_data:
        raise InvalidArgument("a file object cannot have external data", hint="give a path")


def deliver(result: Result, f: Any, stages: Stages, proof: Proof | None, external_data: bool | None) -> None:
    """Write ``result.model`` to ``f``, proven: a failed proof leaves ``*.failed.onnx``, never the asked name."""
    if isinstance(f, (str, os.PathLike)):
        _to_path(result, Path(f), stages, proof, external_data)
    elif proof is not None or f is not None:
        _to_object(result, f, stages, proof)


def _to_path(result: Result, path: Path, stages: Stages, proof: Proof | None, external_data: bool | None) -> None:
    from tonnx.io import write

    with write.Staged(path) as staged:
        with stages("write"):
            result.size = staged.write(result.model, external_data=external_data)
        try:
            _prove(result, staged.path, stages, proof)
        except (VerificationFailed, InvalidModel) as failure:
            if isinstance(failure, VerificationFailed) and proof is not None:
                _explain(failure, result, proof, stages, path.with_name(f"{path.stem}.failed.part.onnx"))
            failed = path.with_name(f"{path.stem}.failed{path.suffix or '.onnx'}")
            staged.commit_as(failed)
            failure.hint = "; ".join(filter(None, (failure.hint, f"the file was left as {failed} for inspection")))
            if failure.where == str(staged.path):
                failure.where = str(failed)
            raise
        if proof is not None:
            proof.release()
        staged.commit()
    result.path = path


def _to_object(result: Result, f: Any, stages: Stages, proof: Proof | None) -> None:
    """A file-like object, or nothing: the proof needs a file all the same, since large weights lie beside it."""
    from tonnx.io import write

    if proof is not None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.onnx"
            with stages("write"):
                result.size = write.write(result.model, path)
            try:
                _prove(result, path, stages, proof)
            except VerificationFailed as failure:
                _explain(failure, result, proof, stages, None)
                raise
    if f is not None:
        with stages("write"):
            result.size = write.write(result.model, f)


def _prove(result: Result, path: Path, stages: Stages, proof: Proof | None) -> None:
    if proof is None:
        return
    from tonnx.proof import check_model

    if not proof.runs or not _runs(result, path, stages):
        with stages("check"):
            check_model(path)
        return
    with stages("verify"):
        result.verification = _judged(result.model, path, proof)
    try:
        result.verification.raise_if_failed()
    except VerificationFailed as failure:
        likely = [note for note in result.notes if note.startswith("[!]")]  # what the capture had to assume
        failure.why = "\n         ".join(filter(None, (failure.why, *likely)))
        raise


def _explain(
    failure: VerificationFailed, result: Result, proof: Proof, stages: Stages, reproducer: Path | None
) -> None:
    """Say which node is the first to differ, and write the part of the model that shows it."""
    if proof.trace is None or proof.reference is None or failure.verification is None:
        return
    with stages("locate"):
        located = _located(failure.verification, result, proof, reproducer)
    if isinstance(located, str):
        failure.why = "\n         ".join(filter(None, (failure.why, f"the node was not located: {located}")))
        return
    failure.located = located
    kind = "the first node that differs" if located.confirmed else "where most of the difference arises"
    said = f"{kind}: {located.headline()}" if located.nodes else located.note
    failure.why = "\n         ".join(filter(None, (failure.why, said)))
    if located.reproducer:
        failure.hint = f"{located.reproducer[0]} and {located.reproducer[1].name} reproduce it"


def _located(verification: Verification, result: Result, proof: Proof, reproducer: Path | None) -> Located | str:
    """Or why it could not be found: nothing that goes wrong here may hide the failure itself."""
    from tonnx.proof.locate.search import Case, locate
    from tonnx.proof.locate.sweep import Tolerances

    assert proof.trace is not None and proof.reference is not None
    feeds = verification.failing or proof.example
    names = [value.name or "" for value in result.model.graph.outputs]
    try:
        outputs = proof.reference({name: array.copy() for name, array in feeds.items()})
        if len(outputs) != len(names):
            return f"the model gives {len(outputs)} outputs"
        tolerances = Tolerances(proof.rtol, proof.atol)
        expected = dict(zip(names, outputs, strict=True))
        case = Case(result.model, proof.trace(), dict(feeds), expected, tolerances, proof.stamp)
        return locate(case, reproducer=reproducer)
    except TonnxError as error:
        return f"{error.what}{f' ({error.why})' if error.why else ''}"


def _runs(result: Result, path: Path, stages: Stages) -> bool:
    """False for a file with operators of other domains that ONNX Runtime does not load; the result says so."""
    from tonnx.ir.domains import unknown_operators
    from tonnx.proof import Session

    unknown = unknown_operators(result.model)
    if not unknown:
        return True
    try:
        Session(path)
    except InvalidModel:
        named = ", ".join(name if count == 1 else f"{name} ×{count}" for name, count in unknown.most_common())
        result.not_run = f"ONNX Runtime has no operator {named}: the file was checked, but not run or compared"
        return False
    return True


def _judged(model: ir.Model, path: Path, proof: Proof) -> Verification:
    """Prove the file; one that favours no runtime in the form for ONNX Runtime's CPU, if it does not do as it is."""
    from tonnx.io import write
    from tonnx.passes import fitted
    from tonnx.proof import check_model

    unloadable: InvalidModel | None = None
    verification = None
    try:
        verification = _proven(model, path, proof)
    except InvalidModel as error:
        unloadable = error
    twin = None
    if proof.runtime is None and (verification is None or not verification.ok):
        check_model(path)
        twin = fitted(model, ORT_CPU)
    if twin is not None:
        with tempfile.TemporaryDirectory() as folder:
            write.write(twin, other := Path(folder) / "model.onnx")
            judged = _proven(twin, other, proof)
        if verification is None or judged.ok:
            reason = "the file itself differs there" if unloadable is None else unloadable.why or unloadable.what
            return replace(judged, judged_as=reason)
    if verification is None:
        assert unloadable is not None
        raise unloadable
    return verification


def _proven(model: ir.Model, path: Path, proof: Proof) -> Verification:
    from tonnx.proof import Verification, prove
    from tonnx.proof.trials.chance import random_outputs, without_dropout
    from tonnx.proof.trials.precision import lowered_outputs

    options: dict[str, Any] = {
        "output_names": [value.name or "" for value in model.graph.outputs],
        "dynamic": proof.dynamic,
        "ranges": proof.limits,
        "rtol": proof.rtol,
        "atol": proof.atol,
        "fixed": proof.weights,
        "saturates": proof.saturates,
        "steps": proof.steps,
        "lowered": lowered_outputs(model),
    }
    drawn: dict[str, Any] = {"random": random_outputs(model), "redrawn": proof.redrawn}
    calm = without_dropout(model) if proof.calm is not None else None
    if calm is None:
        return prove(path, proof.reference, proof.example, **options, **drawn, values=proof.values)
    from tonnx.io import write

    with tempfile.TemporaryDirectory() as folder:
        # What dropout hides is compared without it, in the file and in the model; the file itself is then run as it is.
        write.write(calm, other := Path(folder) / "model.onnx")
        still = prove(other, proof.calm, proof.example, check=False, values=proof.values, **options)
    lively = prove(path, proof.reference, proof.example, max_trials=0, optimised=False, **options, **drawn)
    return Verification(still.trials + tuple(replace(t, label="with dropout") for t in lively.trials))
