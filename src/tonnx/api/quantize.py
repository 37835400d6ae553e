"""Any ONNX file with its weights as integers: ``tonnx.quantize``. Needs neither torch nor paddle."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO

import numpy as np
import onnx
import onnx_ir as ir

from tonnx.api.deliver import deliver
from tonnx.api.request import check_options
from tonnx.api.result import Result, format_size
from tonnx.api.retarget import file_subject
from tonnx.errors import InvalidArgument
from tonnx.io import read as reading
from tonnx.io import write
from tonnx.ir import provenance
from tonnx.ir.target import CANON, Target
from tonnx.legalise import legalise
from tonnx.passes import clean_up
from tonnx.proof import Session
from tonnx.proof.signature import Signature, check_fit, signature_lines
from tonnx.proof.subject import Subject
from tonnx.quant.integers import Form
from tonnx.quant.weights import SINCE, Layer, store_weights
from tonnx.stages import Progress, Stages
from tonnx.versions import untested

FORMS = {"int8": 8, "int4": 4}
"""What weights may be stored as: the bits of an integer."""
_QUANTISED = ("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", "QLinearConv", "QLinearMatMul",
              "MatMulInteger", "ConvInteger", "MatMulNBits")  # fmt: skip


@dataclass(frozen=True)
class Loss:
    """How far an output is from what the original gives, on one example."""

    name: str
    max_abs: float
    largest: float
    """The largest magnitude of the original's."""
    signal_to_noise: float
    """In decibels; infinite where both are equal."""

    def is_worse_than(self, other: Loss) -> bool:
        """By a decibel or more."""
        return self.signal_to_noise < other.signal_to_noise - 1

    def __str__(self) -> str:
        told = f"max abs {self.max_abs:.2g} of {self.largest:.2g}"
        return f"{self.name}: {told}, signal to noise {self.signal_to_noise:.1f} dB"


@dataclass
class QuantizeResult(Result):
    """A model with smaller weights: what is stored how, what that costs, and the proof."""

    to: str = ""
    layers: list[Layer] = field(default_factory=list)
    """The weights that were looked at."""
    before: int = 0
    """Bytes of all weights in the original."""
    after: int = 0
    losses: list[Loss] = field(default_factory=list)
    """The outputs beside the original's; what the proof compares with is the original with rounded weights."""

    def __str__(self) -> str:
        stored = [layer for layer in self.layers if layer.stored is not None]
        lines = [
            f"{self.path or 'model'}: {len(stored)} weights as {self.to}, opset {self.opset}"
            + (f", {format_size(self.size)}" if self.size else ""),
            f"  weights: {format_size(self.before)} → {format_size(self.after)} "
            f"({self.after / max(self.before, 1):.2f})",
        ]
        lines += signature_lines(self.model)
        lines += [f"  stays a float: {layer.name}: {layer.why}" for layer in self.layers if layer.stored is None]
        lines += [f"  beside the original: {loss}" for loss in self.losses]
        lines += [f"  {note}" for note in self.notes]
        if self.verification is not None:
            lines.append("  beside the original with the same rounded weights:")
            lines += [f"  {line}" for line in str(self.verification).splitlines()]
        return "\n".join(lines)

    def data(self) -> dict[str, Any]:
        """The same as JSON data."""
        return {
            "path": str(self.path) if self.path else None,
            "to": self.to,
            "weights": {"before": self.before, "after": self.after},
            "layers": [
                {
                    "name": layer.name,
                    "nodes": [node.name for node in layer.nodes],
                    "stored": None if layer.stored is None else str(layer.stored.integers.dtype),
                    "block": None if layer.stored is None else layer.stored.block,
                    "why": layer.why or None,
                }
                for layer in self.layers
            ],
            "losses": [vars(loss) for loss in self.losses],
            **self._common_data(),
        }


