"""What can be said of the site without building it."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tests.site.programs import blocks, program
from tonnx import cli, errors

ROOT = Path(__file__).parents[2]
KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.TonnxError)]


@pytest.mark.parametrize("kind", KINDS)
def test_every_error_has_an_entry(kind: type[errors.TonnxError]) -> None:
    anchors = {title.lower() for title in re.findall(r"^## (\w+)$", (ROOT / "docs/errors.md").read_text("utf-8"), re.M)}
    assert kind.page.fget(kind.__new__(kind)) == f"errors.md#{kind.__name__.lower()}"  # type: ignore[attr-defined]
    assert kind.__name__.lower() in anchors


def test_every_page_of_the_menu_is_there() -> None:
    menu = (ROOT / "site/mkdocs.yml").read_text("utf-8").partition("\nnav:")[2]
    pages = set(re.findall(r"([\w-]+\.md)", menu))
    assert {page for page in pages if not (ROOT / "docs" / page).is_file()} == {"cli.md", "api.md", "operators.md"}


COMMANDS = [
    (page.name, line)
    for page in [*sorted((ROOT / "docs").glob("*.md")), ROOT / "README.md"]
    for block in [*blocks(page, ""), *blocks(page, "(?:sh|bash|console|text)")]
    for line in re.sub(r"\\\n\s*", "", block).splitlines()
    if line.startswith("tonnx ") and not line.startswith("tonnx COMMAND") and "…" not in line
]


@pytest.mark.parametrize(("page", "line"), COMMANDS)
def test_the_parser_takes_every_command(page: str, line: str) -> None:
    words = shlex.split(line, comments=True)
    for command in " ".join(map(shlex.quote, words)).split(" '&&' "):
        _, name, *others = shlex.split(command)
        cli._parser(name).parse_args([name, *others])


def test_there_are_commands_and_programs() -> None:
    assert len(COMMANDS) > 20 and sum(bool(program(page.name)) for page in (ROOT / "docs").glob("*.md")) > 10


@pytest.mark.parametrize("page", [page.name for page in sorted((ROOT / "docs").glob("*.md")) if program(page.name)])
def test_every_block_is_python(page: str) -> None:
    """They are run by `make test-site`; here, they are read."""
    compile(program(page), page, "exec")
