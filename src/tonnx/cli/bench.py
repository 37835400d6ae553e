"""Time ONNX files, and the model they came from, in one interleaved run.

Examples:
  tonnx bench net.onnx
  tonnx bench net.onnx net-int8.onnx --against net.py:Net --batch 1,8 --threads 1,2
  tonnx bench net.onnx --size height=224 --size width=224 --plot times.svg
"""

from __future__ import annotations

import argparse
from pathlib import Path

from tonnx.cli import specs
from tonnx.cli.console import Console, Report
from tonnx.errors import InvalidArgument


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("models", nargs="+", metavar="MODEL", help="ONNX files; ratios are to the first")
    add("--against", metavar="MODEL", help="the model they came from, written as for tonnx verify")
    add("--batch", type=_numbers, metavar="N,M", help="batch sizes; by default what a file fixes, or 1")
    add("--threads", type=_numbers, metavar="N,M", help="thread counts; all cores if not given")
    specs.add(parser, "--size", "another dynamic dimension; x.2=224 is the axis 2 of x")
    specs.add(parser, "--inputs", "real values: data.npz, x=file.npy")
    add("--seconds", type=float, default=2.0, metavar="S", help="for each file and setting; 2 by default")
    add("--warmup", type=int, default=3, metavar="N", help="runs before the clock starts; 3 by default")
    add("--no-memory", action="store_true", help="do not measure peak memory")
    add("--plot", metavar="FILE", help="the figures as a picture, in SVG")


def run(options: argparse.Namespace, console: Console) -> Report:
    from tonnx.benching import bench
    from tonnx.cli.arrays import arrays_for

    if options.plot and not Path(options.plot).absolute().parent.is_dir():
        raise InvalidArgument(f"cannot write {options.plot}", why=f"there is no folder {Path(options.plot).parent}")
    result = bench(
        *options.models,
        **specs.same(options, "against threads seconds warmup"),
        batches=options.batch,
        sizes=dict(options.size),
        inputs=arrays_for(options.models[0], options.inputs),
        memory=not options.no_memory,
        progress=console.stage,
    )
    if options.plot:
        from tonnx.io.staging import replacing

        with replacing(options.plot) as plot:
            plot.write_text(result.svg(), encoding="utf-8")
    return Report(str(result), result.data)


def _numbers(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of numbers") from error
