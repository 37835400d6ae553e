"""A run of a zoo in Markdown, for the summary of a CI job: ``python -m tonnx.zoo.summary RESULT.json FOLDER``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tonnx.zoo.compare import shown
from tonnx.zoo.process import OK
from tonnx.zoo.results import read_rows
from tonnx.zoo.store import Store
from tonnx.zoo.work import error_line

_MOST = 200
"""Rows of the table: a summary may have a megabyte."""


def summary(result: dict[str, Any], folder: str) -> str:
    """What is worse, what fails, and a table; or the error that stopped the run."""
    if "error" in result:
        parts = [f"**{result['error']['what']}**", *(result["error"].get(key) for key in ("where", "why", "hint"))]
        return "\n\n".join(filter(None, parts)) + "\n"
    rows = list(read_rows(Store(folder)).values())
    lines = [f"### tonnx zoo: {result['jobs'] - len(result['failing'])} of {result['jobs']} ok", ""]
    for one in result["regressions"] or ():
        lines.append(f"- **{one['job']}** {one['kind']}: {one['figure']} {one['before']} → {one['after']}")
    lines += ["", "| model | opset | status | size | nodes | difference | latency |", "|---|---|---|---|---|---|---|"]
    for row in sorted(rows, key=lambda row: row["status"] == OK)[:_MOST]:
        cells = [
            "–" if row[key] is None else shown(key, row[key]) for key in ("size", "nodes", "difference", "latency")
        ]
        status = f"{row['status']}: {error_line(row)}".rstrip(": ")
        lines.append(f"| {row['model']} | {row['opset']} | {status.replace('|', '¦')} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def main(arguments: list[str]) -> None:
    text = Path(arguments[0]).read_text(encoding="utf-8").strip().splitlines()
    print(summary(json.loads(text[-1]) if text else {"error": {"what": "tonnx zoo gave no result"}}, arguments[1]))


if __name__ == "__main__":
    main(sys.argv[1:])
