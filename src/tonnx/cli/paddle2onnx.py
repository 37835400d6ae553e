"""The command paddle2onnx, flag by flag. The saved model is read without paddle, and the file is proven.

Examples:
  tonnx paddle2onnx --model_dir mobilenet --model_filename inference.json --params_filename inference.pdiparams \\
                    --save_file mobilenet.onnx --opset_version 11 --enable_onnx_checker True
  tonnx paddle2onnx -m old_model -s out/old_model.onnx
"""

from __future__ import annotations

import argparse
import ast
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tonnx import __version__
from tonnx.cli import specs
from tonnx.cli.console import Console, Report
from tonnx.errors import InvalidArgument

if TYPE_CHECKING:
    from tonnx.api.result import ExportResult

CONFLICTS = "resolve"  # there, -v is the version
OPSET = 9


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of paddle2onnx 2.1, and those of its former versions that are still in scripts."""
    parser.usage = "%(prog)s --model_dir DIR --save_file FILE [flags]; --help lists them"
    add = parser.add_argument
    add("--model_dir", "-m", metavar="DIR", help="the folder of the saved model")
    add("--model_filename", "-mf", metavar="FILE", help="the program in it; found by itself if there is one")
    add("--params_filename", "-pf", metavar="FILE", help="the weights in it; found by themselves beside the program")
    add("--save_file", "-s", metavar="FILE", help="the ONNX file to write; its folder is made")
    add("--opset_version", "-ov", type=specs.opset, default=OPSET, metavar="N", help=f"{OPSET} if not given")
    _flag(parser, "--enable_auto_update_opset", True, "take a higher opset where the model needs one")
    _flag(parser, "--enable_onnx_checker", True, "check the file, and compare it with the model")
    _flag(parser, "--enable_verbose", False, "print more")
    add(
        "--optimize_tool",
        default="polygraphy",
        choices=["polygraphy", "onnxoptimizer", "None"],
        help="None: constants are not folded; tonnx needs no tool for it",
    )
    add("--version", "-v", action="store_true", help="print the version")
    more = parser.add_argument_group("of tonnx, and of former versions")
    more.add_argument(
        "--input_shape_dict", type=_shapes, metavar="DICT", help="\"{'x': [1, 3, 224, 224]}\" fixes or names dimensions"
    )
    more.add_argument("--input_names", type=_names, metavar="A,B", help="the file's input names, in order")
    more.add_argument("--output_names", type=_names, metavar="A,B", help="the file's output names, in order")
    _flag(more, "--enable_optimization", True, "fold constants and fuse")
    _flag(more, "--enable_dist_prim_all", False, "changes nothing")
    _flag(more, "--enable_dev_version", False, "changes nothing")
    _flag(more, "--enable_paddle_fallback", False, "changes nothing")
    _flag(more, "--enable_experimental_op", False, "changes nothing")
    _flag(more, "--export_fp16_model", False, "refused")
    more.add_argument(
        "--deploy_backend", "-d", default="onnxruntime", metavar="NAME",
        help="any other than onnxruntime: a file that favours no runtime, whose int8 stays int8",
    )  # fmt: skip
    more.add_argument("--save_calibration_file", metavar="FILE", help="changes nothing")
    more.add_argument("--external_filename", metavar="FILE", help="changes nothing")
    more.add_argument("--custom_ops", type=_dict, default={}, metavar="DICT", help="refused unless empty")


def run(options: argparse.Namespace, console: Console) -> Report:
    if options.version:
        return Report(f"tonnx {__version__}, with the flags of paddle2onnx 2.1.0", lambda: {"version": __version__})
    if options.model_dir is None and options.save_file is None:
        return Report("`tonnx paddle2onnx --help` prints the flags", lambda: {"version": __version__})
    for flag in ("model_dir", "save_file"):
        if not getattr(options, flag):
            options.fail(f"--{flag} is needed")
    result = _convert(options, console)
    return Report(str(result), result.data)


def _convert(options: argparse.Namespace, console: Console) -> ExportResult:
    from tonnx.api.export import export
    from tonnx.paddle import folder_for, options_of, with_opset

    program = _program(options)
    export_options, notes = options_of(_configs(options))
    params = None
    if options.params_filename:
        params = Path(options.model_dir) / options.params_filename
        if not params.exists():
            raise InvalidArgument(f"the weights {params} do not exist", hint="look at --params_filename")
    export_options.pop("verbose", None)
    with folder_for(options.save_file):
        return with_opset(
            lambda opset: export(
                program,
                f=options.save_file,
                params=params,
                opset_version=opset,
                input_shapes=options.input_shape_dict,
                input_names=options.input_names,
                output_names=options.output_names,
                progress=console.stage,
                **export_options,
            ),
            options.opset_version,
            options.enable_auto_update_opset,
            notes,
        )


def _program(options: argparse.Namespace) -> Path:
    folder = Path(options.model_dir)
    if options.model_filename is None:
        return folder
    if not folder.is_dir():
        raise InvalidArgument(f"the folder {folder} does not exist", hint="look at --model_dir")
    program = folder / options.model_filename
    if not program.is_file():
        there = ", ".join(sorted(f.name for f in folder.iterdir())[:10]) or "nothing"
        raise InvalidArgument(f"there is no {options.model_filename} in {folder}", why=f"there is {there}")
    return program


def _configs(options: argparse.Namespace) -> dict[str, Any]:
    """The flags as `tonnx.paddle.options_of` takes them."""
    same = """enable_onnx_checker enable_verbose optimize_tool enable_optimization enable_dist_prim_all
        enable_dev_version enable_paddle_fallback export_fp16_model custom_ops deploy_backend"""
    configs = specs.same(options, same)
    configs["calibration_file"] = options.save_calibration_file
    configs["external_file"] = options.external_filename
    return configs


# Values of flags


def _flag(parser: Any, name: str, default: bool, help: str) -> None:
    parser.add_argument(name, type=_bool, default=default, metavar="BOOL", help=f"{help}; {default} if not given")


def _bool(text: str) -> bool:
    meanings = {"true": True, "1": True, "on": True, "yes": True, "false": False, "0": False, "off": False, "no": False}
    if text.strip().lower() not in meanings:
        raise argparse.ArgumentTypeError(f"{text!r} is neither True nor False")
    return meanings[text.strip().lower()]


def _dict(text: str) -> dict[Any, Any]:
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        value = None
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError(f"{text!r} is not a dict")
    return value


def _shapes(text: str) -> dict[str, list[Any]]:
    shapes = _dict(text) if text.strip() else {}
    for name, shape in shapes.items():
        if not isinstance(name, str) or not isinstance(shape, (list, tuple)):
            raise argparse.ArgumentTypeError(f"{text!r} is not a dict of shapes such as {{'x': [1, 3, 224, 224]}}")
    return {name: list(shape) for name, shape in shapes.items()}


def _names(text: str) -> list[str]:
    """``a,b`` or ``['a', 'b']``."""
    if text.lstrip().startswith(("[", "(")):
        try:
            return [str(name) for name in ast.literal_eval(text)]
        except (ValueError, SyntaxError, TypeError):
            raise argparse.ArgumentTypeError(f"{text!r} is not a list of names") from None
    return specs.names(text)
