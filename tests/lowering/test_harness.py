"""The tables' own check: a proof that compared nothing must not pass for one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.lowering.harness import assert_compared
from tonnx.proof.compare import compare
from tonnx.proof.trials.verification import Trial, Verification


def trial(label: str, n: int, rows: int = 3, **more: Any) -> Trial:
    told = () if more else (compare("y", np.ones((rows, 2), "f4"), np.ones((rows, 2), "f4")),)
    return Trial(label, {"n": n}, {"x": (n, 2)}, told, **more)


EXAMPLE = trial("example", 3)
CASES: dict[str, tuple[list[Trial], str, str | None]] = {
    "compared": ([EXAMPLE, trial("n=4", 4)], "", None),
    "the example only": ([EXAMPLE], "", "n was compared at 3 only"),
    "other values of the same size": ([EXAMPLE, trial("zeros", 3)], "", "n was compared at 3 only"),
    "every other size skipped": ([EXAMPLE, trial("n=4", 4, skipped="too long")], "", "not named in the case"),
    "skips named, nothing else": ([EXAMPLE, trial("n=4", 4, skipped="too long")], "long", "n was compared at 3 only"),
    "one skip named": ([EXAMPLE, trial("n=4", 4), trial("n=9", 9, skipped="too long")], "too long", None),
    "another skip": ([EXAMPLE, trial("n=4", 4), trial("n=9", 9, skipped="odd")], "too long", "not named in the case"),
    "a doubt": ([EXAMPLE, trial("n=4", 4), trial("n=2", 2, doubt="rounding")], "", "not named in the case"),
    "a name for nothing": ([EXAMPLE, trial("n=4", 4)], "too long", "nothing was left out because of 'too long'"),
    "empty elsewhere": ([EXAMPLE, trial("n=4", 4, rows=0)], "", "all outputs are empty wherever n is not 3"),
    "empty everywhere": ([trial("example", 3, rows=0), trial("n=4", 4, rows=0)], "", None),
}


@pytest.mark.parametrize("name", CASES)
def test_assert_compared(name: str) -> None:
    trials, left_out, complaint = CASES[name]
    verification = Verification(tuple(trials))
    assert verification.ok  # the proof itself finds no fault in any of them
    if complaint is None:
        assert_compared(verification, left_out)
    else:
        with pytest.raises(AssertionError, match=complaint):
            assert_compared(verification, left_out)
