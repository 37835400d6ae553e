"""A few families, quickly; all of them: ``make test-generate``."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("transformers")

from tests.generation.case import COLUMNS, Case
from tests.generation.suite import is_right

_LONG = [pytest.param(family, marks=pytest.mark.models) for family in ("gpt2", "gemma2", "mamba")]


@pytest.mark.parametrize("family", ["llama", *_LONG])
def test_family(family: str, tmp_path: Path) -> None:
    case = Case(family, tmp_path)
    results = {name: column(case) for name, column in COLUMNS.items()}
    assert all(is_right(result) for result in results.values()), results
