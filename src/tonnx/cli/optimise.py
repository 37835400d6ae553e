"""Take out of any ONNX file what it does not need, and prove that it still computes the same.

The result is of the same opset, never has more nodes, and is never slower as far as a short measurement can tell: then
the original is what is written.

Examples:
  tonnx optimise model.onnx -o smaller.onnx
  tonnx optimise model.onnx --size batch=1 -o smaller.onnx
"""

from __future__ import annotations

import argparse

from tonnx.cli import specs
from tonnx.cli.console import Console, Report


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``tonnx optimise``."""
    parser.add_argument("model", metavar="MODEL", help="the ONNX file to read")
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help="the ONNX file to write")
    specs.add(parser, "--size", "a dynamic dimension that gets a fixed size; x.2=224 is the axis 2 of x")
    specs.add(parser, "--inputs", "real values for the proof: data.npz, x.npy, or x=file.npy; random ones otherwise")
    specs.add(parser, "--external-data")
    parser.add_argument("--no-verify", action="store_true", help="do not run both files, compare and time them")
    specs.add(parser, "--rtol")
    specs.add(parser, "--atol")


def run(options: argparse.Namespace, console: Console) -> Report:
    """Optimise, report."""
    from tonnx.api.optimise import optimise
    from tonnx.cli.arrays import arrays_for

    result = optimise(
        options.model,
        options.output,
        sizes=dict(options.size),
        inputs=arrays_for(options.model, options.inputs),
        verify=not options.no_verify,
        rtol=options.rtol,
        atol=options.atol,
        external_data=options.external_data,
        progress=console.stage,
    )
    return Report(str(result), result.data)
