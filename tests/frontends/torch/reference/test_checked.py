"""Functions of PyTorch that do not look whether they leave their memory are looked after in a trial."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from tonnx.frontends.patching import patched
from tonnx.frontends.torch.reference.mode import CHECKED

X, LU = torch.ones(6, 2), torch.ones(3, 3)
OUT_OF_RANGE: dict[str, Callable[[], object]] = {
    "long": lambda: torch.segment_reduce(X, "sum", lengths=torch.tensor([2, 90]), unsafe=True),
    "negative": lambda: torch.segment_reduce(X, "sum", lengths=torch.tensor([-4, 2]), unsafe=True),
    "offsets": lambda: torch.segment_reduce(X, "sum", offsets=torch.tensor([0, 5, 2]), unsafe=True),
    "pivot": lambda: torch.lu_unpack(LU, torch.tensor([1, 0, 3], dtype=torch.int32)),
}


@pytest.mark.parametrize("name", OUT_OF_RANGE)
def test_out_of_range(name: str) -> None:
    with patched(CHECKED), pytest.raises(ValueError, match="out of range"):
        OUT_OF_RANGE[name]()


@pytest.mark.filterwarnings("ignore")
def test_in_range() -> None:
    with patched(CHECKED):
        sums = torch.segment_reduce(X, "sum", lengths=torch.tensor([2, 1]), unsafe=True)  # not all of it
        assert sums.tolist() == [[2, 2], [1, 1]]
        assert torch.segment_reduce(X, "max", offsets=torch.tensor([0, 6])).tolist() == [[1, 1]]
        assert torch.lu_unpack(LU, torch.tensor([3, 2, 3], dtype=torch.int32))[0].sum() == 3
