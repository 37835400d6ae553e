"""What is published: `tools/dist.py` builds and tries it; here is what can be seen without building."""

from __future__ import annotations

import tarfile
import zipfile
from contextlib import nullcontext
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


@pytest.mark.parametrize(
    ("packed", "size", "message"),
    [
        (["tonnx/__init__.py", "tonnx/py.typed"], 10, None),
        (["tonnx/__init__.py"], 10, "lacks tonnx/py.typed"),
        (["tonnx/__init__.py", "tonnx/py.typed", "tests/test_a.py"], 10, "has tests/test_a.py"),
        (["tonnx/__init__.py", "tonnx/py.typed"], dist.MAX_WHEEL, "more than"),
    ],
)
def test_a_wheel_with_more_or_less_is_refused(
    packed: list[str], size: int, message: str | None, tmp_path: Path
) -> None:
    with zipfile.ZipFile(tmp_path / "a.whl", "w") as archive:
        for name in [*packed, "tonnx-1.dist-info/RECORD"]:
            archive.writestr(name, b"x" * size)
    with nullcontext() if message is None else pytest.raises(SystemExit, match=message):
        dist.check_wheel(tmp_path / "a.whl", ["src/tonnx/__init__.py", "src/tonnx/py.typed"])


def test_an_sdist_without_what_the_readme_shows_is_refused(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as archive:
        archive.add(__file__, "tonnx-1/docs/a.md")
    dist.check_sdist(tmp_path / "a.tar.gz", "[a](docs/a.md)")
    with pytest.raises(SystemExit, match=r"lacks what README\.md links to: docs/b\.md"):
        dist.check_sdist(tmp_path / "a.tar.gz", "[a](docs/a.md) [b](docs/b.md)")
