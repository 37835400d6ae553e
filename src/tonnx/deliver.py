"""The last stage of export and retarget: write, prove what was written, and only then give it its name."""

from __future__ import annotations

import io
import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from tonnx.errors import InvalidArgument, InvalidModel, VerificationFailed
from tonnx.stages import Stages

if TYPE_CHECKING:
    import numpy as np
    import onnx_ir as ir

    from tonnx.proof import Verification


class Result(Protocol):
    """What is delivered: `ExportResult` and `RetargetResult` are such."""

    model: ir.Model
    path: Path | None
    size: int
    verification: Verification | None
    notes: list[str]


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
    runs: bool = True
    """False: no runtime here has all of its operators, and the file is only checked."""


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
                hint=f"make it first: mkdir -p {path.parent}",
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
    from tonnx import serialize

    with serialize.Staged(path) as staged:
        with stages("write"):
            result.size = staged.write(result.model, external_data=external_data)
        try:
            _prove(result, staged.path, stages, proof)
        except (VerificationFailed, InvalidModel) as failure:
            failed = path.with_name(f"{path.stem}.failed{path.suffix or '.onnx'}")
            staged.commit_as(failed)
            failure.hint = "; ".join(filter(None, (failure.hint, f"the file was left as {failed} for inspection")))
            if failure.where == str(staged.path):
                failure.where = str(failed)
            raise
        staged.commit()
    result.path = path


def _to_object(result: Result, f: Any, stages: Stages, proof: Proof | None) -> None:
    """A file-like object, or nothing: the proof needs a file all the same, since large weights lie beside it."""
    from tonnx import serialize

    if proof is not None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.onnx"
            with stages("write"):
                result.size = serialize.write(result.model, path)
            _prove(result, path, stages, proof)
    if f is not None:
        with stages("write"):
            result.size = serialize.write(result.model, f)


def _prove(result: Result, path: Path, stages: Stages, proof: Proof | None) -> None:
    if proof is None:
        return
    from tonnx.proof import check_model, prove

    if not proof.runs:
        with stages("check"):
            check_model(path)
        return
    with stages("verify"):
        result.verification = prove(
            path,
            proof.reference,
            proof.example,
            output_names=[value.name or "" for value in result.model.graph.outputs],
            dynamic=proof.dynamic,
            ranges=proof.limits,
            rtol=proof.rtol,
            atol=proof.atol,
        )
    try:
        result.verification.raise_if_failed()
    except VerificationFailed as failure:
        likely = [note for note in result.notes if note.startswith("[!]")]  # what the capture had to assume
        failure.why = "\n         ".join(filter(None, (failure.why, *likely)))
        raise
