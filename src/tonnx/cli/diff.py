"""Say what changed between two ONNX files: operators by module, weights and how much, attributes, shapes, names.

Exit code 0: nothing, and then nothing is printed. 1: they differ.

Examples:
  tonnx diff monday.onnx tuesday.onnx
  tonnx diff monday.onnx tuesday.onnx --numeric --inputs x.npy
  tonnx diff monday.onnx tuesday.onnx --html changes.html
"""

from __future__ import annotations

import argparse

from tonnx.cli import specs
from tonnx.cli.console import Console, Report


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("a", metavar="A", help="the first ONNX file")
    parser.add_argument("b", metavar="B", help="the second one")
    parser.add_argument("--numeric", action="store_true", help="also run both on the same inputs")
    specs.add(parser, "--inputs", "real values for that: data.npz, x.npy, or x=file.npy; random ones otherwise")
    parser.add_argument("--html", metavar="FILE", help="also write a page")


def run(options: argparse.Namespace, console: Console) -> Report:
    from tonnx.api.diff import diff
    from tonnx.cli.arrays import arrays_for

    inputs = arrays_for(options.a, options.inputs) if options.inputs else None
    result = diff(options.a, options.b, numeric=options.numeric, inputs=inputs, html=options.html)
    return Report(str(result), result.data, failed=not result.same)
