"""Walks every link of the built site, and runs the programs in its guides: python -m tests.site.walk site/build"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

DOCS = Path(__file__).parents[2] / "docs"
RUN = ("index.md", "pytorch.md", "retarget.md")
"""Pages whose blocks are whole programs. Those of other pages are parts of one, and their tests run them."""


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
    """Python blocks that do not run, in an empty folder."""
    wrong = []
    for name in RUN:
        for code in re.findall(r"^```python\n(.*?)^```", (DOCS / name).read_text("utf-8"), re.M | re.S):
            with tempfile.TemporaryDirectory() as folder:
                file = Path(folder) / "block.py"  # models are read from source
                file.write_text(code, encoding="utf-8")
                command = [sys.executable, str(file)]
                done = subprocess.run(command, cwd=folder, capture_output=True, encoding="utf-8", check=False)
            if done.returncode:
                wrong.append(f"docs/{name}: {done.stderr.strip().splitlines()[-1]}\n{code}")
    return wrong


def main() -> None:
    wrong = [*broken(Path(sys.argv[1])), *failing_blocks()]
    print("\n".join(wrong) or "every link leads somewhere, and every block runs")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
