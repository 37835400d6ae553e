"""Export a PyTorch or Paddle model to ONNX, and prove that the file computes what the model computes.

MODEL is one of
  path/file.py:name      a torch.nn.Module, a Module class, or a function that returns
  package.module:name    a module, (module, example_args) or (module, args, kwargs)
                         the same for a paddle.nn.Layer
  model.pt, program.pt2  an archive of torch.jit.save (any name) or torch.export.save
  inference.json         a saved Paddle model: inference.json, inference.pdmodel, __model__, or the folder of one;
                         paddle need not be installed, but only with it the file is compared with the model
  checkpoint/            a folder of transformers (config.json, safetensors, tokenizer), which becomes a package: a
                         folder that `tonnx generate` and `tonnx.load` use

Examples:
  tonnx export net.py:make_model -o net.onnx --input "x:float32[batch,3,224,224]" --opset 18
  tonnx export net.py:Net -o net.onnx --input "ids:int64[batch,seq=16]" --input "mask:bool[batch,seq]"
  tonnx export net.py:Net -o net.onnx --inputs data.npz --dynamic x:0=batch,2=height
  tonnx export ocr_model/ -o ocr.onnx --opset 11 --input-shapes x:1,3,48,320
  tonnx export SmolLM-135M/ -o smollm-onnx --task text-generation
"""

from __future__ import annotations

import argparse
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tonnx.cli import specs
from tonnx.cli.console import Console, Report, trial_lines
from tonnx.frontends.named import is_paddle
from tonnx.ir.target import CANON, DEFAULT, OLDEST, ORT_CPU

if TYPE_CHECKING:
    from tonnx.api.result import ExportResult


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("model", metavar="MODEL", help="file.py:name, package:name, an archive, or a Paddle model")
    add("-o", "--output", required=True, metavar="FILE", help="the ONNX file to write")
    add(
        "--opset", type=specs.opset, metavar="N",
        help=f"{OLDEST} to {CANON}; {DEFAULT}, or what the target likes, if not given",
    )  # fmt: skip
    specs.add(parser, "--target", "what the file is for, such as tensorrt-8.6; `tonnx check --list` lists them")
    add("--params", metavar="FILE", help="the weights of a Paddle model, if they are not beside it")
    _add_inputs(parser.add_argument_group("inputs"))
    _add_making(parser.add_argument_group("how the file is made"))
    _add_package(parser.add_argument_group("packages of transformers' checkpoints"))
    proof = parser.add_argument_group("proof")
    add = proof.add_argument
    add("--no-verify", action="store_true", help="do not compare the file with the model")
    add(
        "--verify", type=specs.effort, default=True, metavar="HOW",
        help="how long to compare it: quick, thorough, or seconds; by default in proportion to the model",
    )  # fmt: skip
    specs.add(proof, "--rtol")
    specs.add(proof, "--atol")


def _add_package(package: argparse._ArgumentGroup) -> None:
    add = package.add_argument
    add("--task", metavar="T", help="what it is for, such as text-generation; by default the config's")
    add("--layout", choices=("plain", "optimum"), default="plain", help="where the file is in it")
    add("--tokens", type=int, default=16, metavar="N", help="greedy tokens that must be the model's; 16 if not given")
    add("--to", choices=("int8", "int4", "fp16"), help="smaller numbers, as of `tonnx quantize`")
    add("--trust-remote-code", action="store_true", help="run Python code that the checkpoint brings")
    add("--allow-pickle", action="store_true", help="read weights from pickles, which can run code")


def _add_inputs(inputs: argparse._ArgumentGroup) -> None:
    specs.add(
        inputs,
        "--input",
        '"x:float32[batch,3,224,224]": a name in the brackets makes a dynamic dimension, a number a fixed one, '
        '"batch=4" a dynamic one whose example has size 4, "x:int64[]" is a scalar, "past + sequence" '
        "a size computed of others; once for each input",
    )
    specs.add(inputs, "--input-shapes", "x:1,3,224,224: the same for float32 inputs, as other tools write it")
    help = "real values: data.npz with the names of forward's parameters, x.npy, or x=file.npy"
    specs.add(inputs, "--inputs", help)
    add = inputs.add_argument
    add(
        "--dynamic",
        action="append",
        default=[],
        type=specs.dynamic_spec,
        metavar="AXES",
        help="x:0=batch,2=height: dynamic axes of an input or output",
    )
    add("--input-names", type=specs.names, metavar="A,B", help="the file's input names, in order")
    add("--output-names", type=specs.names, metavar="A,B", help="the file's output names, in order")


