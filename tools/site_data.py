"""Long tables of generated pages are data of the site: a CSV each in site/data, which a repository's page shows, too.

    python tools/site_data.py docs/opsets.md

takes them out of a page that has them; generators call `write_page` in the place of writing the page. `site/hooks.py`
puts them back when the site is built.
"""

from __future__ import annotations

import csv
import io
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT / "site" / "data"
LONG = 30
"""Rows from which on a table is data."""
_TABLE = re.compile(r"(?:^\|.*\|\n)+", re.M)
_PLACE = re.compile(r"^\[(\d+) rows\]\(\.\./site/data/([\w-]+\.csv)\)$", re.M)


def write_page(page: Path, text: str, data: Path = DATA) -> None:
    """Write a page, its long tables apart, called after the page and the heading above them."""

    def moved(match: re.Match[str]) -> str:
        lines = match[0].splitlines()
        if len(lines) - 2 < LONG:
            return match[0]
        heading = re.findall(r"^#+ (.*)$", text[: match.start()], re.M)[-1]
        name = f"{page.stem}-{re.sub(r'[^a-z]+', '-', heading.lower()).strip('-')}.csv"
        write_table(data / name, [_cells(line) for line in (lines[0], *lines[2:])])
        return f"[{len(lines) - 2} rows](../site/data/{name})\n"

    page.write_text(_TABLE.sub(moved, text), encoding="utf-8")


def with_tables(text: str, data: Path = DATA) -> str:
    """A page with its tables in their places again."""
    return _PLACE.sub(lambda match: as_markdown(read_table(data / match[2])), text)


def as_markdown(rows: list[list[str]]) -> str:
    """Rows as a table; the first is its head."""
    lines = [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows]
    return "\n".join([lines[0], "|" + "---|" * len(rows[0]), *lines[1:]])


def write_table(path: Path, rows: list[list[str]]) -> None:
    """Rows as CSV; the first is the head."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    path.parent.mkdir(exist_ok=True)
    path.write_text(text.getvalue(), encoding="utf-8")


def read_table(path: Path) -> list[list[str]]:
    """All rows, the head among them."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file))


def _cells(line: str) -> list[str]:
    """What stands between the bars of a line; an escaped bar is part of a cell."""
    return [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line.strip()[1:-1])]


if __name__ == "__main__":
    for name in sys.argv[1:]:
        write_page(Path(name), Path(name).read_text("utf-8"))
