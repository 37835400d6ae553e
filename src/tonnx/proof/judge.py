"""Who runs a file to prove it: ONNX Runtime, or onnx's reference evaluator where that is too old for the file."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import onnx_ir as ir

from tonnx.io import write
from tonnx.ir.target import Target
from tonnx.legalise import legalise
from tonnx.proof import upward
from tonnx.proof.session import Model, Session, TooNew, check_model, one_line

_RUN_BY_ALL = 21
"""An opset that every supported ONNX Runtime runs, and that has blocks and integers of 16 and 4 bits."""


class ReferenceSession(Session):
    """A file in onnx's reference evaluator: slow, and with no limit of time."""

    def __init__(self, model: Model, refusal: TooNew) -> None:
        from onnx.reference import ReferenceEvaluator  # slow to import, and rarely needed

        self._refusal = refusal
        self.brought_up_by, self.remark = "", f"{refusal.what}: run by onnx's reference evaluator instead"
        proto = upward.load_proto(model)
        self.inputs, self.outputs = upward.types_of(proto)
        self.shapes, self.metadata = upward.shapes_of(proto), upward.metadata_of(proto)
        self._evaluator: Any = ReferenceEvaluator(proto)

    def run(self, feeds: Mapping[str, np.ndarray], patience: float | None = None) -> dict[str, np.ndarray]:
        try:
            results = self._evaluator.run(None, {name: np.asarray(array) for name, array in feeds.items()})
        except Exception as error:  # it has no errors of its own: whatever numpy or a missing operator raises
            failure = one_line(f"{type(error).__name__}: {error}")
            why = f"{self._refusal.why}; nor does onnx's reference evaluator run it: {failure}"
            raise TooNew(self._refusal.what, where=self._refusal.where, why=why, hint=self._refusal.hint) from error
        return dict(zip(self.outputs, map(np.asarray, results), strict=True))


class UnopenedSession(Session):
    """What a model takes and gives; ONNX Runtime loads it when it first runs."""

    def __init__(self, model: ir.Model) -> None:
        graph = model.graph
        inputs = [value for value in graph.inputs if not value.is_initializer()]
        self.inputs, self.outputs = ({str(v.name): _type_name(v) for v in some} for some in (inputs, graph.outputs))
        self.shapes = {str(v.name): _sizes(v) for v in (*inputs, *graph.outputs)}
        self.metadata, self.brought_up_by = dict(model.metadata_props), ""
        self._model = model
        self._run: Callable[[Mapping[str, np.ndarray]], dict[str, np.ndarray]] | None = None

    def run(self, feeds: Mapping[str, np.ndarray], patience: float | None = None) -> dict[str, np.ndarray]:
        self._run = self._run or run_of(self._model)
        return self._run(feeds)


def _type_name(value: ir.Value) -> str:
    """As ONNX Runtime writes it; empty if it is no tensor."""
    return f"tensor({value.type.dtype.name.lower()})" if isinstance(value.type, ir.TensorType) else ""


def _sizes(value: ir.Value) -> list[int | str | None]:
    return [dim if isinstance(dim, int) else dim.value for dim in value.shape or ()]


def open_session(model: Model, *, optimised: bool = True) -> Session:
    """The file in ONNX Runtime, or in onnx's reference evaluator. Raises `TooNew` where neither loads or runs it.

    Its threads do not wait for the next run busily: what comes between two runs is the model's turn.
    """
    from tonnx.proof import parts

    if not isinstance(model, bytes) and parts.nbytes(model) > parts.WHOLE_UP_TO:
        return parts.PartedSession(model, optimised=optimised)
    try:
        return Session(model, optimised=optimised, spin=False)
    except TooNew as error:
        runtime_error = error
    import onnx

    opset = upward.opset_of(model if isinstance(model, bytes) else os.fspath(model)) or 0
    if opset > onnx.defs.onnx_opset_version():
        newest = f"onnx {onnx.__version__} knows opsets up to {onnx.defs.onnx_opset_version()}"
        runtime_error.why = f"{runtime_error.why}; {newest}, so its reference evaluator cannot stand in"
        raise runtime_error
    try:
        return ReferenceSession(model, runtime_error)
    except Exception as error:  # NotImplementedError for an operator that it lacks, RuntimeError, KeyError
        runtime_error.why = f"{runtime_error.why}; nor does onnx's reference evaluator load it: {one_line(error)}"
        raise runtime_error from error


def checked(model: Model) -> list[str]:
    """Make onnx's full check; what has to be said where the installed onnx is too old to make it."""
    try:
        check_model(model)
    except TooNew as error:
        return [f"{error.what}: the file is not checked by it"]
    return []


def run_of(
    model: ir.Model, *, fused_integers: bool = True
) -> Callable[[Mapping[str, np.ndarray]], dict[str, np.ndarray]]:
    """What runs a model of any opset in ONNX Runtime; one that is too old for it gets the model at an older one.

    Its threads do not wait for the next run busily: what comes between two runs is work in Python. Nor is memory
    planned for further runs at the same sizes, which is memory beside that of the first: for a few it never pays.
    ``fused_integers``: whether layers between DequantizeLinear and QuantizeLinear multiply integers.
    """
    opened = partial(Session, spin=False, plans_memory=False, fused_integers=fused_integers)
    try:
        return opened(write.to_bytes(model)).run
    except TooNew:
        older = model.clone()
        legalise(older, Target(_RUN_BY_ALL))
        return opened(write.to_bytes(older)).run
