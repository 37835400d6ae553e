"""onnx's backend tests of every operator that came after opset 7, taken to opsets before it came."""

from __future__ import annotations

import pytest

from tests.legalise.oracle import all_cases, cases, verdict
from tonnx.ir.schema import history, operators
from tonnx.ir.target import CANON, OLDEST

FIRST = {name: history(name)[0].since for name in operators()}
BIRTHS = {name: since for name, since in FIRST.items() if OLDEST < since <= CANON}
CASES = sorted(name for name in BIRTHS if any(case.opset <= CANON for case in cases(name)))
FAR = (9, 7)
"""Besides the opset just before the birth."""


def test_the_oracle_is_there() -> None:
    assert len(all_cases()) > 1000
    assert len(CASES) > 70


@pytest.mark.parametrize("operator", CASES)
def test_below_birth(operator: str) -> None:
    birth = BIRTHS[operator]
    failures = []
    for case in cases(operator):
        if case.opset > CANON:
            continue
        for opset in sorted({birth - 1, *(o for o in FAR if o < birth)}, reverse=True):
            found = verdict(case, opset)
            if found.kind not in ("passed", "refused", "as the runtime"):
                failures.append(f"{case.name} at {opset}: {found.kind}: {found.reason[:200]}")
    assert not failures, "\n".join(failures)
