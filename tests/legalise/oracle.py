"""The oracle that we did not write: onnx's backend node tests, each a model with inputs and outputs.

for case in cases("Einsum"):
    print(case.name, verdict(case, 9))
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx.reference import ReferenceEvaluator

from tests.legalise.harness import retarget, session
from tonnx.errors import RetargetError
from tonnx.ir.target import OLDEST_RUN
from tonnx.proof import upward

# Numbers of fewer bits than the tolerance of a case was made for.
_COARSE = {"float16": 5e-3, "bfloat16": 2e-2}
# Cases that draw random numbers have no right answer.
_RANDOM = ("bernoulli", "random", "dropout", "multinomial")


@dataclass(frozen=True)
class Case:
    """One test of onnx's own."""

    name: str
    model: onnx.ModelProto
    data_sets: Any
    rtol: float
    atol: float

    @property
    def opset(self) -> int:
        """Of the default domain; 0 if the case has none of its operators."""
        return next((int(o.version) for o in self.model.opset_import if o.domain in ("", "ai.onnx")), 0)

    @property
    def operators(self) -> set[str]:
        return {node.op_type for node in self.model.graph.node}


@dataclass(frozen=True)
class Verdict:
    """What became of a case at another opset.

    ``kind``: passed, refused, wrong, invalid, not run, or "as the runtime": not what onnx stored, but what ONNX Runtime
    makes of the case before it was retargeted. ``judge``: who computed it.
    """

    kind: str
    reason: str = ""
    judge: str = ""
    constants: bool = False
    """Whether it took inputs that are known beforehand."""
    up_by: str = ""
    """Below opset 7: who brought the result up to 7, where it was run."""


@cache
def all_cases() -> tuple[Case, ...]:
    """Every case of one operator; those of onnx's own expansions are left out."""
    with warnings.catch_warnings(), contextlib.suppress(ImportError):
        warnings.simplefilter("ignore")
        from onnx.backend.test.case.node import collect_testcases

        return tuple(
            Case(case.name, case.model, case.data_sets, case.rtol, case.atol)
            for case in collect_testcases(None)
            if case.model is not None and "_expanded" not in case.name and not _is_random(case.name)
        )
    return ()


@cache
def expanded_cases() -> tuple[Case, ...]:
    """The same with onnx's own expansions of an operator: several operators each."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.case.node import collect_testcases

        return tuple(
            Case(case.name, case.model, case.data_sets, case.rtol, case.atol)
            for case in collect_testcases(None)
            if case.model is not None and "_expanded" in case.name and not _is_random(case.name)
        )


@cache
def old_cases() -> tuple[Case, ...]:
    """What PyTorch wrote in its early days, at opset 6 and 9: operators and small networks."""
    from onnx.backend.test.loader import load_model_tests

    found = []
    for kind in ("simple", "pytorch-operator", "pytorch-converted"):
        for test in load_model_tests(kind=kind):
            model = onnx.load(Path(test.model_dir) / "model.onnx")
            sets = [_stored(folder, model) for folder in sorted(Path(test.model_dir).glob("test_data_set_*"))]
            found.append(Case(test.name, model, sets, test.rtol, test.atol))
    return tuple(found)


def _stored(folder: Path, model: onnx.ModelProto) -> tuple[list[Any], list[Any]]:
    """The inputs and outputs in a folder; sequences are left to onnx's own form."""
    result: list[list[Any]] = []
    for kind, formals in (("input", model.graph.input), ("output", model.graph.output)):
        values: list[Any] = []
        for i in range(len(list(folder.glob(f"{kind}_*.pb")))):
            data = (folder / f"{kind}_{i}.pb").read_bytes()
            if i < len(formals) and formals[i].type.HasField("sequence_type"):
                values.append(onnx.numpy_helper.to_list(onnx.SequenceProto.FromString(data)))
            else:
                values.append(onnx.numpy_helper.to_array(onnx.TensorProto.FromString(data)))
        result.append(values)
    return result[0], result[1]


def _is_random(name: str) -> bool:
    return any(word in name for word in _RANDOM)


def cases(operator: str) -> Iterator[Case]:
    """The cases that contain an operator."""
    return (case for case in all_cases() if operator in case.operators)


