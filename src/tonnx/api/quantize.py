"""Any ONNX file with smaller numbers: ``tonnx.quantize``. Needs neither torch nor paddle.

1. Weights alone as integers, in blocks (`tonnx.quant.weights`).
2. With data, layers that multiply integers (`tonnx.api.calibrated`).
3. Half precision (`tonnx.api.halved`).
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, BinaryIO

import numpy as np
import onnx
import onnx_ir as ir

from tonnx.api.arguments import QUANTIZE, documented
from tonnx.api.calibrated import AUTO, Calibration, calibrate, finished, model_of, prepared, weight_bytes
from tonnx.api.deliver import FEW_VALUES, add_page, deliver
from tonnx.api.halved import half_subject, halve
from tonnx.api.quantize_result import QuantizeResult, joined, losses_between
from tonnx.api.request import check_options
from tonnx.api.retarget import file_subject
from tonnx.errors import InvalidArgument
from tonnx.io import read as reading
from tonnx.io import write
from tonnx.ir import provenance
from tonnx.ir.target import CANON, ORT, ORT_CPU, Target
from tonnx.legalise import legalise
from tonnx.passes import clean_up, fit_blocks, fitted
from tonnx.proof.judge import run_of
from tonnx.proof.session import Session
from tonnx.proof.signature import Signature, check_fit
from tonnx.proof.subject import Subject
from tonnx.quant.dynamic import KINDS as DYNAMIC_KINDS
from tonnx.quant.dynamic import write_dynamic
from tonnx.quant.half import HALVES
from tonnx.quant.integers import Form
from tonnx.quant.layers import candidates, matched
from tonnx.quant.moments import Moments
from tonnx.quant.observe import Feeds, Run
from tonnx.quant.weights import ROUNDINGS, SINCE, Layer, store_weights
from tonnx.reporting.quantised import Quantised
from tonnx.run.samples import samples as samples_of
from tonnx.stages import Progress, Stages
from tonnx.versions import untested

SINCE_DYNAMIC = 11
"""The first opset that has DynamicQuantizeLinear."""
_OF_FOUR_BITS = {ir.DataType.INT4, ir.DataType.UINT4}
FORMS = {"int8": 8, "int4": 4}
"""What weights may be stored as: the bits of an integer."""
_QUANTISED = ("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", "QLinearConv", "QLinearMatMul",
              "MatMulInteger", "ConvInteger", "MatMulNBits")  # fmt: skip


@documented(QUANTIZE)
def quantize(
    model: str | os.PathLike[str] | bytes | onnx.ModelProto | ir.Model,
    f: str | os.PathLike[str] | BinaryIO | None = None,
    *,
    to: str = "int8",
    block: int = 32,
    symmetric: bool = True,
    skip: Sequence[str] = (),
    rounding: str = AUTO,
    data: Any = None,
    recipe: Any = None,
    samples: int | None = None,
    method: str = AUTO,
    percentile: float = 99.99,
    activations: int | str = 8,
    max_loss: float | None = None,
    metric: Callable[[Run], float] | None = None,
    correct_bias: bool = True,
    equalise: bool = False,
    smooth: float | None = None,
    keep_io: bool = False,
    opset_version: int | None = None,
    runtime: str | None = ORT_CPU,
    inputs: Mapping[str, np.ndarray] | None = None,
    verify: bool = True,
    external_data: bool | None = None,
    report: bool | str | os.PathLike[str] = False,
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
    """
    return _run(_Request(**locals()))


@dataclass(frozen=True)
class _Request:
    """All that was asked for, as `quantize` takes it."""

    model: Any
    f: Any
    to: str
    block: int
    symmetric: bool
    skip: Sequence[str]
    rounding: str
    data: Any
    recipe: Any
    samples: int | None
    method: str
    percentile: float
    activations: int | str
    max_loss: float | None
    metric: Callable[[Run], float] | None
    correct_bias: bool
    equalise: bool
    smooth: float | None
    keep_io: bool
    opset_version: int | None
    runtime: str | None
    inputs: Mapping[str, np.ndarray] | None
    verify: bool
    external_data: bool | None
    report: bool | str | os.PathLike[str]
    progress: Progress | None

    @property
    def patterns(self) -> list[str]:
        return [self.skip] if isinstance(self.skip, str) else list(self.skip)

    @property
    def of_integers(self) -> dict[str, Any]:
        """What was said of layers that multiply integers; None where nothing was."""
        return {
            "max_loss": self.max_loss, "metric": self.metric, "equalise": self.equalise or None, "smooth": self.smooth,
            "method": None if self.method == AUTO else self.method,
            "activations": None if self.activations == 8 else self.activations,
        }  # fmt: skip

    def feeds(self, model: ir.Model) -> Iterator[dict[str, np.ndarray]]:
        """The data, as what the model takes."""
        return samples_of(model_of(model, self.recipe), self.data, self.samples)


