"""A sample of onnx's backend cases, each at one other opset; all of them at many: `make test-opsets`."""

from __future__ import annotations

import pytest
from tools.site_data import with_tables

from tests.legalise import suite

SAMPLE = 5
"""Every so many cases."""


@pytest.mark.parametrize("part", range(4))
def test_sample(part: int) -> None:
    targets = suite.TARGETS
    cases = [(i, case) for i, case in enumerate(suite.every_case()) if i % SAMPLE == 0 and i // SAMPLE % 4 == part]
    outcomes = [
        suite.try_case(i, target)
        for i, case in cases
        if (target := targets[i // SAMPLE // 4 % len(targets)]) != case.opset
    ]
    assert len(outcomes) > 80
    problems = suite.unexplained(outcomes)
    told = [f"{o.case} at {o.target}: {o.verdict.kind}: {o.verdict.reason[:200]}" for o in problems]
    assert not problems, "\n".join(told)
    assert sum(o.verdict.kind == "passed" for o in outcomes) > 0.7 * len(outcomes)


def test_the_document_tells_of_every_step() -> None:
    """`make test-opsets` writes it; a rule that was added or changed shows in it."""
    page = with_tables(suite.DOCUMENT.read_text("utf-8"))
    assert "\n".join(suite.steps()) in page, "out of date: run `make test-opsets`"
