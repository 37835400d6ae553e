"""What can be said of the site without building it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tonnx import errors

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
