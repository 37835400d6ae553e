"""Pages that are made of the code: the command line from its parser, the API from its names, operators from the rules.

The rest of the site are the pages of ``docs/`` as they are; links that leave that folder are shown as text.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))

_OUTSIDE = re.compile(r"\[([^\]]*)\]\(\.\./[^)]*\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made, and the script."""
    for name, text in (("cli.md", command_line()), ("api.md", api()), ("operators.md", operators())):
        files.append(File.generated(config, name, content=text))
    files.append(File.generated(config, "filter.js", content=(ROOT / "site" / "filter.js").read_text("utf-8")))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Links to the rest of the repository are text here."""
    return _OUTSIDE.sub(r"`\1`", markdown)


def command_line() -> str:
    """Every command with its options, as the parser knows them."""
    from tonnx import cli

    parts = ["# The command line\n", "`tonnx COMMAND --help` says the same.\n"]
    for name, summary in cli.COMMANDS.items():
        parser = cli._parser(name)
        commands = next(a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
        command = commands.choices[name]
        command.formatter_class = lambda prog: argparse.RawDescriptionHelpFormatter(prog, width=100)
        sentence = f"{summary[0].upper()}{summary[1:]}.\n"
        parts += [f"## tonnx {name}\n", sentence, "```text", command.format_help(), "```\n"]
    return "\n".join(parts)


def api() -> str:
    """Every public name, with its docstring."""
    import tonnx

    later = {name: place for name, place in tonnx._LATER.items() if place != "tonnx.errors"}
    functions = sorted(name for name in later if name[0].islower())
    classes = sorted(name for name in later if name[0].isupper())
    directive = {name: f"::: {_defined_in(later[name], name)}.{name}\n" for name in later}
    text = ["# Python\n", "Everything stands in the package `tonnx`. Errors have [a page of their own](errors.md).\n"]
    text += [directive[name] for name in (*functions, *classes)]
    return "\n".join(text)


def _defined_in(module: str, name: str) -> str:
    """The module that has the definition: a package may only hand a name on."""
    path = ROOT / "src" / Path(*module.split("."))
    if not (path / "__init__.py").is_file():
        return module
    for node in ast.walk(ast.parse((path / "__init__.py").read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and any(alias.name == name for alias in node.names):
            return str(node.module)
    return module


def operators() -> str:
    """The table of version steps in docs/opsets.md, an operator a row: the lowest opset that it can be written at."""
    rows = _steps((ROOT / "docs" / "opsets.md").read_text("utf-8"))
    head = ["# ONNX operators\n", "The lowest opset at which each can be expressed, at least in some of its forms;"]
    head += ["[Opsets](opsets.md) says what becomes of every version.\n"]
    head += ["| operator | lowest opset | newest version |"]
    return "\n".join([*head, "|---|---:|---:|", *(f"| `{name}` | {low} | {new} |" for name, low, new in rows), ""])


def _steps(text: str) -> list[tuple[str, int, int]]:
    """Operator, lowest opset, newest version: of the rows ``| Operator | version | what is done |``."""
    versions: dict[str, dict[int, str]] = {}
    for line in text.splitlines():
        cells = [cell.strip().strip("`") for cell in line.strip().strip("|").split("|")]
        if len(cells) >= 3 and re.fullmatch(r"[A-Z]\w+", cells[0]) and cells[1].isdigit():
            versions.setdefault(cells[0], {})[int(cells[1])] = cells[2]
    rows = []
    for name, steps in sorted(versions.items()):
        lowest = 1
        for version in sorted(steps, reverse=True):
            if "impossible" in steps[version].lower() or steps[version].startswith("–"):
                lowest = version
                break
        rows.append((name, lowest, max(steps)))
    return rows
