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
_OUTSIDE = re.compile(r"\[([^\]]*)\]\(\.\./[^)]*\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made, and the script."""
    sys.path[:0] = [str(ROOT / "src"), str(ROOT)]  # here: MkDocs puts the path back after it has loaded this file
    for name, text in (("cli.md", command_line()), ("api.md", api()), ("operators.md", operators())):
        files.append(File.generated(config, name, content=text))
    files.append(File.generated(config, "filter.js", content=(ROOT / "site" / "filter.js").read_text("utf-8")))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Long tables are put into their places; links to the rest of the repository are text here."""
    from tools.site_data import with_tables

    return _OUTSIDE.sub(r"`\1`", with_tables(markdown))


def on_page_content(html: str, **_: Any) -> str:
    """Docstrings announce a block of code with two colons, of which one is markup."""
    return html.replace("::</p>", ":</p>")


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
    """The operators of ONNX, PyTorch and Paddle by name, with the lowest opset that each can be written at."""
    from tools.site_data import as_markdown

    rows = sorted([*_of_onnx(), *_of_pytorch(), *_of_paddle()], key=lambda row: row[0].strip("`").lower())
    text = """# Operators

The lowest opset at which each can be expressed, at least in some of its forms; – is one that is refused, and Paddle's
are tried from opset 7 on. What is behind it: [ONNX](opsets.md), [PyTorch](torch-operators.md),
[Paddle](paddle-operators.md).

"""
    return text + as_markdown([["operator", "of", "lowest opset"], *rows]) + "\n"


def _table(name: str) -> list[list[str]]:
    from tools.site_data import DATA, read_table

    return read_table(DATA / name)[1:]


def _of_onnx() -> list[list[str]]:
    """Of the version steps: nothing expresses an operator below a version whose step down is impossible."""
    lowest: dict[str, int] = {}
    for name, versions, below, _ in _table("opsets-version-steps.csv"):
        blocked = max(map(int, versions.split(","))) if below.startswith("**impossible**") else 1
        lowest[name] = max(lowest.get(name, 1), blocked)
    return [[f"`{name}`", "ONNX", str(opset)] for name, opset in lowest.items()]


def _of_pytorch() -> list[list[str]]:
    return [[f"`{name}`", "PyTorch", opset or "–"] for name, opset in _table("torch-lowest-opsets.csv")]


def _of_paddle() -> list[list[str]]:
    rows = _table("paddle-operators-by-operator.csv")
    return [[name, "Paddle", (re.findall(r"\d+", opsets) or ["–"])[0]] for name, _, _, opsets, _ in rows]
