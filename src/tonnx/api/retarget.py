"""Any ONNX file at another opset: ``tonnx.retarget``. Needs neither torch nor paddle."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, BinaryIO

import numpy as np
import onnx
import onnx_ir as ir
from onnx_ir.passes.common import InlinePass

from tonnx.api.arguments import RETARGET, documented
from tonnx.api.deliver import add_page, deliver
from tonnx.api.request import check_options, read_weights
from tonnx.api.result import Result, format_size
from tonnx.errors import InvalidArgument, InvalidModel, RetargetError, TonnxError, told_as
from tonnx.io import read as reading
from tonnx.io import write
from tonnx.io.reference import refer, summary
from tonnx.ir import facts, provenance
from tonnx.ir.target import CANON, OLDEST, Target
from tonnx.legalise import legalise
from tonnx.legalise.conformity import require
from tonnx.passes import clean_up, fit_profile, fit_runtime, list_initializers
from tonnx.passes.static_shapes import fix_sizes, fold_shapes, settle_shapes
from tonnx.proof.examples import random_examples
from tonnx.proof.locate.trace import Trace
from tonnx.proof.session import Session
from tonnx.proof.signature import Signature, check_fit, signature_lines
from tonnx.proof.subject import Subject
from tonnx.proof.trials.saturation import dependable
from tonnx.stages import Progress, Stages
from tonnx.versions import untested


@dataclass(kw_only=True)
class RetargetResult(Result):
    """A model at another opset: what changed, and the proof."""

    source: int
    before: Counter[str]
    """Nodes by operator in the original."""
    after: Counter[str] = field(default_factory=Counter)

    def changes(self) -> list[tuple[str, int, int]]:
        """Operator, nodes before, nodes after: where they differ."""
        names = sorted({*self.before, *self.after})
        return [(n, self.before[n], self.after[n]) for n in names if self.before[n] != self.after[n]]

    def __str__(self) -> str:
        lines = [
            f"{self.path or 'model'}: opset {self.source} → {self.opset}, IR {self.model.ir_version}, "
            f"{self.before.total()} → {self.after.total()} nodes" + (f", {format_size(self.size)}" if self.size else "")
        ]
        return "\n".join([*lines, *signature_lines(self.model), *self._change_lines(), *self._proof_lines()])

    def _change_lines(self) -> list[str]:
        changes = self.changes()
        if not changes:
            return []
        width = max(len("operator"), *(len(name) for name, _, _ in changes))
        rows = [f"  {name:<{width}}  {before:>6}  {after:>5}" for name, before, after in changes]
        return [f"  {'operator':<{width}}  before  after", *rows]

    def _proof_lines(self) -> list[str]:
        verdict = [] if self.verification is None else str(self.verification).splitlines()
        return [f"  {line}" for line in (*self.notes, *verdict)]

    def data(self) -> dict[str, Any]:
        """The same as JSON data."""
        return {
            "path": str(self.path),
            "source_opset": self.source,
            "nodes": {"before": self.before.total(), "after": self.after.total()},
            "changes": [{"operator": name, "before": b, "after": a} for name, b, a in self.changes()],
            **self._common_data(),
        }


@documented(RETARGET)
def retarget(
    model: str | os.PathLike[str] | bytes | onnx.ModelProto | ir.Model,
    opset: int | None = None,
    f: str | os.PathLike[str] | BinaryIO | None = None,
    *,
    target: str | None = None,
    sizes: Mapping[str, int] | None = None,
    inputs: Mapping[str, np.ndarray] | None = None,
    verify: bool = True,
    rtol: float | None = None,
    atol: float | None = None,
    external_data: bool | None = None,
    weights: str = "copy",
    runtime: str | None = None,
    report: bool | str | os.PathLike[str] = False,
    progress: Progress | None = None,
) -> RetargetResult:
    """Take any ONNX model to exactly ``opset``, or to a target by name, and prove that it still computes the same.

    Example::

        result = tonnx.retarget("model.onnx", 11, "model-11.onnx")
        print(result)
        tonnx.retarget("model.onnx", f="model-trt.onnx", target="tensorrt-8.6")
    """
    if opset is None and target is None:
        raise InvalidArgument("neither an opset nor a target is given", hint="opset=17, or target='tensorrt-8.6'")
    goal = Target.of(opset, runtime, target)
    profile = goal.profile
    if profile is not None and not profile.external_data:
        if external_data or weights != "copy":
            raise InvalidArgument(f"{profile.name} reads one file", hint="leave out external_data and weights")
        external_data = False
    check_options(f, external_data, rtol, atol, report)
    kept = read_weights(weights, f, external_data)
    arrays, stages = dict(inputs or {}), Stages(progress)
    with reading.blaming(model):
        with stages("read"):
            read = _with_sizes(reading.reader(model), sizes or {})
            original = read()
        result = RetargetResult(original, goal.opset, source=original.opset_imports[""], before=_count(original))
        check_fit(Signature({str(value.name): value for value in original.graph.inputs}, []), arrays)
        with stages("legalise"):
            result.model = legalised(original, read, goal, result.notes)
        if kept.stay:
            refer(result.model, kept.beside, kept.files)
            result.notes += summary(result.model)
        result.notes += untested()
        result.after = _count(result.model)
        provenance.stamp(result.model)
        subject = _subject(model, read, result, arrays, goal).within(rtol, atol) if verify else None
        deliver(result, f, stages, subject, external_data=external_data, refer=kept.stay, runtime=goal.runtime)
    result.timings = stages.seconds
    if report:
        add_page(result, report)
    return result


def legalised(model: ir.Model, read: Callable[[], ir.Model], target: Target, notes: list[str]) -> ir.Model:
    """Rewrite; functions and initializers that are inputs stay what they are, unless that is what stands in the way."""
    inferred = _inferred(model, target)
    try:
        legalise(model, target)
    except RetargetError:
        model = read()  # the rules have changed half of the other one
        done = [note for note in (_inlined(model), _unlisted(model)) if note]
        if not done:
            raise
        inferred = _inferred(model, target)
        legalise(model, target)
        notes += done
    notes += inferred
    notes += fit_runtime(model, target.runtime)
    notes += fit_profile(model, target.profile)
    if model.functions:
        model.ir_version = max(model.ir_version, 8)  # the first that has functions
    clean_up(model, fold=target.profile is not None)
    require(model, target)
    return model


def _inferred(model: ir.Model, target: Target) -> list[str]:
    """Types and shapes; a target by name may have no Shape, and gets no arithmetic on sizes that are known."""
    if target.profile is not None:
        return settle_shapes(model)
    notes = reading.infer(model)
    provenance.remember(model)
    return notes


def _with_sizes(read: Callable[[], ir.Model], sizes: Mapping[str, int]) -> Callable[[], ir.Model]:
    """The model with dimensions fixed, and what follows from them computed."""
    if not sizes:
        return read

    def fixed() -> ir.Model:
        model = read()
        fix_sizes(model, sizes)
        reading.infer(model)
        while fold_shapes(model):
            reading.infer(model)
        return model

    return fixed


def _subject(
    model: Any, read: Callable[[], ir.Model], result: Result, arrays: Mapping[str, np.ndarray], target: Target
) -> Subject:
    """The original, which has other integers at its borders than a file for a target without int64."""
    if target.profile is None or target.profile.int64 != "none":
        return file_subject(model, read, result, arrays)
    return file_subject(model, read, replace(result, model=read()), arrays).narrowed()


def _inlined(model: ir.Model) -> str:
    """A function's body has no types or shapes of its own: where a rule needs them, the calls have to be spelt out."""
    if not model.functions:
        return ""
    count = len(model.functions)
    source = model.opset_imports[""]
    if OLDEST <= source <= CANON and any(f.opset_imports.get("", source) != source for f in model.functions.values()):
        legalise(model, Target(source))
    with told_as(InvalidModel, "the functions of the model cannot be inlined", why=str):  # other versions of a domain
        InlinePass()(model)
    return f"inlined {count} function{'s' if count != 1 else ''}"


