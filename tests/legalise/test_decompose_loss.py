"""Losses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.legalise.harness import check, random, reference

WEIGHT = random(5, low=0.5, high=2)


@pytest.mark.parametrize("shape", [(6,), (6, 3, 2)])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("ignored", [None, 2, -100])
@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
def test_loss(shape: tuple[int, ...], weighted: bool, ignored: int | None, reduction: str) -> None:
    scores = random(shape[0], 5, *shape[1:])
    labels = random(*shape, dtype=np.int64, low=0, high=4)
    if ignored is not None:
        labels.reshape(-1)[:2] = ignored
    how: dict[str, Any] = {"reduction": reduction}
    if ignored is not None:
        how["ignore_index"] = ignored

    def build(op: Any, x: Any, y: Any) -> Any:
        weight = WEIGHT if weighted else None
        loss, log_prob = op.SoftmaxCrossEntropyLoss(x, y, weight, _outputs=2, **how)
        return [loss, log_prob, op.NegativeLogLikelihoodLoss(log_prob, y, weight, **how)]

    check(build, [scores, labels], targets=(11, 9), oracle=reference)