def quantize(
    model: str | os.PathLike[str] | bytes | onnx.ModelProto | ir.Model,
    f: str | os.PathLike[str] | BinaryIO | None = None,
    *,
    to: str = "int8",
    block: int = 32,
    symmetric: bool = True,
    skip: Sequence[str] = (),
    opset_version: int | None = None,
    inputs: Mapping[str, np.ndarray] | None = None,
    verify: bool = True,
    external_data: bool | None = None,
    progress: Progress | None = None,
) -> QuantizeResult:
    """Store the weights of any ONNX model as integers, and say what that costs.

    The network computes with floats as before: DequantizeLinear makes them of the integers, and ONNX Runtime multiplies
    with 4 bits as they are. The file is proven equal to the original with the same rounded weights.

    Example::

        result = tonnx.quantize("model.onnx", "model-int4.onnx", to="int4", block=64)
        print(result)

    Args:
        model: a path, the file's bytes, an ``onnx.ModelProto`` or an onnx-ir model. It is not changed.
        f: where to write; None writes nothing.
        to: ``int8`` or ``int4``. Tables that rows are gathered from have 8 bits in both; convolutions stay floats in
            ``int4``.
        block: how many numbers share a scale, along the axis that is summed over; 0: all of them. Convolutions have one
            scale for each channel.
        symmetric: False adds a zero point to each scale: closer for weights that lean to one side.
        skip: patterns such as ``lm_head*``, of the names of weights or nodes that stay floats.
        opset_version: of the file; that of the original by default. Blocks and 4 bits are written out before 21, where
            4 bits take the space of 8.
        inputs: arrays by input name for the proof and the loss; random ones that fit the input types otherwise.
        verify: run the file beside the original with rounded weights, and that beside the original as it is.
        external_data: True writes the weights to ``<f>.data``; None keeps one file below 2 GiB.
        progress: called with the name of each stage as it begins.
    """
    form = _form(to, block, symmetric)
    check_options(f, external_data, None, None)
    patterns = [skip] if isinstance(skip, str) else list(skip)
    stages = Stages(progress)
    with reading.blaming(model):
        with stages("read"):
            read = reading.reader(model)
            original = read()
        _check_floats(original)
        arrays = dict(inputs or {})
        check_fit(Signature({str(value.name): value for value in original.graph.inputs}, []), arrays)
        target = Target(original.opset_imports[""] if opset_version is None else opset_version)
        result = QuantizeResult(original, target.opset, notes=untested(), to=to)
        result.before = _weight_bytes(original)
        rounded = read()
        with stages("quantise"):
            _store(result, form, patterns, target)
            _round_weights(rounded, result.layers)
        provenance.stamp(result.model)
        subject = None
        if verify:
            subject = file_subject(rounded, rounded.clone, result, arrays)
            if subject.reference is not None:
                with stages("compare"):
                    _measure(result, read(), subject)
        deliver(result, f, stages, subject, external_data=external_data, runtime=None)
        result.timings = stages.seconds
        return result


def _form(to: str, block: int, symmetric: bool) -> Form:
    if to not in FORMS:
        raise InvalidArgument(f"to must be {' or '.join(FORMS)}, not {to!r}")
    if isinstance(block, bool) or not isinstance(block, int) or (block and (block < 16 or block & (block - 1))):
        raise InvalidArgument(f"block must be a power of two from 16, or 0, not {block!r}")
    return Form(FORMS[to], block, symmetric)


def _check_floats(model: ir.Model) -> None:
    counts = Counter(node.op_type for node in model.graph.all_nodes())
    if quantised := [name for name in _QUANTISED if counts[name]]:
        raise InvalidArgument(f"the file is quantised already: it has {quantised[0]}", hint="begin with the float file")


def _weight_bytes(model: ir.Model) -> int:
    return sum(value.const_value.nbytes for value in model.graph.initializers.values() if value.const_value is not None)


def _store(result: QuantizeResult, form: Form, skip: Sequence[str], target: Target) -> None:
    model = result.model
    result.notes += reading.infer(model)
    provenance.remember(model)
    legalise(model, Target(CANON))
    result.layers = store_weights(model, form, skip)
    if not any(layer.stored is not None for layer in result.layers):
        reasons = "; ".join(f"{layer.name}: {layer.why}" for layer in result.layers[:4])
        raise InvalidArgument("there is no weight that could be stored so", why=reasons or "all of them are small")
    legalise(model, target)
    clean_up(model)
    dtypes = {value.dtype for value in model.graph.initializers.values()}
    if form.bits == 4 and not dtypes & {ir.DataType.INT4, ir.DataType.UINT4}:
        result.notes.append(f"4 bits take the space of 8 at this opset; ONNX has them from {SINCE} on")
    result.after = _weight_bytes(model)


def _round_weights(model: ir.Model, layers: Sequence[Layer]) -> None:
    """The original, with floats that the integers stand for."""
    for layer in layers:
        if layer.stored is not None:
            value = model.graph.initializers[layer.name]
            value.const_value = ir.Tensor(layer.stored.floats(), name=layer.name)


def _measure(result: QuantizeResult, original: ir.Model, subject: Subject) -> None:
    """What is lost; and what ONNX Runtime loses beyond that, which rounds more than the file says by default."""
    wanted = Session(write.to_bytes(original)).run(dict(subject.example))
    result.losses = _losses(wanted, subject.expected(subject.example))
    as_run = _losses(wanted, Session(write.to_bytes(result.model), exact=False).run(dict(subject.example)))
    if further := [run for told, run in zip(result.losses, as_run, strict=True) if run.is_worse_than(told)]:
        worst = min(further, key=lambda loss: loss.signal_to_noise)
        result.notes.append(
            f"[!] ONNX Runtime rounds activations to 8 bits where it multiplies by these weights: {worst}; not with "
            "session.qdq_matmulnbits_accuracy_level=1"
        )


def _losses(wanted: Mapping[str, np.ndarray], results: Mapping[str, np.ndarray]) -> list[Loss]:
    losses = []
    for name, array in wanted.items():
        if array.dtype.kind != "f" or name not in results or array.shape != results[name].shape or not array.size:
            continue
        original = array.astype(np.float64)
        error = results[name].astype(np.float64) - original
        noise, signal = float(np.square(error).sum()), float(np.square(original).sum())
        decibels = 10 * np.log10(signal / noise) if noise and signal else float("inf")
        losses.append(Loss(name, float(np.abs(error).max()), float(np.abs(original).max()), float(decibels)))
    return losses
