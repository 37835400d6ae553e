"""The changes between two files as one HTML page that needs no network."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

from tonnx.comparing.changes import Change


def page(title: str, changes: Sequence[Change], numeric: Sequence[str]) -> str:
    """The page as text."""
    rows = "\n".join(
        f'<tr class="{change.kind}"><td>{change.kind}<td><code>{escape(change.what)}</code>'
        f"<td>{escape(change.module)}<td>{escape(change.source)}"
        for change in changes
    )
    count = len(changes)
    figures = "".join(f"<li><code>{escape(line)}</code>" for line in numeric)
    parts = {
        "title": escape(title),
        "summary": f"{count} change{'s' if count != 1 else ''}" if count else "nothing changed",
        "rows": rows,
        "numeric": f"<h2>Run on the same inputs</h2><ul>{figures}</ul>" if figures else "",
    }
    text = Path(__file__).with_name("page.html").read_text(encoding="utf-8")
    for name, value in parts.items():
        text = text.replace("{{" + name + "}}", value)
    return text
