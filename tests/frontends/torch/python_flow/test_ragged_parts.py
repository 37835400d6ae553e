"""Lists of parts of different sizes, as many as the run makes of them: windows, chunks, frames that are cut."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import tonnx
from tests.frontends.torch.capture.test_idioms import Idiom, compare
from tonnx.proof.session import Session


def chunks(x: Tensor) -> Tensor:
    return torch.cat([part.cumsum(1) for part in x.chunk(4, dim=1)], dim=1)


def as_many_chunks_as_fit(x: Tensor) -> Tensor:
    return torch.cat([part - part.mean(1, keepdim=True) for part in x.chunk(-(-x.shape[1] // 4), 1)], 1)


def more_chunks_than_rows(x: Tensor) -> Tensor:
    return torch.cat([part * 2 for part in torch.chunk(x, 100, dim=1)], dim=1)


def summed_parts(x: Tensor) -> Tensor:
    return sum(part.mean(1) for part in x.split(4, dim=1))  # type: ignore[return-value]


def counted_parts(x: Tensor) -> Tensor:
    parts = x.split(4, dim=1)
    return parts[-1].sum(1) + len(parts)


def windows(x: Tensor) -> Tensor:
    outputs = []
    for start in range(0, x.shape[1], 4):
        outputs.append(x[:, start : start + 4].cumsum(1))
    return torch.cat(outputs, dim=1)


def stacked_windows(x: Tensor) -> Tensor:
    return torch.stack([x[:, i : i + 3] for i in range(0, x.shape[1] - 2, 2)], dim=1)


def cut_frames(x: Tensor) -> Tensor:
    """Overlapping frames, of which the first and last lose less: as demucs joins what its recurrent layer gave."""
    length = x.shape[1]
    count = (length + 3) // 4
    frames = F.pad(x, (0, 0, 0, 4 * count + 4 - length)).unfold(1, 8, 4).cumsum(-1)
    parts = []
    for k in range(count):
        if k == 0:
            parts.append(frames[:, k, :, :-2])
        elif k == count - 1:
            parts.append(frames[:, k, :, 2:])
        else:
            parts.append(frames[:, k, :, 2:-2])
    return torch.cat(parts, -1)[..., :length]


def growing(x: Tensor) -> Tensor:
    return torch.cat([x[:, : i + 1].mean(1, keepdim=True) + x[:, : i + 1] for i in range(x.shape[1])], 1)


def filled_before(x: Tensor) -> Tensor:
    parts = [x[:, :1]]
    for start in range(0, x.shape[1], 4):
        parts.append(x[:, start : start + 4] + 1)
    return torch.cat(parts, 1)


class Padded(nn.Module):
    """Padded where it is too short, and to whole steps: the layers after it ask for sizes that a branch has left."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv1d(4, 4, 4, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = x.mT
        if x.shape[-1] <= 8:
            x = F.pad(x, (0, 9 - x.shape[-1]))
        x = F.pad(x, (8, 8), mode="reflect")
        if x.shape[-1] % 4 != 0:
            x = F.pad(x, (0, 4 - x.shape[-1] % 4))
        y = self.layer(x)
        return y.reshape(y.shape[0], -1) if y.shape[-1] > 9 else y.flatten(1) * 2


SIZES = ((2, 14), (3, 9), (1, 4), (1, 3), (2, 25))


def tiles(x: Tensor) -> Tensor:
    """Tiles that overlap, by a step that is as small as the tile where the picture is."""
    n = x.shape[1]
    tile = min(6, n)
    whole, times = torch.zeros_like(x), torch.zeros(n, 1)
    for start in list(range(0, n - tile, tile - 2)) + [n - tile]:  # noqa: RUF005
        whole[:, start : start + tile] += x[:, start : start + tile].cumsum(1)
        times[start : start + tile] += 1
    for end in range(n, 0, 1 - tile):
        times[end - 1] *= 2
    return whole / times


PARTS = [
    *(Idiom(model, sizes=SIZES) for model in (chunks, more_chunks_than_rows, summed_parts, counted_parts, windows)),
    Idiom(as_many_chunks_as_fit, sizes=SIZES),
    *(Idiom(model, sizes=SIZES) for model in (stacked_windows, growing, filled_before, Padded)),
    Idiom(cut_frames, sizes=((2, 14), (3, 9), (1, 4), (2, 25))),
    Idiom(tiles, sizes=((2, 14), (3, 9), (1, 5), (2, 25))),
]  # fmt: skip


@pytest.mark.parametrize("idiom", PARTS, ids=str)
def test_parts(idiom: Idiom, tmp_path: Path) -> None:
    result = compare(idiom, tmp_path / "net.onnx")
    # PyTorch 2.8 asks whether places that only the run knows are within bounds; TorchScript does not.
    scripted = {"torch.jit.script"} if torch.__version__.startswith("2.8") else set()
    assert result.capture in {"torch.export", "control flow rewritten"} | scripted, result.capture
    assert not [note for note in result.notes if note.startswith("[!]")]


def halves(x: Tensor) -> Tensor:
    one, other = x.chunk(2, dim=1)
    return one - other


def test_a_number_of_parts_that_the_model_names_is_one(tmp_path: Path) -> None:
    result = compare(Idiom(halves, sizes=((2, 6), (3, 8), (1, 4))), tmp_path / "net.onnx")
    assert "Loop" not in {node.op_type for node in result.model.graph.all_nodes()}


def halves_of_picked_rows(x: Tensor) -> Tensor:
    rows = x[torch.nonzero(x[:, 0, 0] > 0.5).flatten()]
    one, other = torch.cat([rows, 2 * rows]).chunk(2)
    return other - one


def test_parts_of_what_was_picked(tmp_path: Path) -> None:
    result = compare(Idiom(halves_of_picked_rows, sizes=((7, 3), (4, 3), (1, 3))), tmp_path / "net.onnx")
    assert result.capture == "control flow rewritten"


def parts_of_lengths(x: Tensor, lengths: Tensor) -> Tensor:
    return torch.stack([part.mean(0) for part in torch.split(x, lengths.tolist())])


def centred_parts(x: Tensor, lengths: Tensor) -> Tensor:
    return torch.cat([part - part.mean(0) for part in x.split(lengths.tolist(), 0)])


def padded_parts(x: Tensor, lengths: Tensor) -> Tensor:
    return nn.utils.rnn.pad_sequence(list(torch.split(x, lengths.tolist())), batch_first=True)


def parts_from_places(x: Tensor, lengths: Tensor) -> Tensor:
    sums, start = [], 0
    for length in lengths.tolist():
        sums.append(x[start : start + length].sum(0))
        start += length
    return torch.stack(sums)


@pytest.mark.parametrize("count", ["any number", "as many as in the example"])
@pytest.mark.parametrize("model", [parts_of_lengths, centred_parts, padded_parts, parts_from_places])
def test_lengths_as_a_list(model: Callable[..., Tensor], count: str) -> None:
    axes = {"x": {0: "t"}, "lengths": {0: "b"}} if count == "any number" else {"x": {0: "t"}}
    result = tonnx.export(model, (torch.randn(6, 4), torch.tensor([3, 1, 2])), dynamic_axes=axes)
    session = Session(result.proto.SerializeToString())
    for lengths in ([3, 1, 2], [1, 4, 5], *([[2, 2], [5]] if count == "any number" else [])):
        x, n = torch.randn(sum(lengths), 4), torch.tensor(lengths)
        (got,) = session.run({"x": x.numpy(), "lengths": n.numpy()}).values()
        np.testing.assert_allclose(got, model(x, n).numpy(), rtol=1e-4, atol=1e-5)
