"""Puts a table into a Markdown file, between marks of its own: what others wrote there stays."""

from __future__ import annotations

from pathlib import Path


def write_section(path: Path, name: str, title: str, text: str) -> None:
    """Replace the section ``name`` of a file, or append it under its title."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    before = path.read_text(encoding="utf-8") if path.exists() else ""
    if begin not in before:
        before = f"{before.rstrip()}\n\n# {title}\n\n{begin}\n{end}\n".lstrip()
    head, _, rest = before.partition(begin)
    _, _, tail = rest.partition(end)
    path.write_text(f"{head}{begin}\n\n{text.strip()}\n\n{end}{tail}", encoding="utf-8")
