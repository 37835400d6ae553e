"""Open a page about an ONNX file in the browser, or the file in Netron.

Examples:
  tonnx view net.onnx
  tonnx view net.onnx --netron
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from tonnx.cli.console import Console, Report
from tonnx.cli.report import add_page_arguments, page_report, write_page
from tonnx.errors import InvalidArgument, needed, system_says, told_as


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="the ONNX file")
    parser.add_argument("--netron", action="store_true", help="start Netron instead (pip install 'tonnx[view]')")
    parser.add_argument("--port", type=int, default=0, metavar="N", help="Netron's port; any free one if not given")
    parser.add_argument("--no-browser", action="store_true", help="say where it is, but open nothing")
    add_page_arguments(parser)


def run(options: argparse.Namespace, console: Console) -> Report:
    """Write the page to a temporary folder and open it; or serve the file until Ctrl+C."""
    if not Path(options.model).is_file():
        raise InvalidArgument(f"there is no file {options.model}")
    if options.netron:
        from tonnx.io.read import reader

        reader(options.model)()  # Netron would serve anything, and fail in the browser
        return _netron(options, console)
    folder = Path(tempfile.mkdtemp(prefix="tonnx-view-"))  # it must outlive this process: the browser reads it later
    path, equal = write_page(options, console, folder / f"{Path(options.model).stem}.html")
    if not options.no_browser:
        import webbrowser

        webbrowser.open(path.as_uri())
    return page_report(path, equal, options)


def _netron(options: argparse.Namespace, console: Console) -> Report:
    netron = needed("netron", "Netron is not installed", "pip install 'tonnx[view]'")
    with told_as(InvalidArgument, f"Netron cannot take port {options.port}", OSError, why=system_says):
        address = netron.start(options.model, address=options.port or None, browse=not options.no_browser)
    place = "http://{}:{}".format(*address)
    console.stage(f"Netron at {place}; Ctrl+C ends it")
    try:
        netron.wait()
    finally:
        netron.stop()
    return Report(place, lambda: {"address": place})
