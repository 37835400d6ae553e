"""Walks every link of the built site, and runs the programs in its guides: python -m tests.site.walk site/build"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

from tests.site.programs import OPTIONAL, program

DOCS = Path(__file__).parents[2] / "docs"


class Page(HTMLParser):
    """The links and anchors of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.anchors |= {values[key] or "" for key in ("id", "name") if key in values}
        self.links += [values[key] or "" for key in ("href", "src") if key in values]


def broken(folder: Path) -> list[str]:
    """Links that lead nowhere. Those to other hosts are not asked for."""
    pages: dict[Path, Page] = {}
    for path in folder.rglob("*.html"):
        pages[path.resolve()] = page = Page()
        page.feed(path.read_text("utf-8"))
    wrong = []
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc or path.name == "404.html":
                continue
            place = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            place = place / "index.html" if place.is_dir() else place
            missing = parts.fragment and place in pages and unquote(parts.fragment) not in pages[place].anchors
            if not place.exists() or (missing and not parts.fragment.startswith("__")):
                wrong.append(f"{path.relative_to(folder.resolve())}: {link}")
    return sorted(set(wrong))


def failing_blocks() -> list[str]:
    """Pages whose Python blocks do not run, one after the other, in a folder that has what the text takes as given."""
    wrong = []
    for page in sorted(DOCS.glob("*.md")):
        code = program(page.name)
        if not code:
            continue
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "block.py"  # models are read from source
            file.write_text(code, encoding="utf-8")
            command = [sys.executable, str(file)]
            done = subprocess.run(command, cwd=folder, capture_output=True, encoding="utf-8", check=False)
        last = (done.stderr.strip() or " ").splitlines()[-1]
        lacking = re.match(r"ModuleNotFoundError: No module named '(\w+)", last)
        if done.returncode and lacking and lacking[1] in OPTIONAL:
            print(f"docs/{page.name}: not run to its end, {lacking[1]} is not installed")
        elif done.returncode:
            wrong.append(f"docs/{page.name}: {last}\n{done.stderr[-2000:]}")
    return wrong


def main() -> None:
    wrong = [*broken(Path(sys.argv[1])), *failing_blocks()]
    print("\n".join(wrong) or "every link leads somewhere, and every block runs")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