def _add_making(making: argparse._ArgumentGroup) -> None:
    add = making.add_argument
    add("--no-fold", action="store_true", help="do not fold constants")
    add("--no-fuse-conv-bn", action="store_true", help="keep batch normalisations that could go into a convolution")
    specs.add(making, "--external-data")
    add(
        "--weights", action="append", metavar="HOW",
        help="copy, the default; reference: the file points into those that hold the weights already, in its folder or "
        "below; or the name of such a file (.safetensors, torch.save, .onnx), once for each",
    )  # fmt: skip
    add("--recipe", metavar="R", help="keep a recipe in the file for `tonnx run`: imagenet, my.toml, …")
    add(
        "--embed-preprocessing",
        action="store_true",
        help="put the recipe's steps before the network into the file, which then takes uint8 pictures",
    )
    add(
        "--capture", choices=("auto", "record", "export", "script", "trace"), default="auto",
        help="how a PyTorch model becomes a graph: recorded, torch.export, torch.jit.script or .trace; auto chooses",
    )  # fmt: skip
    help = (
        f"whose gaps and habits the file works around: {ORT_CPU}, the default; ort, with ONNX Runtime's own operators; "
        "or none, as for TensorRT or QNN"
    )
    specs.add(making, "--runtime", help, default=ORT_CPU)
    add("--no-params", action="store_true", help="leave the weights out: they become inputs")
    add("--keep-initializers-as-inputs", action="store_true", help="list the weights among the inputs too")
    add(
        "--training", choices=("eval", "preserve", "training"), default="eval",
        help="the mode of the model; in training, dropout and batch normalisation are written as such",
    )  # fmt: skip
    add(
        "--operator-export-type",
        choices=("onnx", "onnx-aten", "onnx-aten-fallback", "onnx-fallthrough"),
        default="onnx",
        help="onnx-aten-fallback makes nodes of org.pytorch.aten of what cannot be exported; no runtime runs them",
    )
    add(
        "--custom-opset", action="append", default=[], type=specs.custom_opset, metavar="DOMAIN=N",
        help="the version of a domain of custom operators; 1 if not given",
    )  # fmt: skip
    add(
        "--strip-doc-string", action=argparse.BooleanOptionalAction,
        help="nodes say nothing of their source; --no-strip-doc-string writes it into their doc strings",
    )  # fmt: skip
    specs.add(making, "--report")


def run(options: argparse.Namespace, console: Console) -> Report:
    if _is_checkpoint(options):
        return _export_package(options, console)
    input_specs = [*options.input, *options.input_shapes]
    try:
        _check_twice(input_specs)
        if is_paddle(options.model):
            result = export_paddle(options, input_specs, **_common(options, console))
        else:
            if options.params:
                raise argparse.ArgumentTypeError("--params is for Paddle models")
            layer = export_layer(options, input_specs, **_common(options, console))
            result = layer or _export_torch(options, specs.with_example_sizes(input_specs), console)
    except argparse.ArgumentTypeError as error:
        options.fail(str(error))
    return Report(str(result), result.data, lambda: _details(result))


def _is_checkpoint(options: argparse.Namespace) -> bool:
    """A folder with a config, or one that a task is given for: then it is said what it lacks."""
    folder = Path(options.model)
    settings = ("config.json", "model_index.json")
    return folder.is_dir() and (options.task is not None or any((folder / name).is_file() for name in settings))


def _export_package(options: argparse.Namespace, console: Console) -> Report:
    from tonnx.packages.export import export_package

    weights = specs.weights(options.weights)
    if options.target is not None:
        options.fail("--target: a package is for ONNX Runtime")
    if weights not in ("copy", "reference"):
        options.fail("--weights: copy, or reference to the checkpoint's own, which a package has then")
    result = export_package(
        options.model,
        options.output,
        opset_version=options.opset,
        weights=str(weights),
        verify=False if options.no_verify else options.verify,
        **specs.same(options, "task runtime layout tokens to trust_remote_code allow_pickle"),
        progress=console.stage,
    )
    return Report(str(result), result.data, lambda: "\n".join(map(str, result.exports.values())))


def _common(options: argparse.Namespace, console: Console) -> dict[str, Any]:
    return {
        **specs.same(options, "output_names target external_data keep_initializers_as_inputs training"),
        **specs.same(options, "strip_doc_string recipe embed_preprocessing runtime report rtol atol"),
        "opset_version": options.opset,
        "do_constant_folding": not options.no_fold,
        "fuse_conv_bn": not options.no_fuse_conv_bn,
        "weights": specs.weights(options.weights),
        "export_params": not options.no_params,
        "operator_export_type": options.operator_export_type.replace("-", "_"),
        "custom_opsets": dict(options.custom_opset),
        "verify": False if options.no_verify else options.verify,
        "progress": console.stage,
    }


