"""Any ONNX file at another opset: ``tonnx.retarget``. Needs neither torch nor paddle."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import onnx
import onnx_ir as ir
from onnx_ir.passes.common import InlinePass, ShapeInferencePass

from tonnx import serialize
from tonnx.deliver import Proof, check_options, deliver
from tonnx.errors import InvalidArgument, InvalidModel, RetargetError, TonnxError
from tonnx.legalise import legalise
from tonnx.passes import clean_up
from tonnx.result import format_size, signature_of
from tonnx.stages import Progress, Stages
from tonnx.target import Target
from tonnx.proof import Session, Verification

_UNNAMED = 2
"""The size given to a dimension that the file leaves open."""


@dataclass
class RetargetResult:
    """A model at another opset: what changed, and the proof."""

    model: ir.Model
    source: int
    opset: int
    before: Counter[str]
    """Nodes by operator in the original."""
    after: Counter[str]
    path: Path | None = None
    size: int = 0
    verification: Verification | None = None
    notes: list[str] = field(default_factory=list)
    timings: dict[str, float] = field(default_factory=dict)

    def changes(self) -> list[tuple[str, int, int]]:
        """Operator, nodes before, nodes after: where they differ."""
        names = sorted({*self.before, *self.after})
        return [(n, self.before[n], self.after[n]) for n in names if self.before[n] != self.after[n]]

    def __str__(self) -> str:
        lines = [
            f"{self.path or 'model'}: opset {self.source} → {self.opset}, IR {self.model.ir_version}, "
            f"{self.before.total()} → {self.after.total()} nodes, {format_size(self.size)}"
        ]
        for kind, values in (("input", self.model.graph.inputs), ("output", self.model.graph.outputs)):
            lines += [f"  {kind} {signature_of(value)}" for value in values if not value.is_initializer()]
        changes = self.changes()
        if changes:
            width = max(len("operator"), *(len(name) for name, _, _ in changes))
            lines.append(f"  {'operator':<{width}}  before  after")
            lines += [f"  {name:<{width}}  {before:>6}  {after:>5}" for name, before, after in changes]
        lines += [f"  {note}" for note in self.notes]
        if self.verification is not None:
            lines += [f"  {line}" for line in str(self.verification).splitlines()]
        return "\n".join(lines)


def retarget(
    model: str | os.PathLike[str] | bytes | onnx.ModelProto | ir.Model,
    opset: int,
    f: str | os.PathLike[str] | BinaryIO | None = None,
    *,
    inputs: Mapping[str, np.ndarray] | None = None,
    verify: bool = True,
    rtol: float | None = None,
    atol: float | None = None,
    external_data: bool | None = None,
    progress: Progress | None = None,
) -> RetargetResult:
    """Take any ONNX model to exactly ``opset``, up or down, and prove that it still computes the same.

    Example::

        result = tonnx.retarget("model.onnx", 11, "model-11.onnx")
        print(result)

    Args:
        model: a path, the file's bytes, an ``onnx.ModelProto`` or an onnx-ir model. It is not changed.
        opset: 7 to 26.
        f: where to write; None writes nothing.
        inputs: arrays by input name for the proof; random ones that fit the input types otherwise.
        verify: run both models in ONNX Runtime and compare; also at other sizes of dynamic dimensions.
        rtol, atol: tolerances, by default those of each output's dtype.
        external_data: True writes the weights to ``<f>.data``; None keeps one file below 2 GiB.
    """
    target = Target(opset)
    check_options(f, external_data, rtol, atol)
    stages = Stages(progress)
    with stages("read"):
        original, fresh = _load(model)
    source = original.opset_imports.get("")
    if source is None:
        raise InvalidModel("the model imports no version of the default operator set")
    result = RetargetResult(original, source, opset, before=_count(original), after=Counter())
    with stages("legalise"):
        result.model = _legalised(original, fresh, target, result.notes)
    result.after = _count(result.model)
    proof = _proof(model, fresh, result, inputs, rtol, atol) if verify else None
    deliver(result, f, stages, proof, external_data)
    result.timings = stages.seconds
    return result


def _load(model: Any) -> tuple[ir.Model, Callable[[], ir.Model]]:
    """The model, and a function that gives another copy of it: a rule may have to give up half-way."""
    if isinstance(model, ir.Model):
        return model.clone(), model.clone
    if isinstance(model, onnx.ModelProto):
        return ir.from_proto(model), lambda: ir.from_proto(model)
    if isinstance(model, (bytes, bytearray)):
        return _load(_parsed(bytes(model)))
    if isinstance(model, (str, os.PathLike)):
        path = Path(model)
        if not path.is_file():
            raise InvalidArgument(f"there is no file {path}")
        try:
            loaded = ir.load(path)
        except Exception as error:  # protobuf and onnx-ir raise several kinds for a broken file
            raise InvalidModel(f"{path} is not an ONNX model", why=str(error).splitlines()[0][:200]) from error
        return loaded, lambda: ir.load(path)
    raise InvalidArgument(f"cannot retarget a {type(model).__name__}", hint="pass a path, bytes, or an ONNX model")


def _parsed(data: bytes) -> onnx.ModelProto:
    try:
        return onnx.load_model_from_string(data)
    except Exception as error:  # google.protobuf's DecodeError has no stable place to import from
        raise InvalidModel("these bytes are not an ONNX model", why=str(error)[:200]) from error


def _legalised(model: ir.Model, fresh: Callable[[], ir.Model], target: Target, notes: list[str]) -> ir.Model:
    """Rewrite; functions are kept if their bodies can be rewritten as they are, and inlined if not."""
    _infer(model)
    try:
        legalise(model, target)
    except RetargetError:
        if not model.functions:
            raise
        # A function's body has no types or shapes of its own: where a rule needs them, the calls have to be spelt out.
        model = fresh()
        count = len(model.functions)
        InlinePass()(model)
        _infer(model)
        legalise(model, target)
        notes.append(f"inlined {count} function{'s' if count != 1 else ''}")
    if model.functions:
        model.ir_version = max(model.ir_version, 8)  # the first that has functions
    clean_up(model)
    return model


def _infer(model: ir.Model) -> None:
    """Types and shapes of all values, which rules need; whatever onnx cannot infer stays unknown."""
    ShapeInferencePass(check_type=False, strict_mode=False, data_prop=True)(model)


def _count(model: ir.Model) -> Counter[str]:
    return Counter(node.op_type for node in model.graph.all_nodes())


def _proof(
    model: Any,
    fresh: Callable[[], ir.Model],
    result: RetargetResult,
    inputs: Mapping[str, np.ndarray] | None,
    rtol: float | None,
    atol: float | None,
) -> Proof | None:
    try:
        session = Session(model if isinstance(model, (str, os.PathLike, bytes)) else serialize.to_bytes(fresh()))
        example = _example(result.model, inputs)
        session.run(example)
    except TonnxError as error:
        # The original itself does not run here (an operator of a custom domain, a kernel that is missing, inputs that
        # do not fit): there is nothing to compare with, and the result says so.
        result.notes.append(f"not compared: ONNX Runtime does not run the original ({error.why or error.what})")
        return None
    names = [value.name or "" for value in result.model.graph.outputs]

    def reference(feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
        outputs = session.run(feeds)
        return [outputs[name] for name in names]

    dynamic = {str(value.name): _named_axes(value) for value in _inputs(result.model)}
    return Proof(reference, example, {name: axes for name, axes in dynamic.items() if axes}, rtol=rtol, atol=atol)


def _named_axes(value: ir.Value) -> dict[int, str]:
    dims = [] if value.shape is None else list(value.shape)
    return {axis: str(d.value) for axis, d in enumerate(dims) if isinstance(d, ir.SymbolicDim) and d.value}


def _inputs(model: ir.Model) -> list[ir.Value]:
    return [value for value in model.graph.inputs if not value.is_initializer()]


def _example(model: ir.Model, given: Mapping[str, np.ndarray] | None) -> dict[str, np.ndarray]:
    """The given inputs, and random ones that fit the types of the others."""
    given = dict(given or {})
    values = _inputs(model)
    unknown = [name for name in given if name not in {v.name for v in values}]
    if unknown:
        raise InvalidArgument(
            f"the model has no input {unknown[0]!r}", why=f"its inputs are {', '.join(str(v.name) for v in values)}"
        )
    rng = np.random.default_rng(0)
    sizes: dict[str, int] = {}
    for value in values:
        array = given.get(str(value.name))
        if array is not None:
            sizes.update({dim: array.shape[axis] for axis, dim in _named_axes(value).items() if axis < array.ndim})
    return {str(v.name): given[str(v.name)] if str(v.name) in given else _random(v, sizes, rng) for v in values}


def _random(value: ir.Value, sizes: dict[str, int], rng: np.random.Generator) -> np.ndarray:
    if value.dtype is None or not isinstance(value.type, ir.TensorType):
        raise InvalidModel(f"the input {value.name!r} is not a tensor", hint="give its value with `inputs`")
    dims = [] if value.shape is None else list(value.shape)
    shape = [d if isinstance(d, int) else sizes.setdefault(d.value or "", _UNNAMED) for d in dims]
    dtype = value.dtype
    if dtype == ir.DataType.STRING:
        return rng.choice(np.array(["a", "bb", "ccc"], dtype=object), size=shape)
    if dtype == ir.DataType.BOOL:
        return rng.integers(0, 2, size=shape).astype(bool)
    if dtype.is_floating_point():
        return rng.standard_normal(shape).astype(dtype.numpy())
    return rng.integers(0, 2, size=shape).astype(dtype.numpy())  # indices are most often valid at 0 and 1