def verdict(case: Case, opset: int) -> Verdict:
    """Retarget a case, and compare what it computes with the outputs that onnx stored.

    The cases give everything as an input; where that is refused, it is tried again with all but the first as constants.
    """
    constants = False
    try:
        try:
            made, _ = retarget(_typed(case.model), opset)
        except RetargetError:
            constants = True
            made, _ = retarget(_typed(_with_constants(case)), opset)
    except RetargetError as error:
        return Verdict("refused", "; ".join(f"{b.operator}: {b.reason}" for b in error.blockers))
    try:
        onnx.checker.check_model(made, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        return Verdict("invalid", str(error))
    return replace(_judged(case, made), constants=constants)


def _judged(case: Case, made: onnx.ModelProto) -> Verdict:
    names = {x.name for x in made.graph.input} - {x.name for x in made.graph.initializer}
    judge = "onnxruntime"
    if made.opset_import[0].version < OLDEST_RUN:
        return _judged_at_7(case, made, names)
    for inputs, outputs in case.data_sets:
        given = zip(case.model.graph.input, inputs, strict=False)
        everything = {formal.name: _plain(value) for formal, value in given}
        feeds = {name: value for name, value in everything.items() if name in names}
        try:
            judge, got = _computed(made, feeds)
        except Exception as error:  # whatever a runtime raises
            if _runs(case, everything):
                return Verdict("not run", f"{type(error).__name__}: {error}")
            try:  # ONNX Runtime does not run the case as onnx wrote it either
                judge, got = "onnx", ReferenceEvaluator(made).run(None, feeds)
            except Exception as other:
                return Verdict("not run", f"{type(other).__name__}: {other}")
        problem = _difference(got, outputs, case)
        if not problem:
            continue
        # Not ours if the runtime makes the same of the case as onnx wrote it.
        with contextlib.suppress(Exception):
            own = session(case.model) if judge == "onnxruntime" else ReferenceEvaluator(case.model)
            if not _difference(got, own.run(None, everything), case):
                return Verdict("as the runtime", problem, judge)
        return Verdict("wrong", problem, judge)
    return Verdict("passed", judge=judge)


def _judged_at_7(case: Case, made: onnx.ModelProto, names: set[str]) -> Verdict:
    """What runtimes do not promise to run is brought up to opset 7: by onnx's converter, or else by our own rules."""
    given = zip(case.model.graph.input, case.data_sets[0][0], strict=False)
    shapes = {formal.name: np.shape(_plain(value)) for formal, value in given if formal.name in names}
    verdict = Verdict("not run", "there is no way up")
    try:
        for data, who in upward.ways_up(made, shapes):
            up = onnx.load_model_from_string(data)
            verdict = replace(_judged(case, up), up_by="onnx" if who == upward.BY_ONNX else "tonnx")
            if verdict.kind != "not run":  # else the converter made something that does not load
                return verdict
    except RetargetError as error:
        return Verdict("not run", "; ".join(f"{b.operator}: {b.reason}" for b in error.blockers))
    return verdict


def _runs(case: Case, feeds: dict[str, Any]) -> bool:
    with contextlib.suppress(Exception):
        session(case.model).run(None, feeds)
        return True
    return False


def _computed(model: onnx.ModelProto, feeds: dict[str, Any]) -> tuple[str, Any]:
    """By ONNX Runtime; by onnx's evaluator only where that has no kernel, or takes no such input from Python."""
    if any(isinstance(value, np.ndarray) and value.dtype.kind == "V" for value in feeds.values()):
        return "onnx", ReferenceEvaluator(model).run(None, feeds)
    try:
        return "onnxruntime", session(model).run(None, feeds)
    except onnxruntime.capi.onnxruntime_pybind11_state.NotImplemented:
        return "onnx", ReferenceEvaluator(model).run(None, feeds)


def _difference(got: Any, wanted: Any, case: Case) -> str:
    for one, other in zip(got, wanted, strict=False):
        if isinstance(other, list):
            if problem := _difference(one, other, case):
                return problem
            continue
        one, other = _comparable(one), _comparable(other)
        if one.dtype != other.dtype or one.shape != other.shape:
            return f"differs: {one.dtype}{list(one.shape)} instead of {other.dtype}{list(other.shape)}"
        coarse = _COARSE.get(str(other.dtype), 0.0)
        if other.dtype.kind in "fV" and str(other.dtype) in ("float16", "bfloat16", "float32", "float64"):
            one, other = one.astype(np.float64), other.astype(np.float64)
            rtol, atol = max(case.rtol, coarse), max(case.atol, coarse, 1e-6)
            if not np.allclose(one, other, rtol=rtol, atol=atol, equal_nan=True):
                return f"differs by {np.nanmax(np.abs(one - other)):.3g}"
        elif not np.array_equal(one, other):
            return "differs"
    return ""


def _comparable(value: Any) -> np.ndarray:
    """Strings in one dtype; 8-bit floats by their bits, which is all that ONNX Runtime gives of them."""
    array = np.asarray(_plain(value))
    if array.dtype.kind == "U":
        return array.astype(object)
    return array.view(np.uint8) if str(array.dtype).startswith("float8") else array


def _plain(value: Any) -> Any:
    if isinstance(value, onnx.TensorProto):
        return onnx.numpy_helper.to_array(value)
    return np.asarray(value) if isinstance(value, np.generic) else value


def _typed(model: onnx.ModelProto) -> onnx.ModelProto:
    return onnx.shape_inference.infer_shapes(model, data_prop=True)


def _with_constants(case: Case) -> onnx.ModelProto:
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    keep = []
    for i, (formal, value) in enumerate(zip(model.graph.input, case.data_sets[0][0], strict=False)):
        array = _plain(value)
        if i and isinstance(array, np.ndarray) and array.dtype != object:
            model.graph.initializer.append(onnx.numpy_helper.from_array(array, formal.name))
        else:
            keep.append(formal)
    del model.graph.input[:]
    model.graph.input.extend(keep)
    model.ir_version = max(model.ir_version, 4)  # an initializer need not be an input
    return model
