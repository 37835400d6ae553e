"""The public functions: options in, result out."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, BinaryIO

from tonnx.api.deliver import FEW_VALUES, deliver
from tonnx.api.intake import convert
from tonnx.api.request import ExportRequest, read_request
from tonnx.api.result import ExportResult
from tonnx.api.torch_compat import takes_positions
from tonnx.frontends.patching import exclusive
from tonnx.ir import facts
from tonnx.ir.history import History
from tonnx.ir.target import ORT_CPU
from tonnx.stages import Progress, Stages
from tonnx.versions import untested

if TYPE_CHECKING:
    import onnx_ir as ir

    from tonnx.passes import Optimised
    from tonnx.proof.subject import Subject

__all__ = ["export"]


@takes_positions
def export(
    model: Any,
    args: Any = (),
    f: str | os.PathLike[str] | BinaryIO | None = None,
    *,
    kwargs: Mapping[str, Any] | None = None,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    opset_version: int | None = None,
    dynamic_axes: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
    input_spec: Any = None,
    params: str | os.PathLike[str] | None = None,
    input_shapes: Mapping[str, Sequence[int | str | None]] | None = None,
    export_params: bool = True,
    do_constant_folding: bool = True,
    fuse_conv_bn: bool = True,
    keep_initializers_as_inputs: bool | None = False,
    training: Any = None,
    operator_export_type: Any = None,
    custom_opsets: Mapping[str, int] | None = None,
    custom_translation_table: Mapping[Any, Any] | None = None,
    capture: str = "auto",
    external_data: bool | None = None,
    recipe: Any = None,
    embed_preprocessing: bool = False,
    runtime: str | None = ORT_CPU,
    report: bool | str | os.PathLike[str] = False,
    verbose: bool = False,
    verify: bool = True,
    rtol: float | None = None,
    atol: float | None = None,
    progress: Progress | None = None,
    **classic: Any,
) -> ExportResult:
    """Export a model to ONNX at exactly ``opset_version``, and prove that the file computes what the model computes.

    Example::

        result = tonnx.export(model, (x,), "net.onnx", input_names=["input"], dynamic_axes={"input": {0: "batch"}})
        print(result)

        tonnx.export("inference.json", f="net.onnx", opset_version=11)  # a saved Paddle model; needs no paddle
        tonnx.export(layer, f="net.onnx", input_spec=[InputSpec([None, 784], "float32", "x")])  # a paddle.nn.Layer

    Args:
        model: a ``torch.nn.Module`` (in any mode; it is put back as it was), a ``torch.export.ExportedProgram``, a
            TorchScript module or function, the path of an archive of ``torch.jit.save`` or ``torch.export.save``, or
            the path of a saved Paddle model: ``inference.json``, ``inference.pdmodel``, or the folder of one.
        args: example inputs: a tensor, or a tuple that may nest lists, tuples and dicts; for a Paddle model arrays by
            input name, or nothing.
        f: a path, a binary file-like object, or None to write nothing.
        kwargs: example keyword inputs.
        input_names, output_names: names of the file's inputs and outputs, in order.
        opset_version: 1 to 26; 18 if not given. ONNX Runtime runs 7 and up.
        dynamic_axes: ``{"input": {0: "batch"}}`` or ``{"input": [0, 2]}``, for inputs and outputs.
        dynamic_shapes: the same as ``torch.export`` takes it; names as strings are allowed.
        input_spec: the inputs of a Paddle layer, as ``paddle.jit.save`` takes them; tensors in ``args`` do, too.
        params: the weights of a saved Paddle model, if they do not lie beside it.
        input_shapes: ``{"x": [1, 3, 48, 320]}`` fixes or names the dimensions of a Paddle model's inputs; -1 keeps one.
        export_params: False leaves the weights out: they become inputs.
        do_constant_folding: evaluate what depends on weights and constants only.
        fuse_conv_bn: fold batch normalisation into the convolution before it.
        keep_initializers_as_inputs: list the weights among the inputs too, as IR version 3 did.
        training: EVAL (the default), PRESERVE or TRAINING, as ``torch.onnx.TrainingMode`` or by name: the mode that the
            model is in. In training, dropout and batch normalisation are written as such.
        operator_export_type: what becomes of operators that cannot be exported, as ``torch.onnx.OperatorExportTypes``
            or by name. ONNX refuses them. ONNX_ATEN_FALLBACK makes nodes of the domain ``org.pytorch.aten`` of them,
            ONNX_ATEN of all PyTorch operators; no runtime runs such a file.
        custom_opsets: versions of the domains of custom operators, such as ``{"my.domain": 2}``; 1 if not given.
        custom_translation_table: ``{torch.ops.ns.op: function}``; see the page on custom operators, and `tonnx.lower`.
        capture: how a PyTorch model becomes a graph. ``auto``: by ``torch.export``; by ``torch.jit.script``, else
            ``torch.jit.trace``, where that does not do or scripted parts have branches. ``export``, ``script`` and
            ``trace`` force one; a forced trace keeps the one path that the example takes.
        external_data: True writes the weights to ``<f>.data``; None does so only above 2 GiB.
        recipe: what comes before and after the network, kept in the file for ``tonnx run``: a ready recipe's name, a
            TOML or YAML file, or a dict.
        embed_preprocessing: put the recipe's steps before the network into the file, which then takes uint8 pictures.
        runtime: whose gaps and habits the file works around: ``ort-cpu``, ONNX Runtime's CPU; or None, such as for
            TensorRT or QNN, which want int8 weights with zero point 0. The result says what was done.
        report: also write a page about the file: True beside it, or the path of the page. See `tonnx.report`.
        verbose: print the stages, the nodes and the result.
        verify: check, load and run the file, and compare it with the model, also at other sizes of every dynamic
            dimension. On a mismatch `VerificationFailed` is raised and the file is left as ``<f>.failed.onnx``.
        rtol, atol: tolerances; by default those of each output's dtype (float32: 1e-3 and 1e-5).
        progress: called with the name of each stage as it begins.
        classic: other arguments that ``torch.onnx.export`` has or had, such as ``dynamo``, ``strip_doc_string`` or
            ``use_external_data_format``. What has no meaning here is accepted, and answered in the result's notes.
            Arguments after ``f`` may also come by position, in the classic order.
    """
    return run(read_request(locals()))


def run(request: ExportRequest) -> ExportResult:
    """From the request to the proven file."""
    stages = Stages(request.progress or (print if request.verbose else None))
    with exclusive(partial(stages.announce, "wait")):
        return _run(request, stages)


def _run(request: ExportRequest, stages: Stages) -> ExportResult:
    converted = convert(request, stages)
    model, subject = converted.model, converted.subject.within(request.rtol, request.atol)
    if request.recipe is not None:
        subject = _with_recipe(model, subject, request)
    if not request.export_params:
        subject = _detach_weights(model, subject)
    optimised = _finish(model, request, stages)
    notes = [*request.notes, *_dress(model, request), *optimised.notes, *converted.notes, *_limits(subject)]
    notes += untested()
    result = ExportResult(
        model, request.target.opset, notes=notes, timings=stages.seconds, capture=converted.capture
    )
    # Where there are branches, the example takes one of them; a trace may even have left the others out.
    branches = converted.capture == "torch.jit.trace" or any(True for _ in model.graph.subgraphs())
    deliver(
        result,
        request.f,
        stages,
        subject if request.verify else None,
        external_data=request.external_data,
        runtime=request.target.runtime,
        values=branches or FEW_VALUES,
    )
    if request.report:
        _report(result, request.report)
    if request.verbose:
        print(result.listing(), result, sep="\n")
    return result


def _with_recipe(model: ir.Model, subject: Subject, request: ExportRequest) -> Subject:
    from tonnx.run.embed import embed, store

    assert request.recipe is not None
    if request.embed_preprocessing:
        return embed(model, subject, request.recipe, request.target)
    store(model, request.recipe)
    return subject


def _detach_weights(model: ir.Model, subject: Subject) -> Subject:
    """Weights become inputs. Before the passes run, or folding would write their values into the file after all."""
    graph = model.graph
    weights = {}
    for name, value in list(graph.initializers.items()):
        if value.const_value is not None and value in facts.WEIGHT:
            weights[name] = value.const_value.numpy()
            del graph.initializers[name]
            value.const_value = None
            graph.inputs.append(value)
    return replace(subject, example={**subject.example, **weights}, weights=tuple(weights))


def _finish(model: ir.Model, request: ExportRequest, stages: Stages) -> Optimised:
    from tonnx.ir.provenance import stamp
    from tonnx.legalise import legalise
    from tonnx.passes import clean_up, fit_integers, optimise

    free = request.may_change_weights
    history = History()
    history.record("lowered", model)
    with stages("optimise"):
        optimised = optimise(
            model,
            fold=request.do_constant_folding and free,
            fuse_conv_bn=request.fuse_conv_bn and free,
            share=free,
            runtime=request.target.runtime,
        )
    history.record("optimised", model)
    with stages("legalise"):
        legalise(model, request.target)
        optimised.notes += fit_integers(model, request.target.runtime)
        clean_up(model)
    stamp(model)
    history.store(model, optimised.notes)
    return optimised


def _dress(model: ir.Model, request: ExportRequest) -> list[str]:
    """What is not computation: domains, doc strings, weights among the inputs. Gives what the user should know."""
    from tonnx.ir.domains import complete, tell_source
    from tonnx.passes import list_initializers, list_statistics

    notes = complete(model, request.custom_opsets)
    if request.strip_doc_string is not None:
        tell_source(model, not request.strip_doc_string)
    if request.keep_initializers_as_inputs:
        list_initializers(model)
    elif request.training != "EVAL":
        list_statistics(model)
    return notes


def _limits(subject: Subject) -> list[str]:
    return [
        f"limits of {name}: {low} to {'any size' if high is None else high}"
        for name, (low, high) in subject.limits.items()
        if low > 1 or high is not None
    ]


def _report(result: ExportResult, wanted: bool | str | os.PathLike[str]) -> None:
    from tonnx.reporting import report

    assert result.path is not None
    page = report(
        result.path,
        None if wanted is True else os.fspath(wanted),  # type: ignore[arg-type]
        timings=result.timings,
        verification=result.verification,
    )
    result.notes.append(f"report: {page}")
