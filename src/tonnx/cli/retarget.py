"""Take any ONNX file to another opset, up or down, and prove that it still computes the same.

Examples:
  tonnx retarget model.onnx --opset 11 -o model-11.onnx
  tonnx retarget model.onnx --opset 9 -o model-9.onnx --inputs real.npz
"""

from __future__ import annotations

import argparse

from tonnx.cli import specs
from tonnx.cli.console import Console, Report
from tonnx.ir.target import CANON, OLDEST


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``tonnx retarget``."""
    parser.add_argument("model", metavar="MODEL", help="the ONNX file to read")
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help="the ONNX file to write")
    parser.add_argument("--opset", type=specs.opset, required=True, metavar="N", help=f"{OLDEST} to {CANON}")
    parser.add_argument(
        "--inputs",
        action="append",
        default=[],
        metavar="FILE",
        help="real values for the proof: data.npz, x.npy, or x=file.npy; random ones that fit the types otherwise",
    )
    parser.add_argument(
        "--external-data",
        action=argparse.BooleanOptionalAction,
        help="weights in FILE.data beside the file; if neither is given, only above 2 GiB",
    )
    parser.add_argument(
        "--weights", choices=("copy", "reference"), default="copy",
        help="reference: the file points into the original's data file, in its folder or below",
    )  # fmt: skip
    parser.add_argument(
        "--runtime", type=specs.runtime, metavar="R",
        help="ort-cpu fits the file to ONNX Runtime's CPU, as export does; none, the default, leaves it as it is",
    )  # fmt: skip
    parser.add_argument("--no-verify", action="store_true", help="do not run both files and compare them")
    parser.add_argument("--rtol", type=float, metavar="X", help="relative tolerance; by default the dtype's own")
    parser.add_argument("--atol", type=float, metavar="X", help="absolute tolerance; by default the dtype's own")


def run(options: argparse.Namespace, console: Console) -> Report:
    """Retarget, report."""
    from tonnx.api.retarget import retarget
    from tonnx.cli.arrays import arrays_for

    result = retarget(
        options.model,
        options.opset,
        options.output,
        inputs=arrays_for(options.model, options.inputs),
        verify=not options.no_verify,
        rtol=options.rtol,
        atol=options.atol,
        external_data=options.external_data,
        weights=options.weights,
        runtime=options.runtime,
        progress=console.stage,
    )
    return Report(str(result), result.data)