def _run(asked: _Request) -> QuantizeResult:
    way = _way(asked)
    check_options(asked.f, asked.external_data, None, None, asked.report)
    stages, inputs = Stages(asked.progress), dict(asked.inputs or {})
    with reading.blaming(asked.model):
        with stages("read"):
            read = reading.reader(asked.model)
            original = read()
        _check_floats(original)
        check_fit(Signature({str(value.name): value for value in original.graph.inputs}, []), inputs)
        _check_numbers(inputs)
        opset = original.opset_imports[""] if asked.opset_version is None else asked.opset_version
        target = Target(opset, way.runtime)
        result = QuantizeResult(original, target.opset, notes=untested(), to=asked.to)
        result.before = weight_bytes(original)
        subject_of = way.quantise(_Job(asked, read, result, target, inputs, stages))
        result.after = weight_bytes(result.model)
        provenance.stamp(result.model)
        subject = subject_of() if asked.verify else None
        if subject is not None and subject.reference is not None:
            with stages("compare"):
                _measure(result, read(), subject)
        deliver(result, asked.f, stages, subject, external_data=asked.external_data, runtime=way.runtime,
                values=way.values)  # fmt: skip
        result.timings = stages.seconds
        if asked.report:
            add_page(result, asked.report, quantised=_looked_at(result, read, inputs))
        return result


def _check_numbers(inputs: Mapping[str, np.ndarray]) -> None:
    """Infinite ones are what masks have."""
    for name, array in inputs.items():
        if array.dtype.kind == "f" and np.isnan(array).any():
            raise InvalidArgument(f"the inputs have NaN for {name}", hint="what is lost is measured on them")


def _looked_at(result: QuantizeResult, read: Callable[[], ir.Model], inputs: Mapping[str, np.ndarray]) -> Quantised:
    """What a page needs to know besides the file."""
    calibrated = result.calibrated
    samples = [inputs] if calibrated is None and inputs else [] if calibrated is None else calibrated.kept
    curve = [] if calibrated is None else calibrated.data()["curve"]
    return Quantised(read(), samples, curve, {layer.name: layer.why for layer in result.layers if layer.why})


def _way(asked: _Request) -> _Way:
    """How the numbers become smaller; what was asked for has to go together."""
    if asked.activations == "dynamic" and (asked.to != "int8" or asked.data is not None):
        raise InvalidArgument("dynamic activations take to='int8' and no data")
    if asked.samples is not None and asked.samples < 1:
        raise InvalidArgument(f"samples must be at least 1, not {asked.samples}")
    if asked.to in HALVES:
        _check_half(asked)
        return _Way(_half, values=False)
    form, rounding = _form(asked.to, asked.block, asked.symmetric), _rounding(asked)
    if asked.activations == "dynamic":
        return _Way(_dynamic, asked.runtime)
    if asked.data is None or rounding is not None:
        _check_weights_alone(asked)
        runtime = asked.runtime if asked.runtime == ORT else None  # its own operators; else the file is for anybody
        return _Way(partial(_weights, form=form, by_data=rounding == "gptq"), runtime)
    if asked.activations not in (8, 16):
        raise InvalidArgument(f"activations have 8 or 16 bits, or are dynamic, not {asked.activations!r}")
    how = Calibration(
        asked.method, asked.percentile, int(asked.activations), asked.max_loss, asked.metric, asked.correct_bias,
        asked.equalise, asked.smooth,
    )  # fmt: skip
    return _Way(partial(_static, how=how), asked.runtime)


def _rounding(asked: _Request) -> str | None:
    """How weights alone are rounded; None where layers multiply integers."""
    if asked.rounding not in (AUTO, *ROUNDINGS):
        raise InvalidArgument(f"rounding must be {AUTO}, {' or '.join(ROUNDINGS)}, not {asked.rounding!r}")
    if asked.rounding == "nearest" and asked.data is not None:
        raise InvalidArgument("rounding to the nearest needs no data", hint="rounding='gptq' uses them")
    if asked.rounding == "gptq" and asked.data is None:
        raise InvalidArgument("rounding='gptq' needs data", hint="data= (--data) takes samples to calibrate with")
    if asked.rounding == AUTO:
        return None if asked.to == "int8" and asked.data is not None else "nearest" if asked.data is None else "gptq"
    return asked.rounding


def _check_weights_alone(asked: _Request) -> None:
    """Nothing that is said of activations, which stay floats."""
    samples = {"samples": None if asked.data is not None else asked.samples}
    for name, value in (asked.of_integers | samples).items():
        if value is not None and asked.data is None:
            raise InvalidArgument(f"{name} needs data", hint="data= (--data) takes samples to calibrate with")
        if value is not None:
            raise InvalidArgument(f"{name} is of layers that multiply integers, and here only weights are integers",
                                  hint="to='int8' without rounding=")  # fmt: skip


