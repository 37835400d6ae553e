"""An index with numbers that only the run knows picks what Python's indexing picks."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tonnx.frontends.torch.capture.run_time_places import RunTimePlaces

N, M = torch.tensor(2), torch.tensor(-1, dtype=torch.int32)
INDICES = {
    "number": N,
    "below zero": (slice(None), M),
    "end": slice(None, N),
    "every second": (slice(1, None), slice(None, None, N)),
    "new axes": (None, N, None, slice(M, None), None),
    "the last axes": (..., N, slice(0, N)),
    "between": (N, ..., M),
    "beside a plain number": (1, N),
    "beside places": (N, torch.tensor([1, 0, 1])),
    "beside a mask": (torch.tensor([True, False, True]), N),
    "beside a truth": (True, N),
    "a mask of rank 0": torch.tensor(True),
    "plain": (slice(1, 3), 0),
}


@pytest.mark.parametrize("name", INDICES)
def test_the_same_is_picked(name: str) -> None:
    x, index = torch.arange(60.0).reshape(3, 4, 5), INDICES[name]
    with RunTimePlaces():
        picked = x[index]
    torch.testing.assert_close(picked, x[index], rtol=0, atol=0)


@pytest.mark.parametrize(("index", "error"), [((N, N, N, N), IndexError), (torch.tensor(7), IndexError)])
def test_bad_indices_fail_as_ever(index: Any, error: type[Exception]) -> None:
    with RunTimePlaces(), pytest.raises(error):
        torch.ones(3, 4, 5)[index]
