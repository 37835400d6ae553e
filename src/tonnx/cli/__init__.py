"""The command ``tonnx``: parse, call the API, print. ``tonnx --help`` imports no framework, onnx or numpy.

A sub-command is a module of this package that is listed in `COMMANDS` and has

* ``add_arguments(parser)``,
* ``run(options, console)``, which does the work and returns a `Report`.

Such a module is imported for the command's own ``--help``, too: what is heavy it imports inside ``run``. Errors leave
``run`` as `TonnxError`; this module prints them and gives the exit code: 0 done, 1 failed, 2 wrongly called, 130
stopped by Ctrl-C, 143 by SIGTERM.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NoReturn

from tonnx import __version__

COMMANDS = {
    "export": "a PyTorch or Paddle model to ONNX, proven",
    "retarget": "any ONNX file to another opset, proven",
    "check": "whether a runtime or converter takes an ONNX file",
    "diff": "what changed between two ONNX files",
    "optimise": "any ONNX file with fewer nodes, proven",
    "quantize": "any ONNX file with its weights as integers, proven",
    "verify": "any ONNX file compared with its model; where it departs",
    "run": "run an ONNX file on pictures or arrays",
    "generate": "continue a text with a package",
    "bench": "time ONNX files side by side",
    "report": "a page about an ONNX file",
    "view": "look at an ONNX file in the browser",
    "zoo": "every model of a manifest, with one page about all",
    "paddle2onnx": "a saved Paddle model to ONNX, with the flags of the command paddle2onnx",
}

OK, FAILED, USAGE, INTERRUPTED, TERMINATED = 0, 1, 2, 130, 143


class _Usage(Exception):
    def __init__(self, parser: argparse.ArgumentParser, message: str) -> None:
        super().__init__(message)
        self.usage = parser.format_usage().strip()


class _Parser(argparse.ArgumentParser):
    """Leaves it to `main` how an error is shown: as text, or as JSON."""

    def error(self, message: str) -> NoReturn:
        raise _Usage(self, message)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    argv = list(sys.argv[1:] if argv is None else argv)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a terminal without ✓ is no reason to fail
    try:
        options = _parser(next((word for word in argv if word in COMMANDS), None)).parse_args(argv)
    except _Usage as error:
        from tonnx.cli.console import Console

        Console(json="--json" in argv).usage(str(error), error.usage)
        return USAGE
    except SystemExit as done:  # --help and --version
        return int(done.code or 0)
    return _run(options)


def _run(options: argparse.Namespace) -> int:
    from tonnx.cli.console import Console, stdout_to_stderr
    from tonnx.cli.process import Terminated, postpone_sympy, sigterm_raises
    from tonnx.errors import TonnxError

    console = Console(quiet=options.quiet, json=options.json, verbose=options.verbose)
    try:
        postpone_sympy()
        with sigterm_raises(), stdout_to_stderr(), console:
            report = options.run(options, console)
        console.report(report)
    except Terminated:
        console.error(TonnxError("terminated"), see=False)
        return TERMINATED
    except KeyboardInterrupt:
        console.error(TonnxError("interrupted"), see=False)
        return INTERRUPTED
    except _Usage as error:
        console.usage(str(error), error.usage)
        return USAGE
    except TonnxError as error:
        console.error(error, debug=options.debug)
        return FAILED
    except Exception as error:  # noqa: BLE001 (shown as a fault of tonnx)
        fault = TonnxError(
            f"{type(error).__name__}: {error}",
            why="this is a fault of tonnx itself",
            hint="please report it with the output of the same command with --debug",
        )
        fault.__cause__ = error
        console.error(fault, debug=options.debug)
        return FAILED
    return FAILED if report.failed else OK


def _parser(asked: str | None) -> argparse.ArgumentParser:
    """Only the command that is asked for is imported and knows its arguments."""
    parser = _Parser(
        prog="tonnx",
        description="PyTorch and PaddlePaddle models to ONNX, at the opset you ask for, proven equal to the model.",
        epilog="`tonnx COMMAND --help` tells more about a command.",
    )
    parser.add_argument("--version", action="version", version=f"tonnx {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, summary in COMMANDS.items():
        if name != asked:
            commands.add_parser(name, help=summary)
            continue
        module = import_module(f"{__name__}.{name}")
        command = commands.add_parser(
            name,
            help=summary,
            description=module.__doc__,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            parents=[_common()],
            conflict_handler=getattr(module, "CONFLICTS", "error"),
        )
        command.set_defaults(run=module.run, fail=command.error)
        module.add_arguments(command)
    return parser


def _common() -> _Parser:
    parser = _Parser(add_help=False)
    group = parser.add_argument_group("output")
    group.add_argument("-q", "--quiet", action="store_true", help="print errors only")
    group.add_argument("-v", "--verbose", action="store_true", help="print more: operators, every size tried")
    group.add_argument("--json", action="store_true", help="one JSON object on stdout, for errors too")
    group.add_argument("--debug", action="store_true", help="show the traceback of an error")
    return parser
