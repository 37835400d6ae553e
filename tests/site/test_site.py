"""What can be said of the site without building it."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from tools.site_data import DATA, LONG, read_table, with_tables, write_page

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


def test_long_tables_are_data(tmp_path: Path) -> None:
    rows = "".join(f"| `n{i}` | a \\| b, \"c\" |\n" for i in range(LONG))
    short = "| a |\n|---|\n| 1 |\n"
    text = f"# Page\n\n{short}\n## By name\n\n| name | what |\n|---|---|\n{rows}\nThe end.\n"
    page = tmp_path / "page.md"
    write_page(page, text, tmp_path)
    assert "[30 rows](../site/data/page-by-name.csv)\n\nThe end." in page.read_text("utf-8")
    assert read_table(tmp_path / "page-by-name.csv")[1] == ["`n0`", 'a | b, "c"']
    assert with_tables(page.read_text("utf-8"), tmp_path) == text


def test_every_table_that_a_page_names_is_there() -> None:
    texts = [page.read_text("utf-8") for page in (ROOT / "docs").glob("*.md")]
    places = [place for text in texts for place in re.findall(r"^\[(\d+) rows\]\(\.\./site/data/(.*)\)$", text, re.M)]
    assert len(places) >= 4
    assert all(len(read_table(DATA / name)) == int(count) + 1 for count, name in places)


@pytest.mark.parametrize("page", sorted(page.name for page in (ROOT / "docs").glob("*.md")))
def test_no_page_has_a_long_table(page: str) -> None:
    """Whoever writes it calls `write_page`."""
    tables = re.findall(r"(?:^\|.*\|\n)+", (ROOT / "docs" / page).read_text("utf-8"), re.M)
    assert all(len(table.splitlines()) - 2 < LONG for table in tables)
