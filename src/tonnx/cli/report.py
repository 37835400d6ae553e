"""Write one self-contained HTML page about an ONNX file: graph, operators, weights, proof, time per node.

Examples:
  tonnx report net.onnx -o net.html
  tonnx report net.onnx --size height=224 --size width=224
  tonnx report net.onnx --against net.py:Net --inputs x.npy
"""

from __future__ import annotations

import argparse
import contextlib
from pathlib import Path
from typing import Any

from tonnx.cli import specs
from tonnx.cli.console import Console, Report


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("model", metavar="MODEL", help="the ONNX file")
    add("-o", "--output", metavar="FILE", help="the page; MODEL with .html if not given")
    add_page_arguments(parser)


def add_page_arguments(parser: argparse.ArgumentParser) -> None:
    """What ``tonnx view`` takes as well."""
    add = parser.add_argument
    add("--against", metavar="MODEL", help="compare with this model, value by value; written as for tonnx verify")
    specs.add(parser, "--size", "a dynamic dimension, for timing; x.2=224 is the axis 2 of x")
    specs.add(parser, "--inputs", "real values: x.npy, data.npz")
    add("--profile", action=argparse.BooleanOptionalAction, help="time the nodes; by default up to 2 GiB of weights")
    add("--bench", action="store_true", help="time the whole file, and the model it is compared with")


def run(options: argparse.Namespace, console: Console) -> Report:
    path, equal = write_page(options, console, options.output)
    return page_report(path, equal, options)


def page_report(path: Path, equal: bool | None, options: argparse.Namespace) -> Report:
    """Where the page is; and if the file does not compute what the model computes, that too, with exit code 1."""
    text = str(path) if equal is not False else f"{path}\n[✗] {options.model} does NOT compute what the model computes"
    return Report(text, lambda: {"path": str(path), "equal": equal}, failed=equal is False)


def write_page(options: argparse.Namespace, console: Console, output: str | Path | None) -> tuple[Path, bool | None]:
    """The page of a file, with what was asked for measured first; and whether it equals the model, if compared."""
    from tonnx.cli.arrays import arrays_for
    from tonnx.reporting import report
    from tonnx.reporting.quantised import Quantised

    inputs, sizes = arrays_for(options.model, options.inputs), dict(options.size)
    extra: dict[str, Any] = {}
    if options.against:
        extra |= _compared(options, console)
        extra |= {"quantised": Quantised(options.against)} if options.against.endswith(".onnx") else {}
    if options.bench:
        from tonnx.benching import bench

        console.stage("bench")
        extra["bench"] = bench(
            options.model, against=options.against, sizes=sizes, inputs=inputs, progress=console.stage
        )
    console.stage("page")
    path = report(options.model, output, inputs=inputs, sizes=sizes, profile=options.profile, **extra)
    return path, extra["verification"].ok if "verification" in extra else None


def _compared(options: argparse.Namespace, console: Console) -> dict[str, Any]:
    """The proof and the differences at every value inside, for the page."""
    from tonnx.api.verify import verify
    from tonnx.cli.arrays import example_for
    from tonnx.frontends.named import importable, is_python, load_against

    path = Path(options.model)
    with importable(options.against) if is_python(options.against) else contextlib.nullcontext():
        loaded = load_against(options.against)
        args, kwargs = example_for(path, loaded, [], options.inputs, seed=0)
        result = verify(path, loaded.model, args, kwargs, locate=True, progress=console.stage)
    return {"verification": result.verification, "differences": result.differences, "located": result.located}
