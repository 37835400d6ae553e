"""Does an ONNX file compute what a model computes, and if not, where does it depart? ``tonnx.verify``."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from tonnx.api.intake import is_of
from tonnx.api.quantisation import Quantisation, quantisation_of
from tonnx.errors import CaptureError, InvalidArgument, InvalidModel, TonnxError, VerificationFailed
from tonnx.io import read as reading
from tonnx.ir.restrictions import OneTextAfterPast, restriction_of
from tonnx.proof.compare import Comparison
from tonnx.proof.data import difference_data, verification_data
from tonnx.proof.examples import first_that_runs, random_examples
from tonnx.proof.foreign_weights import foreign_weights
from tonnx.proof.locate.located import Difference, Located
from tonnx.proof.locate.search import case_of, locate_or_compare
from tonnx.proof.session import check_model
from tonnx.proof.signature import Signature, check_fit
from tonnx.proof.subject import Subject
from tonnx.proof.trials.precision import lowered_outputs
from tonnx.proof.trials.prove import prove
from tonnx.proof.trials.verification import OutputSummary, Verification
from tonnx.stages import Progress, Stages
from tonnx.versions import untested

EXPORTED_WELL = "Exported model has been tested with ONNXRuntime, and the result looks good!"
_LOOKS = "The difference of results between ONNXRuntime and {} looks {}!"
_BINS = ("0", "<1e-9", "<1e-8", "<1e-7", "<1e-6", "<1e-5", "<1e-4", "<1e-3", "<0.01", "<0.1", "<1", "<10", "≥10")


@dataclass
class VerifyResult:
    """What a verification found. ``print`` it to read it; ``ok`` says whether the file computes what the model does."""

    path: Path
    framework: str
    verification: Verification
    strict: bool = False
    located: Located | None = None
    """Where the file departs from the model; None if it does not, or was not looked for."""
    foreign: str = ""
    """Says so if the file holds the weights of another model: then no node of it is to blame."""
    differences: list[Difference] = field(default_factory=list)
    """The difference at every value that both have, if that was asked for or something differs."""
    quantisation: Quantisation | None = None
    """Of a quantised file beside its float original: what of the difference is quantisation, and what is not."""
    notes: list[str] = field(default_factory=list)
    timings: dict[str, float] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Every output is within its tolerance on all that was tried; with ``strict``, both usual verdicts are good."""
        return self.verification.ok and (not self.strict or (self.allclose and self.close))

    @property
    def example(self) -> tuple[Comparison, ...]:
        """The outputs on the example."""
        return self.verification.trials[0].comparisons

    @property
    def allclose(self) -> bool:
        """``np.testing.assert_allclose(rtol=1e-3, atol=1e-5)`` on the example, and nothing failed elsewhere."""
        return self.verification.ok and all(comparison.allclose for comparison in self.example)

    @property
    def close(self) -> bool:
        """On the example the largest difference is below 1e-5, or below that part of the largest value; ditto."""
        return self.verification.ok and all(comparison.close for comparison in self.example)

    def raise_if_failed(self) -> None:
        """Raise VerificationFailed, with the place where the file departs, unless ``ok``."""
        if self.ok:
            return
        try:
            self.verification.raise_if_failed()
            raise VerificationFailed(
                "the file is within its tolerances, but not within the strict ones",
                why="; ".join(self.verdicts()),
                verification=self.verification,
            )
        except VerificationFailed as failure:
            failure.located = self.located
            failure.why = "\n         ".join(filter(None, (failure.why, self.foreign)))
            if self.located is not None and self.located.nodes:
                failure.why = "\n         ".join(filter(None, (failure.why, self.located.headline())))
            raise

    def verdicts(self) -> list[str]:
        """The two verdicts that tutorials print, in their words."""
        lines = [EXPORTED_WELL if self.allclose else "Not equal to tolerance rtol=0.001, atol=1e-05"]
        lines.append(_LOOKS.format(self.framework, "good" if self.close else "bad"))
        worst = max(self.example, key=lambda c: c.max_abs, default=None)
        if worst is not None:
            if not worst.max_abs < 1e-5:
                lines.append(f"relative_diff:  {worst.relative:.6g}")
            lines.append(f"max_abs_diff:  {worst.max_abs:.6g}")
        return lines

    def __str__(self) -> str:
        verb = "computes" if self.ok else "does NOT compute"
        lines = [f"{self.path} {verb} what the {self.framework} model computes"]
        if not self.ok and self.quantisation is not None and self.quantisation.only:
            lines[0] += ", by its quantisation alone"
        summaries = {output.name: output for output in self.verification.per_output()}
        for line in str(self.verification).splitlines():
            lines.append(f"  {line}")
            for name, output in summaries.items():
                if line.startswith((f"[✓] {name} (", f"[✗] {name} (")):
                    lines += [f"      {text}" for text in _more(output)]
        others = [t.label for t in self.verification.trials[1:] if not t.skipped and "=" not in t.label]
        lines += [f"  values tried: the example, {', '.join(others)}"] if others else []
        lines += [f"  {line}" for line in self.verdicts()]
        lines += [] if self.quantisation is None else [f"  {line}" for line in self.quantisation.lines()]
        lines += [f"  {note}" for note in self.notes]
        if self.located is not None:
            lines += [f"  {line}" for line in str(self.located).splitlines()]
        return "\n".join(lines)

    def data(self) -> dict[str, Any]:
        """The same as JSON data."""
        return {
            "path": str(self.path),
            "framework": self.framework,
            "ok": self.ok,
            "allclose": self.allclose,
            "close": self.close,
            "verdicts": self.verdicts(),
            "verification": verification_data(self.verification),
            "located": None if self.located is None else self.located.data(),
            "differences": [difference_data(one) for one in self.differences],
            "quantisation": None if self.quantisation is None else self.quantisation.data(),
            "notes": list(self.notes),
            "timings": {stage: round(seconds, 6) for stage, seconds in self.timings.items()},
        }


