"""Take any ONNX file to another opset, up or down, or to a target by name, and prove that it still computes the same.

Examples:
  tonnx retarget model.onnx --opset 11 -o model-11.onnx
  tonnx retarget model.onnx --opset 9 -o model-9.onnx --inputs real.npz
  tonnx retarget model.onnx --target rknn-2.3 --size batch=1 -o model-rknn.onnx
"""

from __future__ import annotations

import argparse

from tonnx.cli import specs
from tonnx.cli.console import Console, Report
from tonnx.ir.target import CANON, OLDEST


def add_arguments(parser: argparse.ArgumentParser) -> None:
    specs.add_files(parser)
    add = parser.add_argument
    add("--opset", type=specs.opset, metavar="N", help=f"{OLDEST} to {CANON}; or what the target likes")
    specs.add(parser, "--target", "what the file is for, such as tensorrt-8.6; `tonnx check --list` lists them")
    specs.add(parser, "--size", "a dynamic dimension that gets a fixed size; x.2=224 is the axis 2 of x")
    add(
        "--weights", choices=("copy", "reference"), default="copy",
        help="reference: the file points into the original's data file, in its folder or below",
    )  # fmt: skip
    help = "ort-cpu fits the file to ONNX Runtime's CPU, as export does, ort with its own operators"
    specs.add(parser, "--runtime", f"{help}; none, the default, leaves it as it is")
    specs.add(parser, "--report")
    specs.add(parser, "--rtol")
    specs.add(parser, "--atol")


def run(options: argparse.Namespace, console: Console) -> Report:
    from tonnx.api.retarget import retarget
    from tonnx.cli.arrays import of_two_files

    if options.opset is None and options.target is None:
        options.fail("one of --opset and --target is needed")
    result = retarget(
        options.model,
        options.opset,
        options.output,
        sizes=dict(options.size),
        **specs.same(options, "target rtol atol weights runtime report"),
        **of_two_files(options, console),
    )
    return Report(str(result), result.data)
