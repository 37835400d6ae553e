"""The last stage of export and retarget: write, prove what was written, and only then give it its name."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tonnx.api.result import Result
from tonnx.errors import InvalidModel, TonnxError, VerificationFailed
from tonnx.ir.target import ORT_CPU
from tonnx.stages import Stages

if TYPE_CHECKING:
    import onnx_ir as ir

    from tonnx.proof.locate.located import Located
    from tonnx.proof.subject import Subject
    from tonnx.proof.trials.budget import Budget
    from tonnx.proof.trials.verification import Verification

FEW_VALUES = 2
"""Other draws and other signs: what every file is tried on."""


def deliver(
    result: Result,
    f: Any,
    stages: Stages,
    subject: Subject | None,
    *,
    external_data: bool | None,
    runtime: str | None,
    refer: bool = False,
    values: bool | int = FEW_VALUES,
    budget: Budget | None = None,
) -> None:
    """Write ``result.model`` to ``f``, proven: a failed proof leaves ``*.failed.onnx``, never the asked name.

    ``runtime`` is the profile of the file. ``refer``: it points at the weights that stay in their files. ``values``: on
    how many other values than the example's the file is tried; True: on all that there are.
    ``budget``: how long the proof may take.
    """
    proof = None if subject is None else _Proof(result, stages, subject, runtime, values, budget)
    if isinstance(f, (str, os.PathLike)):
        _to_path(result, Path(f), stages, proof, external_data, refer)
    elif proof is not None or f is not None:
        _to_object(result, f, stages, proof)


def _to_path(
    result: Result, path: Path, stages: Stages, proof: _Proof | None, external_data: bool | None, refer: bool
) -> None:
    from tonnx.io import write

    with write.Staged(path, refer=refer) as staged:
        with stages("write"):
            result.size = staged.write(result.model, external_data=external_data)
        try:
            if proof is not None:
                proof.prove(staged.path, path.with_name(f"{path.stem}.failed.part.onnx"))
        except (VerificationFailed, InvalidModel) as failure:
            failed = path.with_name(f"{path.stem}.failed{path.suffix or '.onnx'}")
            staged.commit_as(failed)
            failure.hint = "; ".join(filter(None, (failure.hint, f"the file was left as {failed} for inspection")))
            if failure.where == str(staged.path):
                failure.where = str(failed)
            raise
        if proof is not None and proof.subject.release is not None:
            proof.subject.release()
        staged.commit()
    result.path = path


def _to_object(result: Result, f: Any, stages: Stages, proof: _Proof | None) -> None:
    """A file-like object, or nothing: the proof needs a file all the same, since large weights lie beside it."""
    from tonnx.io import write

    if proof is not None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.onnx"
            with stages("write"):
                result.size = write.write(result.model, path)
            proof.prove(path, None)
    if f is not None:
        with stages("write"):
            result.size = write.write(result.model, f)


def add_page(result: Result, wanted: bool | str | os.PathLike[str], **more: Any) -> None:
    """Write the page about a file that was delivered: beside it if ``wanted`` is True, else there.

    ``more``: what `tonnx.report` takes besides.
    """
    from tonnx.reporting import report

    assert result.path is not None
    page = report(
        result.path,
        None if isinstance(wanted, bool) else os.fspath(wanted),
        timings=result.timings,
        verification=result.verification,
        **more,
    )
    result.notes.append(f"report: {page}")


@dataclass(frozen=True)
class _Proof:
    """The proof of a result that was written."""

    result: Result
    stages: Stages
    subject: Subject
    runtime: str | None
    """Where it is none, ONNX Runtime may need another form of the file to judge it."""
    values: bool | int
    budget: Budget | None

    def prove(self, path: Path, reproducer: Path | None) -> None:
        """Raises what is wrong with the file, and writes the part that shows it to ``reproducer``."""
        from tonnx.proof.judge import checked

        result = self.result
        if result.not_run or not self._runs(path):
            with self.stages("check"):
                result.notes += checked(path)
            return
        with self.stages("verify"):
            result.verification = self._judged(path)
        try:
            result.verification.raise_if_failed()
            if self.subject.integers is not None:
                with self.stages("integers"):
                    result.notes += self.subject.integers(path)
        except VerificationFailed as failure:
            likely = [note for note in result.notes if note.startswith("[!]")]  # what the capture had to assume
            failure.why = "\n         ".join(filter(None, (failure.why, *likely)))
            self._explain(failure, reproducer)
            raise

    def _runs(self, path: Path) -> bool:
        """False for a file with operators of other domains that ONNX Runtime does not load; the result says so."""
        from tonnx.ir.domains import unknown_operators
        from tonnx.proof.session import Session

        unknown = unknown_operators(self.result.model)
        if not unknown:
            return True
        try:
            Session(path)
        except InvalidModel:
            named = ", ".join(name if count == 1 else f"{name} ×{count}" for name, count in unknown.most_common())
            self.result.not_run = f"ONNX Runtime has no operator {named}: the file was checked, but not run or compared"
            return False
        return True

    def _judged(self, path: Path) -> Verification:
        """Of the file itself; if it favours no runtime and does not do as it is, of its form for ONNX Runtime's CPU."""
        from tonnx.io import write
        from tonnx.passes import fitted
        from tonnx.proof.session import check_model

        verification, unloadable = None, None
        try:
            verification = self._verification(self.result.model, path)
        except InvalidModel as error:
            unloadable = error
        if self.runtime is None and (verification is None or not verification.ok):
            check_model(path)
            if (twin := fitted(self.result.model, ORT_CPU)) is not None:
                with tempfile.TemporaryDirectory() as folder:
                    write.write(twin, other := Path(folder) / "model.onnx")
                    judged = self._verification(twin, other)
                if verification is None or judged.ok:
                    reason = "the file itself differs there" if unloadable is None else unloadable.why
                    return replace(judged, judged_as=reason or "ONNX Runtime does not load the file itself")
        if unloadable is not None:
            raise unloadable
        assert verification is not None
        return verification

    def _verification(self, model: ir.Model, path: Path) -> Verification:
        from tonnx.io import write
        from tonnx.ir.restrictions import restriction_of
        from tonnx.proof.trials.chance import random_outputs, without_dropout
        from tonnx.proof.trials.precision import lowered_outputs
        from tonnx.proof.trials.prove import prove
        from tonnx.proof.trials.thresholds import thresholds
        from tonnx.proof.trials.verification import Verification

        subject, random, lowered = self.subject, random_outputs(model), lowered_outputs(model)
        if (restriction := restriction_of(model)) is not None:
            subject = replace(subject, restriction=restriction)
        dropless = without_dropout(model) if subject.no_dropout is not None else None
        if dropless is None:
            return prove(
                path, subject, random=random, lowered=lowered, values=self.values,
                thresholds=thresholds(model), budget=self.budget,
            )  # fmt: skip
        with tempfile.TemporaryDirectory() as folder:
            # What dropout hides is compared without it, in the file and the model; the file is then run as it is.
            write.write(dropless, other := Path(folder) / "model.onnx")
            quiet = replace(subject, reference=subject.no_dropout, redrawn=None, rounded=(), wide=None)
            without = prove(other, quiet, check=False, lowered=lowered, values=self.values)
        with_it = prove(path, subject, random=random, lowered=lowered, sizes=False, optimised=False)
        return Verification(without.trials + tuple(replace(t, label="with dropout") for t in with_it.trials))

    def _explain(self, failure: VerificationFailed, reproducer: Path | None) -> None:
        """Say which node is the first to differ, and write the part of the model that shows it."""
        if self.subject.trace is None or self.subject.reference is None or failure.verification is None:
            return
        with self.stages("locate"):
            located = self._located(failure.verification, reproducer)
        if isinstance(located, str):
            failure.why = "\n         ".join(filter(None, (failure.why, f"the node was not located: {located}")))
            return
        failure.located = located
        kind = "the first node that differs" if located.confirmed else "where most of the difference arises"
        said = f"{kind}: {located.headline()}" if located.nodes else located.note
        failure.why = "\n         ".join(filter(None, (failure.why, said)))
        if located.reproducer:
            failure.hint = f"{located.reproducer[0]} and {located.reproducer[1].name} reproduce it"

    def _located(self, verification: Verification, reproducer: Path | None) -> Located | str:
        """Or why it could not be found: nothing that goes wrong here may hide the failure itself."""
        from tonnx.proof.locate.search import case_of, locate

        try:
            case = case_of(self.subject, self.result.model, verification.failing or self.subject.example)
            return locate(case, reproducer=reproducer)
        except TonnxError as error:
            return f"{error.what}{f' ({error.why})' if error.why else ''}"