def verify(
    onnx_path: str | os.PathLike[str],
    model: Any,
    args: Any = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    params: str | os.PathLike[str] | None = None,
    rtol: float | None = None,
    atol: float | None = None,
    strict: bool = False,
    sizes: bool = True,
    values: bool = True,
    seed: int = 0,
    locate: bool | None = None,
    reproducer: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> VerifyResult:
    """Compare an ONNX file, whoever made it, with the model that it was made from.

    Example::

        result = tonnx.verify("net.onnx", model, (x,))
        print(result)                  # figures of every output, and where it departs if it does
        result.raise_if_failed()

    Args:
        onnx_path: the file, of any opset that ONNX Runtime runs; its external data is found beside it.
        model: what ``tonnx.export`` takes, the path of another ``.onnx`` file, or a function on arrays.
        args, kwargs: the example, as the model takes it; or arrays by the file's input names; drawn if not given.
        params: the weights of a saved Paddle model, if they do not lie beside it.
        rtol, atol: tolerances; by default those of each output's dtype (float32: 1e-3 and 1e-5).
        strict: both usual verdicts have to be good, too (see `VerifyResult.allclose` and `VerifyResult.close`).
        sizes: also try other sizes of the file's dynamic dimensions.
        values: also try other values: further draws, zeros, negative and large numbers.
        seed: of everything that is drawn.
        locate: look for the first node that differs: None if something does, True in any case, False never.
        reproducer: where to write the smallest part that differs, ``part.onnx``, and its arrays beside it (``.npz``).
        progress: called with the name of each stage as it begins.

    Returns a result that is not ``ok`` if the file computes something else. What cannot be compared at all raises.
    """
    path, where = _checked_file(Path(onnx_path)), _checked_reproducer(reproducer)
    stages = Stages(progress)
    with stages("read"):
        signature, lowered, restriction, notes = _read(path)
    with stages("model"):
        subject = _Question(model, args, kwargs, params, signature).subject().within(rtol, atol)
        check_fit(signature, subject.example)
    asked = replace(subject, restriction=restriction)
    with stages("verify"):
        proof = prove(path, asked, check=False, seed=seed, sizes=bool(sizes), lowered=lowered, values=values)
    result = VerifyResult(path, subject.framework, proof, strict, notes=notes, timings=stages.seconds)
    _tell_weights(result, subject)
    with stages("quantisation"):
        result.quantisation = quantisation_of(path, subject, model)
    explained = result.quantisation is not None and result.quantisation.only  # no node of the file is to blame
    if not result.foreign and (locate or (locate is None and not proof.ok and not explained)):
        with stages("locate"):
            _locate(result, subject, where)
    return result


def _tell_weights(result: VerifyResult, subject: Subject) -> None:
    """Say so if a file that differs has other weights than the model: no node is to blame then."""
    if not result.verification.ok and subject.state is not None:
        result.foreign = foreign_weights(reading.reader(result.path)(), subject.state())
    if result.foreign:
        result.notes.append(f"[!] {result.foreign}")


def _checked_file(path: Path) -> Path:
    if not path.is_file():
        raise InvalidArgument(f"there is no file {path}" if not path.is_dir() else f"{path} is a folder, not a file")
    return path


def _checked_reproducer(wanted: str | os.PathLike[str] | None) -> Path | None:
    if wanted is None:
        return None
    path = Path(wanted)
    if path.suffix != ".onnx":
        raise InvalidArgument(f"the reproducer is written to a path that ends in .onnx, not {path}")
    if not path.parent.is_dir():
        raise InvalidArgument(f"cannot write {path}", why=f"the folder {path.parent} does not exist")
    return path


def _read(path: Path) -> tuple[Signature, dict[str, str], OneTextAfterPast | None, list[str]]:
    """The file's inputs and outputs, the outputs whose precision was lowered, sizes, and what the user should know."""
    model = reading.reader(path)()
    signature, notes = Signature.of(model), [*_checker(path), *untested()]
    if any(value.dtype == ir.DataType.DOUBLE for value in model.graph.outputs):
        reading.infer(model)
    return signature, lowered_outputs(model), restriction_of(model), notes


def _checker(path: Path) -> list[str]:
    """What onnx's checker says of a file from elsewhere is worth a note; whether it runs, the runtime decides."""
    try:
        check_model(path)
    except InvalidModel as error:
        return [f"[!] {error.what}: {error.why}"]
    return []


def _locate(result: VerifyResult, subject: Subject, reproducer: Path | None) -> None:
    """Nothing that goes wrong here may hide what was found before."""
    if subject.trace is None:
        result.notes.append(f"[!] not located: {subject.untraced}")
        return
    try:
        model = reading.reader(result.path)()
        reading.infer(model)
        case = case_of(subject, model, result.verification.failing or subject.example)
        result.located, result.differences = locate_or_compare(
            case, differs=not result.verification.ok, reproducer=reproducer
        )
    except TonnxError as error:
        result.notes.append(f"[!] not located: {error.what}{f' ({error.why})' if error.why else ''}")


def _more(output: OutputSummary) -> list[str]:
    total = sum(output.histogram)
    lines = [
        f"mean abs {output.mean_abs:.2g}  cosine {output.cosine:.7f}  out of tolerance {output.share:.2%}",
    ]
    if total:
        bars = [f"{name}: {count / total:.1%}" for name, count in zip(_BINS, output.histogram, strict=True) if count]
        lines.append(f"differences {'  '.join(bars)}")
    return lines


@dataclass(frozen=True)
class _Question:
    """A file, and what the user gave to compare it with."""

    model: Any
    args: Any
    kwargs: Mapping[str, Any] | None
    params: str | os.PathLike[str] | None
    signature: Signature

    @cached_property
    def named_arrays(self) -> dict[str, np.ndarray] | None:
        """Arrays by name, if that is what was given; {} if nothing was."""
        if self.kwargs:
            return None
        if self.args is None or (isinstance(self.args, (tuple, list)) and not self.args):
            return {}
        if isinstance(self.args, Mapping) and all(isinstance(value, np.ndarray) for value in self.args.values()):
            return dict(self.args)
        return None

    def examples(self, arrays: Mapping[str, np.ndarray]) -> Iterator[dict[str, np.ndarray]]:
        """Complete inputs for the file: what is given, and random ones for the rest."""
        check_fit(self.signature, arrays)
        return random_examples(self.signature, arrays)

    def subject(self) -> Subject:
        model, args, kwargs, arrays, signature = self.model, self.args, self.kwargs, self.named_arrays, self.signature
        if isinstance(model, (str, os.PathLike)):
            if str(model).endswith(".onnx"):
                return self._onnx(Path(model))
            from tonnx.frontends.paddle.original import saved

            return saved(model, self.params, arrays if arrays is not None else args, self.examples, signature)
        if is_of("paddle", model, args, kwargs):
            from tonnx.frontends.paddle.original import layer

            return layer(model, args, kwargs, arrays, self.examples, signature)
        if is_of("torch", model, args, kwargs):
            return self._torch()
        if callable(model) and not isinstance(model, type):
            try:
                return self._function()
            except CaptureError:  # it takes no arrays: on tensors, if PyTorch is there at all
                if arrays is None or "torch" not in sys.modules:
                    raise
                return self._torch()
        raise InvalidArgument(
            f"cannot verify against a {type(model).__name__}",
            hint="give a model of PyTorch or Paddle, the path of a saved one or of an ONNX file, or a function on "
            "arrays",
        )

    def _torch(self) -> Subject:
        from tonnx.frontends.torch.original import has_example, original, with_arrays

        arrays = self.named_arrays
        if arrays is None or (not arrays and has_example(self.model)):
            return original(self.model, self.args, self.kwargs, self.signature)
        return with_arrays(self.model, arrays, self.examples, self.signature)

    def _function(self) -> Subject:
        """A function on arrays: as many as the file has inputs, in their order; it gives the outputs in order."""
        names, extra, outputs = list(self.signature.inputs), dict(self.kwargs or {}), self.signature.outputs
        by_name = self.named_arrays
        if by_name is None:
            arrays = self._arrays()
            if len(arrays) != len(names):
                raise InvalidArgument(
                    f"the file has {len(names)} inputs, {len(arrays)} arrays are given",
                    why=f"they are {', '.join(names)}",
                )
            by_name = dict(zip(names, arrays, strict=True))

        def reference(feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
            results = self.model(*(feeds[name] for name in names), **extra)
            if isinstance(results, Mapping):
                chosen = outputs if set(outputs) <= set(results) else list(results)
                results = [results[name] for name in chosen]
            listed = list(results) if isinstance(results, (tuple, list)) else [results]
            return [np.asarray(result) for result in listed]

        example = first_that_runs(reference, [by_name] if set(by_name) == set(names) else self.examples(by_name))
        return Subject(
            reference,
            {name: example[name] for name in names},
            outputs,
            self.signature.dynamic(),
            framework="function",
            untraced="a plain function shows nothing of what it computes inside; only its outputs were compared",
        )

    def _onnx(self, path: Path) -> Subject:
        from tonnx.proof.locate.onnx_trace import original_file

        arrays = self.named_arrays
        if arrays is None:
            arrays = dict(zip(self.signature.inputs, self._arrays(), strict=False))
        return original_file(path, arrays, partial(self.examples, arrays), self.signature)

    def _arrays(self) -> list[np.ndarray]:
        return [np.asarray(part) for part in (self.args if isinstance(self.args, (tuple, list)) else [self.args])]
