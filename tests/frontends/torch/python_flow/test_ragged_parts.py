"""Lists of parts of different sizes, as many as the run makes of them: windows, chunks, frames that are cut."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tests.frontends.torch.capture.test_idioms import Idiom, compare


def chunks(x: Tensor) -> Tensor:
    return torch.cat([part.cumsum(1) for part in x.chunk(4, dim=1)], dim=1)


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
PARTS = [
    *(Idiom(model, sizes=SIZES) for model in (chunks, more_chunks_than_rows, summed_parts, counted_parts, windows)),
    *(Idiom(model, sizes=SIZES) for model in (stacked_windows, growing, filled_before, Padded)),
    Idiom(cut_frames, sizes=((2, 14), (3, 9), (1, 4), (2, 25))),
]  # fmt: skip


@pytest.mark.parametrize("idiom", PARTS, ids=str)
def test_parts(idiom: Idiom, tmp_path: Path) -> None:
    result = compare(idiom, tmp_path / "net.onnx")
    # PyTorch 2.8 asks whether places that only the run knows are within bounds; TorchScript does not.
    ways = ("torch.export", "torch.jit.script") if torch.__version__.startswith("2.8") else "torch.export"
    assert result.capture.startswith(ways), result.capture
    assert not [note for note in result.notes if note.startswith("[!]")]


def halves(x: Tensor) -> Tensor:
    one, other = x.chunk(2, dim=1)
    return one - other


def test_a_number_of_parts_that_the_model_names_is_one(tmp_path: Path) -> None:
    result = compare(Idiom(halves, sizes=((2, 6), (3, 8), (1, 4))), tmp_path / "net.onnx")
    assert "Loop" not in {node.op_type for node in result.model.graph.all_nodes()}