def _export_torch(options: argparse.Namespace, input_specs: list[specs.InputSpec], console: Console) -> ExportResult:
    console.stage("load")
    from tonnx.frontends.named import importable, load

    with importable(options.model):
        loaded = load(options.model)
        from tonnx.api.export import export
        from tonnx.cli.arrays import read_arrays
        from tonnx.cli.examples import make_example

        example = make_example(loaded, input_specs, read_arrays(options.inputs), options.dynamic, options.input_names)
        return export(
            loaded.model,
            example.args,
            options.output,
            kwargs=example.kwargs or None,
            input_names=example.input_names,
            dynamic_axes=example.dynamic_axes or None,
            capture=options.capture,
            **_common(options, console),
        )


def _check_twice(input_specs: list[specs.InputSpec]) -> None:
    names = [spec.name for spec in input_specs if spec.name is not None]
    for name in names:
        if names.count(name) > 1:
            raise argparse.ArgumentTypeError(f"the input {name!r} is described twice")


def _details(result: ExportResult) -> str:
    from tonnx.ir.history import operator_counts

    counts = operator_counts(result.model)
    width = max(map(len, counts), default=0)
    lines = ["  operators:", *(f"    {name:<{width}}  {count:>5}" for name, count in counts.items())]
    if result.verification is not None:
        lines += trial_lines(result.verification)
    return "\n".join(lines)


# Paddle models; saved ones need neither paddle nor torch


def input_shapes(input_specs: list[specs.InputSpec]) -> dict[str, list[int | str | None]]:
    """What the user said of the inputs, as `tonnx.export` takes it."""
    shapes: dict[str, list[int | str | None]] = {}
    for spec in input_specs:
        if spec.name is None:
            raise argparse.ArgumentTypeError("an input of a Paddle model is given with its name, as x:1,3,224,224")
        shapes[spec.name] = [dim.size if dim.name is None else dim.name or None for dim in spec.dims]
    return shapes


def export_paddle(options: argparse.Namespace, input_specs: list[specs.InputSpec], **common: Any) -> ExportResult:
    """Export the saved model that MODEL names."""
    from tonnx.api.export import export
    from tonnx.cli.arrays import read_arrays

    return export(
        options.model,
        read_arrays(options.inputs),
        options.output,
        params=options.params,
        input_shapes=input_shapes(input_specs) or None,
        dynamic_axes=dict(options.dynamic) or None,
        input_names=options.input_names,
        **common,
    )


def mentions_paddle(target: str) -> bool:
    """Whether the file that MODEL names speaks of paddle: only then it is looked into for a layer."""
    from tonnx.frontends.named import split_target

    try:
        file, module, _ = split_target(target)
        if file is None:
            spec = find_spec(str(module))
            file = Path(spec.origin or "" if spec is not None else "")
        return "paddle" in file.read_text(encoding="utf-8", errors="replace")
    except (OSError, ImportError, ValueError):
        return False


def export_layer(options: argparse.Namespace, input_specs: list[specs.InputSpec], **common: Any) -> ExportResult | None:
    """Export the Paddle layer that MODEL names; None if it names something else."""
    from tonnx.frontends.named import importable, load_any

    with importable(options.model):
        if not mentions_paddle(options.model):
            return None
        loaded = load_any(options.model)
        if not any(kind.__module__.partition(".")[0] == "paddle" for kind in type(loaded.model).__mro__):
            return None
        from tonnx.api.export import export
        from tonnx.cli.arrays import read_arrays

        arrays = read_arrays(options.inputs)
        axes = {spec.name or "": {a: n for a, n in spec.dynamic.items() if n} for spec in input_specs if spec.name}
        for name, named in options.dynamic:
            axes.setdefault(name, {}).update(named)
        return export(
            loaded.model,
            loaded.args if loaded.args is not None and not arrays else (),
            options.output,
            kwargs=arrays or loaded.kwargs,
            input_spec=_specs(input_specs),
            dynamic_axes={name: named for name, named in axes.items() if named} or None,
            input_names=options.input_names,
            **common,
        )


def _specs(input_specs: list[specs.InputSpec]) -> Any:
    """The inputs as ``paddle.jit.save`` takes them."""
    from paddle.static import InputSpec as PaddleSpec

    return [
        PaddleSpec([dim.size if dim.name is None else None for dim in spec.dims], spec.dtype or "float32", spec.name)
        for spec in input_specs
    ] or None