def _check_half(asked: _Request) -> None:
    """Nothing that is said of integers, which there are none of."""
    of_weights = {"block": None if asked.block == 32 else asked.block, "symmetric": None if asked.symmetric else False,
                  "rounding": None if asked.rounding == AUTO else asked.rounding}  # fmt: skip
    for name, value in (asked.of_integers | of_weights).items():
        if value is not None:
            raise InvalidArgument(f"{name} is of integers, and {asked.to} has none", hint="leave it out, or to='int8'")


@dataclass(frozen=True)
class _Job:
    """A model that was read, what is asked of it, and the result that is to be filled."""

    asked: _Request
    read: Callable[[], ir.Model]
    result: QuantizeResult
    target: Target
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


def _weights(job: _Job, form: Form, by_data: bool) -> Callable[[], Subject]:
    rounded, result = job.read(), job.result
    with job.stages("quantise"):
        batches = list(job.asked.feeds(result.model)) if by_data else []
        _store(result, form, job.asked.patterns, job.target, batches)
        _round_weights(rounded, result.layers)
    return partial(file_subject, rounded, rounded.clone, result, job.inputs or (batches[0] if batches else {}))


def _static(job: _Job, how: Calibration) -> Callable[[], Subject]:
    """Layers that multiply integers, in ranges that are found on data."""
    result = job.result
    with job.stages("calibrate"):
        result.notes += prepared(result.model)
        samples = job.asked.feeds(result.model)
        calibrated = calibrate(result.model, job.read, samples, how, job.asked.patterns, job.target)
        result.model, result.calibrated = calibrated.model, calibrated
        result.notes += calibrated.notes
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
        skipped = matched(job.asked.patterns, layers)
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


def _half(job: _Job) -> Callable[[], Subject]:
    """Half precision, but for what overflows or loses too much in it."""
    result, asked = job.result, job.asked
    floats = file_subject(asked.model, job.read, result, job.inputs)
    if floats.reference is None:
        raise InvalidArgument("half precision is emulated in ONNX Runtime, which does not run it", why=result.not_run)
    with job.stages("emulate"):
        feeds = _like(floats.example) if asked.data is None else asked.feeds(result.model)
        result.halved = halve(result.model, asked.to, feeds, asked.patterns, job.target, asked.keep_io)
        result.notes += result.halved.notes
    return partial(half_subject, floats, result.halved, asked.to)


def _like(example: Mapping[str, np.ndarray]) -> Iterator[Mapping[str, np.ndarray]]:
    """The example, and some with its numbers at other places."""
    rng = np.random.default_rng(1)
    yield example
    for _ in range(3):
        yield {name: rng.permutation(array.reshape(-1)).reshape(array.shape) for name, array in example.items()}


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


def _store(result: QuantizeResult, form: Form, skip: Sequence[str], target: Target, batches: Sequence[Feeds]) -> None:
    model = result.model
    result.notes += reading.infer(model)
    provenance.remember(model)
    legalise(model, Target(CANON))
    moments = Moments(model.clone(), batches, run_of) if batches else None
    result.layers = store_weights(model, form, skip, moments)
    if not any(layer.stored is not None for layer in result.layers):
        reasons = "; ".join(f"{layer.name}: {layer.why}" for layer in result.layers[:4])
        raise InvalidArgument("there is no weight that could be stored so", why=reasons or "all of them are small")
    result.notes += fit_blocks(model, target.runtime)
    legalise(model, target)
    clean_up(model)
    own = {value for node in model.graph if node.op_type == "MatMulNBits" for value in node.inputs}  # bytes of two each
    dtypes = {value.dtype for value in model.graph.initializers.values() if value not in own}
    if form.bits == 4 and dtypes & {ir.DataType.INT8, ir.DataType.UINT8} and not dtypes & _OF_FOUR_BITS:
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
        result.losses = losses_between(wanted, Session(write.to_bytes(twin)).run(dict(subject.example)))
        return
    if calibrated is not None:
        run = Session(write.to_bytes(result.model)).run
        result.losses = losses_between(joined(calibrated.wanted), joined([run(feeds) for feeds in calibrated.kept]))
        return
    wanted = Session(write.to_bytes(original)).run(dict(subject.example))
    result.losses = losses_between(wanted, subject.expected(subject.example))
    as_run = losses_between(wanted, Session(write.to_bytes(result.model), exact=False).run(dict(subject.example)))
    if further := [run for told, run in zip(result.losses, as_run, strict=True) if run.is_worse_than(told)]:
        worst = min(further, key=lambda loss: loss.signal_to_noise)
        result.notes.append(
            f"[!] ONNX Runtime rounds activations to 8 bits where it multiplies by these weights: {worst}; not with "
            "session.qdq_matmulnbits_accuracy_level=1"
        )
