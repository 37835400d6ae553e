"""Any ONNX file with smaller numbers: ``tonnx.quantize``. Needs neither torch nor paddle.

1. Weights alone as integers, in blocks (`tonnx.quant.weights`).
2. With data, layers that multiply integers (`tonnx.api.calibrated`).
3. Half precision (`tonnx.api.halved`).
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, BinaryIO

import numpy as np
import onnx
import onnx_ir as ir

from tonnx.api.calibrated import AUTO, Calibrated, Calibration, calibrate, finished, model_of, prepared, weight_bytes
from tonnx.api.deliver import FEW_VALUES, deliver
from tonnx.api.halved import Halved, half_subject, halve
from tonnx.api.request import check_options
from tonnx.api.result import Result, format_size
from tonnx.api.retarget import file_subject
from tonnx.errors import InvalidArgument
from tonnx.io import read as reading
from tonnx.io import write
from tonnx.ir import provenance
from tonnx.ir.target import CANON, ORT_CPU, Target
from tonnx.legalise import legalise
from tonnx.passes import clean_up, fitted
from tonnx.proof import Session
from tonnx.proof.signature import Signature, check_fit, signature_lines
from tonnx.proof.subject import Subject
from tonnx.quant.dynamic import KINDS as DYNAMIC_KINDS
from tonnx.quant.dynamic import write_dynamic
from tonnx.quant.half import HALVES
from tonnx.quant.integers import Form
from tonnx.quant.layers import candidates, matched
from tonnx.quant.weights import SINCE, Layer, store_weights
from tonnx.run.samples import samples as samples_of
from tonnx.stages import Progress, Stages
from tonnx.versions import untested

SINCE_DYNAMIC = 11
"""The first opset that has DynamicQuantizeLinear."""
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
    calibrated: Calibrated | None = None
    """What is known of layers that multiply integers: ranges, what was measured, which stay floats."""
    halved: Halved | None = None
    """What is known of a network in half precision: which nodes stay in float32, and why."""

    def __str__(self) -> str:
        stored = [layer for layer in self.layers if layer.stored is not None]
        smaller = f"{len(stored)} weights" if self.halved is None else f"{self.halved.nodes} nodes"
        how = "" if self.calibrated is None else f" ({self.calibrated.method}, {self.calibrated.bits} bits)"
        lines = [
            f"{self.path or 'model'}: {smaller} as {self.to}{how}, opset {self.opset}"
            + (f", {format_size(self.size)}" if self.size else ""),
            f"  weights: {format_size(self.before)} → {format_size(self.after)} "
            f"({self.after / max(self.before, 1):.2f})",
        ]
        lines += signature_lines(self.model)
        lines += [f"  stays a float: {layer.name}: {layer.why}" for layer in self.layers if layer.stored is None]
        lines += [] if self.halved is None else [f"  stays float32: {n}: {w}" for n, w in self.halved.floats.items()]
        lines += [] if self.calibrated is None else [f"  {line}" for line in self.calibrated.lines()]
        lines += [f"  beside the original: {loss}" for loss in self.losses]
        lines += [f"  {note}" for note in self.notes]
        if self.verification is not None:
            if self.halved is None:
                same = "original with the same rounded weights" if self.calibrated is None else "same steps in floats"
                lines.append(f"  beside the {same}:")
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
            "float32": None if self.halved is None else self.halved.floats,
            "calibration": None if self.calibrated is None else self.calibrated.data(),
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
    data: Any = None,
    recipe: Any = None,
    samples: int | None = None,
    method: str = AUTO,
    percentile: float = 99.99,
    activations: int | str = 8,
    max_loss: float | None = None,
    metric: Callable[[Callable[[Mapping[str, np.ndarray]], dict[str, np.ndarray]]], float] | None = None,
    correct_bias: bool = True,
    keep_io: bool = False,
    opset_version: int | None = None,
    runtime: str | None = ORT_CPU,
    inputs: Mapping[str, np.ndarray] | None = None,
    verify: bool = True,
    external_data: bool | None = None,
    progress: Progress | None = None,
) -> QuantizeResult:
    """Make the numbers of any ONNX model smaller, and say what that costs.

    Without data, weights are stored as integers and the network computes with floats as before: DequantizeLinear makes
    them of the integers, and ONNX Runtime multiplies with 4 bits as they are. With data, layers multiply integers: what
    goes into them is rounded, in ranges that are found on the data. The file is proven equal to the original with the
    same rounded numbers.

    Example::

        result = tonnx.quantize("model.onnx", "model-int4.onnx", to="int4", block=64)
        result = tonnx.quantize("model.onnx", "model-int8.onnx", data="photos/", recipe="imagenet", max_loss=0.02)
        print(result)

    Args:
        model: a path, the file's bytes, an ``onnx.ModelProto`` or an onnx-ir model. It is not changed.
        f: where to write; None writes nothing.
        to: ``int8``, ``int4``, ``fp16`` or ``bf16``. Tables that rows are gathered from have 8 bits in both kinds of
            integers; convolutions stay floats in ``int4``. Nodes that overflow or lose too much in half precision are
            found by emulation, on the data or on drawn inputs, and stay in float32.
        block: how many numbers share a scale, along the axis that is summed over; 0: all of them. Convolutions have one
            scale for each channel.
        symmetric: False adds a zero point to each scale: closer for weights that lean to one side.
        skip: patterns such as ``lm_head*``, of the names of weights or nodes that stay floats.
        data: samples to calibrate with: paths of pictures, ``.npy`` or ``.npz`` files, or folders of them; or an
            iterable of arrays, tuples of arrays, or dicts of arrays by input name. Layers multiply int8 then.
        recipe: how pictures become what the network takes, as in `tonnx.load`.
        samples: how many rows of the data are looked at; all of them by default.
        method: how ranges are chosen: ``mse``, ``minmax``, ``percentile``, ``entropy``; ``auto`` takes
            ``minmax``, or ``mse`` where that has half the error of the outputs or less.
        percentile: the share of values within the range that ``percentile`` chooses.
        activations: bits of what layers multiply by their weights, 8 or 16; 16 need opset 21. ``dynamic``: products
            round to 8 bits in a range that is found anew each time, without data.
        max_loss: the layers that cost most stay floats until the error of the outputs, by their magnitude, is at most
            this: 0.01 is 40 dB. With ``metric``: by how much that may fall.
        metric: the user's own measure, larger is better: called with a function that runs the network on a dict of
            arrays and gives a dict of arrays.
        opset_version: of the file; that of the original by default. Blocks and 4 bits are written out before 21, where
            4 bits take the space of 8.
        correct_bias: biases make up for what rounded weights change of the means of a layer's results.
        keep_io: of half precision: inputs and outputs stay float32.
        runtime: of networks that multiply integers: ``ort-cpu`` fits the file to ONNX Runtime's CPU, where activations
            are uint8; None keeps int8, which TensorRT and QNN want.
        inputs: arrays by input name for the proof and the loss; random ones that fit the input types otherwise.
        verify: run the file beside the original with rounded weights, and that beside the original as it is.
        external_data: True writes the weights to ``<f>.data``; None keeps one file below 2 GiB.
        progress: called with the name of each stage as it begins.
    """
    if activations == "dynamic" and (to != "int8" or data is not None):
        raise InvalidArgument("dynamic activations take to='int8' and no data")
    if to in HALVES:
        way = _Way(partial(_half, data=data, recipe=recipe, samples=samples, keep_io=keep_io), values=False)
    else:
        form = _form(to, block, symmetric)
        calibration = _calibration(to, data, method, percentile, activations, samples, max_loss, metric, correct_bias)
        if activations == "dynamic":
            way = _Way(_dynamic, runtime)
        elif calibration is not None:
            way = _Way(partial(_static, how=calibration, recipe=recipe), runtime)
        else:
            way = _Way(partial(_weights, form=form))
    check_options(f, external_data, None, None)
    stages = Stages(progress)
    with reading.blaming(model):
        with stages("read"):
            read = reading.reader(model)
            original = read()
        _check_floats(original)
        check_fit(Signature({str(value.name): value for value in original.graph.inputs}, []), dict(inputs or {}))
        target = Target(original.opset_imports[""] if opset_version is None else opset_version, way.runtime)
        result = QuantizeResult(original, target.opset, notes=untested(), to=to)
        result.before = weight_bytes(original)
        patterns = [skip] if isinstance(skip, str) else list(skip)
        subject_of = way.quantise(_Job(model, read, result, target, patterns, dict(inputs or {}), stages))
        result.after = weight_bytes(result.model)
        provenance.stamp(result.model)
        subject = subject_of() if verify else None
        if subject is not None and subject.reference is not None:
            with stages("compare"):
                _measure(result, read(), subject)
        deliver(result, f, stages, subject, external_data=external_data, runtime=way.runtime, values=way.values)
        result.timings = stages.seconds
        return result


@dataclass(frozen=True)
class _Job:
    """A model that was read, what is asked of it, and the result that is to be filled."""

    model: Any
    """As the user gave it."""
    read: Callable[[], ir.Model]
    result: QuantizeResult
    target: Target
    skip: Sequence[str]
    inputs: dict[str, np.ndarray]
    stages: Stages


@dataclass(frozen=True)
class _Way:
    """One kind of smaller numbers."""

    quantise: Callable[[_Job], Callable[[], Subject]]
    """Fills the result, and gives what makes the model that its file is compared with."""
    runtime: str | None = None
    """The runtime that the file is fitted to."""
    values: bool | int = FEW_VALUES
    """Other draws that the proof tries; none of half precision, where they may overflow and those at hand do not."""


def _weights(job: _Job, form: Form) -> Callable[[], Subject]:
    """Weights alone as integers."""
    rounded = job.read()
    with job.stages("quantise"):
        _store(job.result, form, job.skip, job.target)
        _round_weights(rounded, job.result.layers)
    return partial(file_subject, rounded, rounded.clone, job.result, job.inputs)


def _calibration(
    to: str,
    data: Any,
    method: str,
    percentile: float,
    bits: Any,
    samples: int | None,
    max_loss: Any,
    metric: Any,
    correct_bias: bool,
) -> Calibration | None:
    """How to calibrate; None where nothing is."""
    if bits == "dynamic":
        return None
    if data is None:
        asked = {"max_loss": max_loss, "metric": metric, "samples": samples}
        asked |= {"method": None if method == AUTO else method, "activations": None if bits == 8 else bits}
        for name, value in asked.items():
            if value is not None:
                raise InvalidArgument(f"{name} needs data", hint="data= (--data) takes samples to calibrate with")
        return None
    if to != "int8":
        raise InvalidArgument(f"to={to!r} takes no data", hint="layers multiply int8; weights alone may be int4")
    if bits not in (8, 16):
        raise InvalidArgument(f"activations have 8 or 16 bits, or are dynamic, not {bits!r}")
    if samples is not None and samples < 1:
        raise InvalidArgument(f"samples must be at least 1, not {samples}")
    return Calibration(data, method, percentile, bits, samples, max_loss, metric, correct_bias=correct_bias)


def _static(job: _Job, how: Calibration, recipe: Any) -> Callable[[], Subject]:
    """Layers that multiply integers, in ranges that are found on data."""
    result = job.result
    with job.stages("calibrate"):
        result.notes += prepared(result.model)
        calibrated = calibrate(result.model, job.read, how, job.skip, job.target, recipe)
        result.model, result.calibrated = calibrated.model, calibrated
        result.layers = [Layer(layer.weight, (), layer.stored) for layer in calibrated.layers]
        result.layers += [Layer(name, (), None, why) for name, why in calibrated.floats.items()]
        result.notes += finished(result.model, job.target)
    return partial(_in_floats, result, job.inputs or dict(calibrated.kept[0]))


def _dynamic(job: _Job) -> Callable[[], Subject]:
    """Products that multiply integers, in ranges that each run finds."""
    result, opset = job.result, job.target.opset
    if opset < SINCE_DYNAMIC:
        raise InvalidArgument(f"dynamic activations need opset {SINCE_DYNAMIC}, not {opset}")
    with job.stages("quantise"):
        result.notes += prepared(result.model)
        layers = candidates(result.model)
        skipped = matched(job.skip, layers)
        floats = {layer.name: layer.why for layer in layers}
        floats |= {name: f"left out by {pattern}" for name, pattern in skipped.items()}
        floats |= {layer.name: "only products are" for layer in layers if layer.node.op_type not in DYNAMIC_KINDS}
        stored = write_dynamic(result.model, {name for name, why in floats.items() if not why})
        if not stored:
            raise InvalidArgument("there is no product that could multiply integers")
        result.layers = [Layer(name, (), weight) for name, weight in stored.items()]
        result.layers += [Layer(name, (), None, why) for name, why in floats.items() if why]
        result.notes += finished(result.model, job.target)
    return partial(_in_floats, result, job.inputs)


def _in_floats(result: QuantizeResult, arrays: Mapping[str, np.ndarray]) -> Subject:
    """What integer kernels have to come to: the same file node by node, where every layer multiplies floats."""
    model = result.model
    subject = file_subject(model, model.clone, result, arrays)
    if subject.reference is None:
        return subject
    session = Session(write.to_bytes(model), optimised=False)

    def reference(feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
        outputs = session.run(feeds)
        return [outputs[name] for name in subject.outputs]

    return replace(subject, reference=reference, release=None)


def _samples(
    read: Callable[[], ir.Model], data: Any, recipe: Any, limit: int | None
) -> Callable[[Mapping[str, np.ndarray]], Iterable[Mapping[str, np.ndarray]]]:
    """What to emulate on: the data, or the example and some like it."""

    def drawn(example: Mapping[str, np.ndarray]) -> Iterable[Mapping[str, np.ndarray]]:
        if data is not None:
            yield from samples_of(model_of(read(), recipe), data, limit)
            return
        rng = np.random.default_rng(1)
        yield example
        for _ in range(3):
            yield {name: rng.permutation(array.reshape(-1)).reshape(array.shape) for name, array in example.items()}

    return drawn


def _half(job: _Job, data: Any, recipe: Any, samples: int | None, keep_io: bool) -> Callable[[], Subject]:
    """Half precision, but for what overflows or loses too much in it."""
    result = job.result
    floats = file_subject(job.model, job.read, result, job.inputs)
    if floats.reference is None:
        raise InvalidArgument("half precision is emulated in ONNX Runtime, which does not run it", why=result.not_run)
    with job.stages("emulate"):
        drawn = _samples(job.read, data, recipe, samples)(floats.example)
        result.halved = halve(result.model, result.to, drawn, job.skip, job.target, keep_io)
        result.notes += result.halved.notes
    return partial(half_subject, floats, result.model, result.to)


def _form(to: str, block: int, symmetric: bool) -> Form:
    if to not in FORMS:
        raise InvalidArgument(f"to must be {', '.join(FORMS)}, {' or '.join(HALVES)}, not {to!r}")
    if isinstance(block, bool) or not isinstance(block, int) or (block and (block < 16 or block & (block - 1))):
        raise InvalidArgument(f"block must be a power of two from 16, or 0, not {block!r}")
    return Form(FORMS[to], block, symmetric)


def _check_floats(model: ir.Model) -> None:
    counts = Counter(node.op_type for node in model.graph.all_nodes())
    if quantised := [name for name in _QUANTISED if counts[name]]:
        raise InvalidArgument(f"the file is quantised already: it has {quantised[0]}", hint="begin with the float file")


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


def _round_weights(model: ir.Model, layers: Sequence[Layer]) -> None:
    """The original, with floats that the integers stand for."""
    for layer in layers:
        if layer.stored is not None:
            value = model.graph.initializers[layer.name]
            value.const_value = ir.Tensor(layer.stored.floats(), name=layer.name)


def _measure(result: QuantizeResult, original: ir.Model, subject: Subject) -> None:
    """What is lost; and what ONNX Runtime loses beyond that, which rounds more than the file says by default."""
    calibrated = result.calibrated
    if result.halved is not None:
        dtypes = {str(value.name): value.dtype.numpy() for value in original.graph.inputs if value.dtype is not None}
        feeds = {name: array.astype(dtypes[name]) for name, array in subject.example.items()}
        wanted = Session(write.to_bytes(original)).run(feeds)
        twin = fitted(result.model, ORT_CPU) or result.model  # it has hardly any kernels for bfloat16
        result.losses = _losses(wanted, Session(write.to_bytes(twin)).run(dict(subject.example)))
        return
    if calibrated is not None:
        run = Session(write.to_bytes(result.model)).run
        result.losses = _losses(_joined(calibrated.wanted), _joined([run(feeds) for feeds in calibrated.kept]))
        return
    wanted = Session(write.to_bytes(original)).run(dict(subject.example))
    result.losses = _losses(wanted, subject.expected(subject.example))
    as_run = _losses(wanted, Session(write.to_bytes(result.model), exact=False).run(dict(subject.example)))
    if further := [run for told, run in zip(result.losses, as_run, strict=True) if run.is_worse_than(told)]:
        worst = min(further, key=lambda loss: loss.signal_to_noise)
        result.notes.append(
            f"[!] ONNX Runtime rounds activations to 8 bits where it multiplies by these weights: {worst}; not with "
            "session.qdq_matmulnbits_accuracy_level=1"
        )


def _joined(outputs: Sequence[Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """The outputs of all samples as one array each."""
    return {name: np.concatenate([one[name].reshape(-1) for one in outputs]) for name in outputs[0]}


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
