"""Store the weights of any ONNX file as integers, and say what that costs.

Examples:
  tonnx quantize model.onnx --to int8 -o model-int8.onnx
  tonnx quantize llm.onnx --to int4 --block 64 --skip 'lm_head*' -o llm-int4.onnx
"""

from __future__ import annotations

import argparse

from tonnx.cli import specs
from tonnx.cli.console import Console, Report


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``tonnx quantize``."""
    parser.add_argument("model", metavar="MODEL", help="the ONNX file to read")
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help="the ONNX file to write")
    parser.add_argument("--to", choices=("int8", "int4"), default="int8", help="what the weights are stored as")
    parser.add_argument(
        "--block", type=int, default=32, metavar="N", help="numbers that share a scale; 0: all along the axis"
    )
    parser.add_argument("--asymmetric", action="store_true", help="with a zero point for each scale")
    parser.add_argument(
        "--skip", action="append", default=[], metavar="PATTERN", help="names of weights or nodes that stay floats"
    )
    parser.add_argument("--opset", type=specs.opset, metavar="N", help="of the file; that of the original by default")
    help = "real values for the proof: data.npz, x.npy, or x=file.npy; random ones that fit the types otherwise"
    specs.add(parser, "--inputs", help)
    specs.add(parser, "--external-data")
    parser.add_argument("--no-verify", action="store_true", help="do not run the file and the original")


def run(options: argparse.Namespace, console: Console) -> Report:
    """Quantise, report."""
    from tonnx.api.quantize import quantize
    from tonnx.cli.arrays import arrays_for

    result = quantize(
        options.model,
        options.output,
        to=options.to,
        block=options.block,
        symmetric=not options.asymmetric,
        skip=options.skip,
        opset_version=options.opset,
        inputs=arrays_for(options.model, options.inputs),
        verify=not options.no_verify,
        external_data=options.external_data,
        progress=console.stage,
    )
    return Report(str(result), result.data)
