"""What is published: `tools/dist.py` builds and tries it; here is what can be seen without building."""

from __future__ import annotations

from pathlib import Path

import pytest
from tools import dist

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "tonnx"
PAGES = sorted(
    str(page.relative_to(ROOT)) for where in ("*.md", "docs/*.md", "examples/*/*.md") for page in ROOT.glob(where)
)


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    file = ROOT / page
    broken = [link for link in dist.relative_links(file.read_text("utf-8")) if not (file.parent / link).exists()]
    assert not broken


def test_every_file_of_the_package_is_packed() -> None:
    tomllib = pytest.importorskip("tomllib")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    packed = {
        file for pattern in project["tool"]["setuptools"]["package-data"]["tonnx"] for file in PACKAGE.glob(pattern)
    }
    code = set(PACKAGE.rglob("*.py"))
    data = {file for file in PACKAGE.rglob("*") if file.is_file() and file.suffix != ".pyc"} - code
    assert PACKAGE / "py.typed" in packed and not data - packed
    assert not [file for file in code if not (file.parent / "__init__.py").exists()]


def test_links_of_a_release() -> None:
    text = "[a](docs/a.md#part), ![b](docs/b.png), [c](https://example.org/c), [d](#d), `x[0](y)`"
    assert dist.absolute_links(text, "https://example.org/me/it/", "v1") == (
        "[a](https://example.org/me/it/blob/v1/docs/a.md#part), ![b](https://example.org/me/it/raw/v1/docs/b.png), "
        "[c](https://example.org/c), [d](#d), `x[0](y)`"
    )
    assert dist.relative_links(text) == ["docs/a.md", "docs/b.png"]