def _unlisted(model: ir.Model) -> str:
    """An initializer that is an input is only a default value: where an older version has an attribute, it is fixed."""
    count = reading.unlist_initializers(model)
    return f"{count} initializer{'s are' if count != 1 else ' is'} no longer among the inputs" if count else ""


def _count(model: ir.Model) -> Counter[str]:
    return Counter(node.op_type for node in model.graph.all_nodes())


def file_subject(model: Any, read: Callable[[], ir.Model], result: Result, arrays: Mapping[str, np.ndarray]) -> Subject:
    """What to compare with: the original in ONNX Runtime, if it runs there at all."""
    signature = Signature.of(result.model)
    try:
        session = dependable(_as_given(model, read))
        result.notes += [f"the original: {session.remark}"] if session.remark else []
        example = _runnable(session, signature, arrays)
    except TonnxError as error:
        # An operator of a custom domain, a kernel that is missing, inputs that cannot be guessed: the result says so.
        result.not_run = f"not compared: ONNX Runtime does not run the original ({error.why or error.what})"
        result.notes.append(result.not_run)
        return Subject(None, {}, signature.outputs)

    sessions = [session]

    def reference(feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
        outputs = sessions[0].run(feeds)
        return [outputs[name] for name in signature.outputs]

    return Subject(
        reference,
        example,
        signature.outputs,
        signature.dynamic(unnamed=False),
        framework="ONNX",
        trace=partial(_inside, read, list(example)),
        release=sessions.clear,
        stamp=facts.ORIGINAL,
    )


def _inside(read: Callable[[], ir.Model], inputs: list[str]) -> Trace:
    """The values of the original, to say where the other file departs from it."""
    from tonnx.proof.locate.onnx_trace import OnnxTrace

    model = read()
    reading.infer(model)
    return OnnxTrace(model, {name: name for name in inputs})


def _as_given(model: Any, read: Callable[[], ir.Model]) -> str | os.PathLike[str] | bytes:
    if isinstance(model, (str, os.PathLike, bytes)):
        return model
    copy = read()
    if (copy.ir_version or 0) < reading.OVERRIDABLE_SINCE:
        list_initializers(copy)
    return write.to_bytes(copy)


def _runnable(session: Session, signature: Signature, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Inputs on which the original runs: sizes and integers that the file says nothing of are guessed."""
    failure: TonnxError | None = None
    for example in random_examples(signature, arrays):
        try:
            session.run(example)
            return example
        except TonnxError as error:
            failure = failure or error
    assert failure is not None
    if arrays and set(signature.inputs) <= set(arrays):
        raise InvalidArgument("the model does not run on the given inputs", why=failure.why)
    raise failure
