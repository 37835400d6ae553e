"""The public functions: options in, result out."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, BinaryIO

from tonnx.api.arguments import ARGUMENTS, documented
from tonnx.api.deliver import FEW_VALUES, add_page, deliver
from tonnx.api.intake import convert
from tonnx.api.request import ExportRequest, read_request
from tonnx.api.result import ExportResult
from tonnx.api.torch_compat import takes_positions
from tonnx.frontends.patching import exclusive
from tonnx.ir import facts
from tonnx.ir.history import History
from tonnx.ir.rewrite import full_collections_rare
from tonnx.ir.target import ORT_CPU
from tonnx.stages import Progress, Stages
from tonnx.versions import untested

if TYPE_CHECKING:
    import onnx_ir as ir

    from tonnx.passes import Optimised
    from tonnx.proof.subject import Subject

__all__ = ["export"]


@takes_positions
@documented(ARGUMENTS)
def export(
    model: Any,
    args: Any = (),
    f: str | os.PathLike[str] | BinaryIO | None = None,
    *,
    kwargs: Mapping[str, Any] | None = None,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    opset_version: int | None = None,
    target: str | None = None,
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
    weights: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] = "copy",
    recipe: Any = None,
    embed_preprocessing: bool = False,
    runtime: str | None = ORT_CPU,
    report: bool | str | os.PathLike[str] = False,
    verbose: bool = False,
    verify: bool | str | float = True,
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
    """
    return run(read_request(locals()))


def run(request: ExportRequest) -> ExportResult:
    """From the request to the proven file."""
    stages = Stages(request.progress or (print if request.verbose else None))
    with exclusive(partial(stages.announce, "wait")), full_collections_rare():
        return _run(request, stages)


def _run(request: ExportRequest, stages: Stages) -> ExportResult:
    from tonnx.io.reference import left_out, refer, summary
    from tonnx.proof.trials.budget import budget_of

    budget = budget_of(request.verify)
    converted = convert(request, stages)
    model, subject = converted.model, converted.subject.within(request.rtol, request.atol)
    if request.recipe is not None:
        subject = _with_recipe(model, subject, request)
    if not request.export_params:
        subject = _detach_weights(model, subject)
    if request.weights.stay:
        refer(model, request.weights.beside, request.weights.files)
    optimised = _finish(model, request, stages)
    if request.target.profile is not None and request.target.profile.int64 == "none":
        subject = subject.narrowed()
    notes = [*request.notes, *_dress(model, request), *optimised.notes, *converted.notes]
    notes += _limits(subject, proven=budget is not None)
    notes += [*summary(model), *left_out(model)] if request.weights.stay else []
    notes += untested()
    result = ExportResult(model, request.target.opset, notes=notes, timings=stages.seconds, capture=converted.capture)
    result.example = subject.example
    # Where there are branches, the example takes one of them; a trace may even have left the others out.
    branches = converted.capture == "torch.jit.trace" or any(True for _ in model.graph.subgraphs())
    deliver(
        result,
        request.f,
        stages,
        None if budget is None else subject,
        external_data=request.external_data,
        refer=request.weights.stay,
        runtime=request.target.runtime,
        values=branches or FEW_VALUES,
        budget=budget,
    )
    if request.report:
        add_page(result, request.report)
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
    from tonnx.legalise.conformity import require
    from tonnx.passes import clean_up, fit_opset, fit_profile, optimise
    from tonnx.quant.packed import keep_packed

    free = request.may_change_weights
    fold = request.do_constant_folding and free
    history = History()
    history.record("lowered", model)
    with stages("optimise"):
        if fold:
            keep_packed(model)  # before folding, which would undo it
        optimised = optimise(
            model,
            fold=fold,
            fuse_conv_bn=request.fuse_conv_bn and free,
            share=free,
            runtime=request.target.runtime,
            opset=request.target.opset,
        )
    history.record("optimised", model)
    with stages("legalise"):
        legalise(model, request.target)
        optimised.notes += fit_opset(model, request.target.runtime)
        optimised.notes += fit_profile(model, request.target.profile)
        clean_up(model, fold=fold)
        require(model, request.target)
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


def _limits(subject: Subject, proven: bool) -> list[str]:
    """The sizes that were asked for; and without a proof, which tries those beyond, the ones that the capture takes."""
    ranges = subject.limits if proven else {**subject.limits, **subject.assumed}
    why = "asked for" if proven else "asked for or assumed; no others were tried"
    return [
        f"limits of {name}: {low} to {'any size' if high is None else high}, {why}"
        for name, (low, high) in ranges.items()
        if low > 1 or high is not None
    ]
