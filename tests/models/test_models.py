"""Whole models, exported and verified at other sizes of every dynamic dimension. Minutes long: `make test-models`."""

from __future__ import annotations

import pytest

import tonnx
from tests.models import zoo

pytestmark = pytest.mark.models


@pytest.mark.parametrize("name", [*zoo.TIMM, *zoo.TRANSFORMERS])
def test_model(name: str) -> None:
    example = zoo.example(name)
    result = tonnx.export(
        example.model,
        example.args,
        None,
        kwargs=example.kwargs,
        dynamic_axes=example.dynamic,
        atol=zoo.atol(example),
    )
    assert result.verification is not None and result.verification.ok
    tried = {trial.label for trial in result.verification.trials}
    assert len(tried) > 2, f"only {tried} could be tried"
