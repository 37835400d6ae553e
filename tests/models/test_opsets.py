"""Every model at opsets from 7 to 26. Long: `make test-models`, or ``pytest -m models tests/models -k bert``."""

from __future__ import annotations

import pytest

from tests.models import opsets, zoo

pytestmark = pytest.mark.models

IMPOSSIBLE: dict[tuple[str, int], str] = {}
"""Model and opset, and what the error must say: where a model truly cannot."""


@pytest.mark.parametrize("name", [*zoo.TIMM, *zoo.TRANSFORMERS])
def test_model_at_every_opset(name: str) -> None:
    row = opsets.measure(name)
    problems = [f"opset {opset}: {problem}" for opset, problem in row.failed.items()]
    for opset, error in row.refused.items():
        wanted = IMPOSSIBLE.get((name, opset))
        if wanted is None or wanted not in str(error):
            problems.append(f"opset {opset}: {error}")
    assert not problems, "\n".join(problems)
    assert row.trials > 2
