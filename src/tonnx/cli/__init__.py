"""The command ``tonnx``: parse, call the API, print. ``tonnx --help`` imports no framework, onnx or numpy.

A sub-command is a module of this package that is listed in `COMMANDS` and has

* ``HELP``, one line,
* ``add_arguments(parser)``,
* ``run(options, console)``, which does the work and returns a `Report`.

Those modules are imported for every ``--help``: what is heavy they import inside ``run``. Errors leave ``run`` as
`TonnxError`; this module prints them and gives the exit code: 0 done, 1 failed, 2 wrongly called.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NoReturn

from tonnx import __version__
from tonnx.cli.console import Console, stdout_to_stderr
from tonnx.errors import TonnxError

COMMANDS = ("export", "retarget", "verify", "run", "bench", "report", "view", "paddle2onnx")

OK, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130


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
        options = _parser().parse_args(argv)
    except _Usage as error:
        Console(json="--json" in argv).usage(str(error), error.usage)
        return USAGE
    except SystemExit as done:  # --help and --version
        return int(done.code or 0)
    return _run(options)


def _run(options: argparse.Namespace) -> int:
    console = Console(quiet=options.quiet, json=options.json, verbose=options.verbose)
    from tonnx.cli.postpone import postpone_sympy

    postpone_sympy()
    try:
        with stdout_to_stderr(), console:
            report = options.run(options, console)
    except KeyboardInterrupt:
        console.error(TonnxError("interrupted"), debug=False)
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
    console.report(report)
    return FAILED if report.failed else OK


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="tonnx",
        description="PyTorch and PaddlePaddle models to ONNX, at the opset you ask for, proven equal to the model.",
        epilog="`tonnx COMMAND --help` tells more about a command.",
    )
    parser.add_argument("--version", action="version", version=f"tonnx {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name in COMMANDS:
        module = import_module(f"{__name__}.{name}")
        command = commands.add_parser(
            name,
            help=module.HELP,
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
