"""Activations below the opset they came with."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.legalise.harness import ALL, check, random

CASES: dict[str, Any] = {
    "swish": lambda op, x: op.Swish(x),
    "swish with alpha": lambda op, x: op.Swish(x, alpha=1.7),
    "gelu": lambda op, x: op.Gelu(x),
    "gelu tanh": lambda op, x: op.Gelu(x, approximate="tanh"),
    "mish": lambda op, x: op.Mish(x),
    "hard swish": lambda op, x: op.HardSwish(x),
    "celu": lambda op, x: op.Celu(x),
    "celu with alpha": lambda op, x: op.Celu(x, alpha=0.6),
    "thresholded relu": lambda op, x: op.ThresholdedRelu(x, alpha=0.5),
    "hard shrink": lambda op, x: op.Shrink(x, lambd=0.7),
    "soft shrink": lambda op, x: op.Shrink(x, lambd=0.7, bias=0.7),
}


@pytest.mark.parametrize("case", CASES)
def test_activation(case: str) -> None:
    check(CASES[case], [random(3, 40, low=-6, high=6)], targets=(23, 17, 13, 11, 9, 8, 7))


def test_dynamic_shape() -> None:
    check(lambda op, x: op.Swish(op.Mish(op.Gelu(x))), [random(2, 5)], targets=ALL, dynamic=True)


def test_half_precision() -> None:
    x = random(2, 9, dtype=np.float16)
    check(lambda op, x: op.Swish(op.Gelu(x)), [x], targets=(13, 9, 7), rtol=5e-3, atol=5e-3)


def test_infinities_survive_a_choice_without_where() -> None:
    x = np.array([-np.inf, -1, 0, 2, np.inf], np.float32)
    check(lambda op, x: op.ThresholdedRelu(x, alpha=1.0), [x], targets=(9, 8, 7))
