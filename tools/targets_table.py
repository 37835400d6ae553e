"""Writes the table of targets into docs/targets.md: python tools/targets_table.py"""

from __future__ import annotations

from pathlib import Path

from tonnx.targets import names, read_profile

PAGE = Path(__file__).parents[1] / "docs" / "targets.md"
BEGIN, END = "<!-- targets: begin -->", "<!-- targets: end -->"


def table() -> str:
    """A row for each target."""
    rows = ["| target | what | opsets | operators | int64 | shapes | quantisation |", "|---|---|---|---:|---|---|---|"]
    for profile in map(read_profile, names()):
        count = f"all but {len(profile.missing)}" if profile.missing else "not published"
        if profile.operators is not None:
            count = str(len(profile.operators))
        opsets = f"{profile.lowest_opset} to {profile.highest_opset}"
        shapes = "fixed" if profile.static else "dynamic"
        cells = f"`{profile.name}`", profile.title, opsets, count, profile.int64, shapes, profile.quantisation
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def written(text: str) -> str:
    """The page with the table of today."""
    head, _, rest = text.partition(BEGIN)
    return f"{head}{BEGIN}\n\n{table()}\n\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text("utf-8")), encoding="utf-8")
