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
    specs.add_files(parser)
    specs.add(parser, "--size", "a dynamic dimension that gets a fixed size; x.2=224 is the axis 2 of x")
    specs.add(parser, "--rtol")
    specs.add(parser, "--atol")


def run(options: argparse.Namespace, console: Console) -> Report:
    from tonnx.api.optimise import optimise
    from tonnx.cli.arrays import of_two_files

    result = optimise(
        options.model,
        options.output,
        sizes=dict(options.size),
        **specs.same(options, "rtol atol"),
        **of_two_files(options, console),
    )
    return Report(str(result), result.data)
