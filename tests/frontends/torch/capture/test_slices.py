"""Slices whose bounds, steps and parts are sizes, and lie within the axis at some sizes only."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from tests.frontends.torch.capture.test_idioms import Idiom, compare

FAR = ((2, 7), (3, 12), (1, 3), (2, 1), (2, 30))


def filled_up_to_a_size(x: Tensor) -> Tensor:
    filled = x.clone()
    filled[..., : x.shape[1] // 2] = 1.0
    return filled


def filled_between(x: Tensor) -> tuple[Tensor, Tensor]:
    """At one row the end lies before the beginning."""
    filled, n = x.clone(), x.shape[1]
    filled[..., 1 : n // 2] = 1.0
    rows = x.clone()
    rows[:, 3:9] += 2.0
    return filled, rows


def bounds_beyond_the_axis(x: Tensor) -> tuple[Tensor, ...]:
    n = x.shape[1]
    flat = x[..., : n // 2].reshape(x.shape[0], -1)
    return flat, x[..., n // 2 :] * 2, x[:, 3:9], x[:, -9:-2].relu(), torch.cat([x[:, :5], x[:, n - 1 :]], 1)


def as_many_as_there_are(x: Tensor) -> tuple[Tensor, Tensor]:
    first = x[:, :2]
    return first.shape[1] * x, pad_sequence([x[0], x[0, :2]], batch_first=True)


def steps_of_a_size(x: Tensor) -> tuple[Tensor, ...]:
    n = x.shape[1]
    marked, scaled = x.clone(), x.clone()
    marked[:, :: n // 2 + 1] = 2.0
    scaled[:, 1 :: n // 2 + 1] *= 2.0
    return x[:, :: max(n // 3, 1)], marked, scaled


def last_part_of_a_size(x: Tensor) -> tuple[Tensor, Tensor]:
    parts = x.split(x.shape[1] % 3 + 1, 1)
    return parts[-1], len(parts) * parts[0]


def parts_that_one_size_has(x: Tensor) -> Tensor:
    """Of an even number of rows there are two, else three."""
    return torch.cat([part.mean(1, keepdim=True) for part in x.split(x.shape[1] // 2, 1)], 1)


def written_on_one_side(x: Tensor) -> Tensor:
    """What is given is made before it is written to: as it was made, it is what the other side gives."""
    if x.shape[1] > 4:
        x = x.clone()
        x[..., 0] = 0.5
    return x


@pytest.mark.parametrize(
    "idiom",
    [
        *(Idiom(model, sizes=FAR) for model in (filled_up_to_a_size, filled_between, bounds_beyond_the_axis)),
        *(Idiom(model, sizes=FAR) for model in (as_many_as_there_are, steps_of_a_size, last_part_of_a_size)),
        Idiom(as_many_as_there_are, sizes=((2, 16), (3, 1), (1, 2))),
        Idiom(parts_that_one_size_has, sizes=((2, 7), (3, 12), (1, 3), (2, 2))),
        *(Idiom(written_on_one_side, sizes=(first, (3, 4), (1, 9), (2, 1))) for first in ((2, 7), (2, 16), (2, 3))),
    ],
    ids=str,
)
def test_slices_at_any_size(idiom: Idiom, tmp_path: Path) -> None:
    compare(idiom, tmp_path / "net.onnx")


def test_the_file_says_how_long_a_slice_is(tmp_path: Path) -> None:
    """It said 0 rows of what lies behind ``n // 2`` of 4."""
    compare(Idiom(lambda x: (x[..., x.shape[1] // 2 :], x[:, 1:-1])), tmp_path / "net.onnx")
    outputs = onnx.load(tmp_path / "net.onnx").graph.output
    assert [output.type.tensor_type.shape.dim[2].dim_param for output in outputs[:1]] == ["4 - Min(4, (n//2))"]
    assert outputs[1].type.tensor_type.shape.dim[1].dim_param == "n - 2"
