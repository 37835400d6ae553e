"""Say whether a runtime or converter takes an ONNX file: opset, operators, element types, shapes, quantisation.

Exit code 0: it does, as far as its documentation says. 1: it does not; every reason is named by node and line.

Examples:
  tonnx check net.onnx --target tensorrt-8.6
  tonnx check net.onnx --target qnn --json
  tonnx check --list
"""

from __future__ import annotations

import argparse

from tonnx.cli import specs
from tonnx.cli.console import Console, Report


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", nargs="?", help="the ONNX file")
    specs.add(parser, "--target", "who should take it, such as tensorrt-8.6")
    parser.add_argument("--list", action="store_true", help="list the targets, with their opsets")


def run(options: argparse.Namespace, console: Console) -> Report:
    if options.list:
        return _targets()
    if options.model is None or options.target is None:
        options.fail("a file and --target are needed, or --list")
    from tonnx.api.check import check

    result = check(options.model, options.target)
    return Report(str(result), result.data, failed=not result.ok)


def _targets() -> Report:
    from tonnx.targets import names, read_profile

    profiles = [read_profile(name) for name in names()]
    width = max(len(profile.name) for profile in profiles)
    lines = [
        f"{profile.name:<{width}}  opset {profile.lowest_opset:>2} to {profile.highest_opset}  {profile.title}"
        for profile in profiles
    ]
    data = [
        {"name": p.name, "title": p.title, "lowest_opset": p.lowest_opset, "highest_opset": p.highest_opset}
        for p in profiles
    ]
    return Report("\n".join(lines), lambda: {"targets": data})
