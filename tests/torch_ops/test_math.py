"""Pointwise arithmetic."""

import torch

from tests.torch_ops.harness import Case, check, table

CASES = [
    Case("add", lambda x, y: x + y, [torch.randn(2, 3), torch.randn(3)], dynamic={0: [0]}),
    Case("add int and float number", lambda x: x + 1.5, [torch.arange(6).reshape(2, 3)], dynamic="all"),
]


@table(CASES)
def test_math(case: Case) -> None:
    check(case)
