"""The public functions: options in, result out."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO

from tonnx.classic import classic_arguments
from tonnx.deliver import Proof, check_options, deliver
from tonnx.errors import InvalidArgument, MissingDependency
from tonnx.result import ExportResult
from tonnx.stages import Progress, Stages
from tonnx.target import DEFAULT, Target

if TYPE_CHECKING:
    from tonnx.frontends.converted import Converted
    from tonnx.passes import Optimised

__all__ = ["export"]


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
    params: str | os.PathLike[str] | None = None,
    input_shapes: Mapping[str, Sequence[int | str | None]] | None = None,
    export_params: bool = True,
    do_constant_folding: bool = True,
    fuse_conv_bn: bool = True,
    keep_initializers_as_inputs: bool = False,
    external_data: bool | None = None,
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

    Args:
        model: a ``torch.nn.Module`` (in any mode; it is put back as it was), a ``torch.export.ExportedProgram``, or
            the path of a saved Paddle model: ``inference.json``, ``inference.pdmodel``, or the folder of one.
        args: example inputs: a tensor, or a tuple that may nest lists, tuples and dicts; for a Paddle model arrays by
            input name, or nothing.
        f: a path, a binary file-like object, or None to write nothing.
        kwargs: example keyword inputs.
        input_names, output_names: names of the file's inputs and outputs, in order.
        opset_version: 7 to 26; 18 if not given.
        dynamic_axes: ``{"input": {0: "batch"}}`` or ``{"input": [0, 2]}``, for inputs and outputs.
        dynamic_shapes: the same as ``torch.export`` takes it; names as strings are allowed.
        params: the weights of a Paddle model, if they do not lie beside it.
        input_shapes: ``{"x": [1, 3, 48, 320]}`` fixes or names the dimensions of a Paddle model's inputs; -1 keeps one.
        export_params: False leaves the weights out: they become inputs.
        do_constant_folding: evaluate what depends on weights and constants only.
        fuse_conv_bn: fold batch normalisation into the convolution before it.
        keep_initializers_as_inputs: list the weights among the inputs too, as IR version 3 did.
        external_data: True writes the weights to ``<f>.data``; None does so only above 2 GiB.
        verbose: print the stages and the result.
        verify: check, load and run the file, and compare it with the model, also at other sizes of every dynamic
            dimension. On a mismatch `VerificationFailed` is raised and the file is left as ``<f>.failed.onnx``.
        rtol, atol: tolerances; by default those of each output's dtype (float32: 1e-3 and 1e-5).
        progress: called with the name of each stage as it begins.
        classic: other arguments of ``torch.onnx.export``, such as ``dynamo``: what has no meaning here is accepted and
            noted in the result, what would change the file is refused.
    """
    target = Target(DEFAULT if opset_version is None else opset_version)
    if classic.pop("use_external_data_format", False):
        external_data = True
    classic_notes = classic_arguments(classic)
    check_options(f, external_data, rtol, atol)
    stages = Stages(progress or (print if verbose else None))
    names: dict[str, Any] = {"input_names": input_names, "output_names": output_names, "announce": stages.announce}
    shapes = {"dynamic_axes": dynamic_axes, "dynamic_shapes": dynamic_shapes}
    if isinstance(model, (str, os.PathLike)):
        _refuse("a saved Paddle model", {"kwargs": kwargs, **shapes}, "fix or name its dimensions with input_shapes")
        converted = _convert_paddle(model, args, params=params, input_shapes=input_shapes, compare=verify, **names)
    else:
        _refuse("a PyTorch model", {"params": params, "input_shapes": input_shapes}, "they are for saved Paddle models")
        converted = _convert(model, args, kwargs, **shapes, **names)
    stages.seconds.update(converted.timings)
    if not export_params:
        _detach_weights(converted)
    from tonnx.passes import list_initializers

    optimised = _finish(converted, target, stages, do_constant_folding, fuse_conv_bn)
    if keep_initializers_as_inputs:
        list_initializers(converted.model)
    notes = [*classic_notes, *optimised.notes, *converted.notes, *_limits(converted)]
    result = ExportResult(converted.model, target.opset, notes=notes, timings=stages.seconds)
    proof = None
    if verify:
        proof = Proof(converted.reference, converted.example, converted.dynamic, converted.limits, rtol, atol)
    deliver(result, f, stages, proof, external_data)
    if verbose:
        print(result)
    return result


def _convert(model: Any, args: Any, kwargs: Mapping[str, Any] | None, **options: Any) -> Converted:
    try:
        import torch  # noqa: F401
    except ImportError as error:
        raise MissingDependency("exporting a PyTorch model needs torch", hint="pip install torch==2.13.0") from error
    from tonnx.frontends.torch.convert import convert

    return convert(model, args, kwargs, **options)


def _convert_paddle(path: str | os.PathLike[str], args: Any, **options: Any) -> Converted:
    from tonnx.frontends.paddle.convert import convert

    return convert(path, args, **options)


def _refuse(kind: str, arguments: Mapping[str, Any], hint: str) -> None:
    for name, value in arguments.items():
        if value:
            raise InvalidArgument(f"{kind} takes no {name}", hint=hint)


def _finish(converted: Converted, target: Target, stages: Stages, fold: bool, fuse: bool) -> Optimised:
    from tonnx.legalise import legalise
    from tonnx.passes import clean_up, optimise

    with stages("optimise"):
        optimised = optimise(converted.model, fold=fold, fuse_conv_bn=fuse)
    with stages("legalise"):
        legalise(converted.model, target)
        clean_up(converted.model)
    return optimised


def _detach_weights(converted: Converted) -> None:
    """Weights become inputs. Before the passes run, or folding would write their values into the file after all."""
    graph = converted.model.graph
    for name, value in list(graph.initializers.items()):
        if value.const_value is not None and value.meta.get("tonnx.weight"):
            converted.example[name] = value.const_value.numpy()
            del graph.initializers[name]
            value.const_value = None
            graph.inputs.append(value)


def _limits(converted: Converted) -> list[str]:
    notes = []
    for name, (low, high) in converted.limits.items():
        if low > 1 or high is not None:
            notes.append(f"limits of {name}: {low} to {'any size' if high is None else high}")
    return notes
