"""Functions that take plain numbers only, called with sizes: of PyTorch, of Python, and of numpy."""

from __future__ import annotations

import math
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.fftpack
import torch
from scipy.fft import next_fast_len
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.functional import one_hot, scaled_dot_product_attention

from tests.frontends.torch.capture.test_idioms import Idiom, compare, rows
from tests.frontends.torch.capture.test_idioms_shapes import pictures


def max_over_time(x: Tensor) -> Tensor:
    return F.max_pool1d(x.mT, kernel_size=x.size(1)).squeeze(2)


def average_of_all(x: Tensor) -> Tensor:
    return F.avg_pool2d(x, x.shape[2:]) + F.max_pool2d(x, (x.shape[2], 2), stride=(1, 2)).sum(-1, keepdim=True)


def halves(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    n = x.shape[1]
    return F.avg_pool1d(x.mT, n // 2), F.max_pool1d(x.mT, n // 3, stride=2), nn.AvgPool1d(2, stride=n // 2)(x.mT)


def adapted(x: Tensor) -> tuple[Tensor, ...]:
    """Pooled to a part of the size, and along one axis only."""
    h = x.shape[2]
    lines = x.flatten(0, 1).mT
    maxima = F.adaptive_max_pool2d(x, (h // 2, 2)), nn.AdaptiveMaxPool2d((None, 2))(x)
    of_lines = F.adaptive_max_pool1d(lines, h // 2), F.adaptive_avg_pool1d(lines, h // 2)
    return *maxima, F.adaptive_avg_pool2d(x, h // 2), *of_lines


def half_windows(x: Tensor) -> Tensor:
    return x.unfold(1, x.shape[1] // 2, 1).mean(1)


def classes(x: Tensor) -> tuple[Tensor, ...]:
    places = (x[..., 0] > 0.5).long().cumsum(1)
    largest = places.max() + 1
    safe = F.one_hot(places, max(largest + 1, 3))[..., :3]
    return F.one_hot(places % 3, x.shape[1] + 3), F.one_hot(places), safe, F.one_hot(places, int(largest) + 1)


def pairs(x: Tensor) -> tuple[Tensor, Tensor]:
    n = x.shape[1]
    (i, j), below = torch.triu_indices(n, n, 1), torch.tril_indices(n, n, offset=-1)
    return x[:, i] - x[:, j], x[:, below[0]] * x[:, below[1]]


def diagonals(x: Tensor) -> tuple[Tensor, Tensor]:
    n, square = x.shape[1], x @ x.mT
    return square.diagonal(n - 3, 1, 2), torch.diagonal(square, 2 - n, dim1=-2, dim2=-1)


def logarithmic(x: Tensor) -> Tensor:
    return x * torch.logspace(0, 1, x.shape[1], base=2.0)[:, None]


def of_numpy(x: Tensor) -> Tensor:
    n = x.shape[1]
    return x / np.sqrt(n) + np.log2(n) + np.log(n / 3) + np.log10(n) + int(np.ceil(n / 4))


def of_python(x: Tensor) -> Tensor:
    n = x.shape[1]
    whole, rest = divmod(n, 4)
    return F.pad(x, (0, 0, 0, (1 << (n - 1).bit_length()) - n)) + whole + rest + math.isqrt(n)


def whole_quotients(x: Tensor) -> Tensor:
    n = x.shape[1]
    return x.sum(1) * (4 if (n / 4).is_integer() else 2) * (n if (n / 3).is_integer() else n + 1)


def lists_of_places(x: Tensor) -> tuple[Tensor, ...]:
    n = x.shape[1]
    places = list(range(n))
    table = torch.tensor(places, dtype=torch.float32)[:, None] + torch.tensor(range(0, 2 * n, 2))[:, None]
    halves = torch.tensor([i / 2 for i in range(n)])
    return x * table, x[:, places[::2]], x[:, list(range(n - 1, -1, -1))], x[:, list(range(0, n, 2)), 1], halves


def written_row_by_row(x: Tensor) -> Tensor:
    y, places = torch.zeros_like(x), torch.arange(0, x.shape[1], 2)
    for row in range(x.shape[0]):
        y[row, places] = x[row, places] * 2
    return y


def made_into_tensors(x: Tensor) -> tuple[Tensor, ...]:
    n = x.shape[1]
    scale = x.new_tensor([n, n / 2, 3, 1])
    return x * scale, x.new_tensor(n) + x, x * x.shape[:2].numel(), x[:, [0, n - 1]], x[:, [0, n // 2], 1]


def scaled_and_filled(x: Tensor) -> tuple[Tensor, Tensor]:
    n = x.shape[1]
    return F.scaled_dot_product_attention(x, x, x, scale=n**-0.5), F.pad(x, (0, 1, 1, 0), value=1 / n)


def cut_or_not(x: Tensor) -> Tensor:
    """By a part of an axis that may be all of it."""
    rest = x.shape[1] % 4
    inner = slice(rest // 2, -rest) if rest else slice(rest, None)
    return x[:, inner] * 2


def of_scipy(x: Tensor) -> tuple[Tensor, ...]:
    """A long convolution as it is written with transforms, at lengths that SciPy's C functions choose."""
    n = x.shape[1]
    lengths = next_fast_len(2 * n - 1), next_fast_len(7 * n, real=True), scipy.fftpack.next_fast_len(2 * n + 1)
    rows = [torch.fft.irfft(torch.fft.rfft(x, m, dim=1).square(), m, dim=1) for m in lengths]
    return *(row[:, :n] for row in rows), *(F.pad(x, (0, 0, 0, m - n)) for m in lengths)


def ramps_of_any_dtype(x: Tensor) -> Tensor:
    n = x.shape[1]
    places = torch.linspace(0, n - 1, n, dtype=torch.int64) + torch.linspace(0, 3 * n, n, dtype=torch.int32)
    turns = torch.linspace(0, n - 1, n, dtype=torch.complex64) * 1j / n
    return x * places[:, None] + (turns.exp() * torch.linspace(0, 1, 1, dtype=torch.complex64)).real[:, None]


class ByName(nn.Module):
    """Functions of C that its module has imported."""

    def forward(self, x: Tensor) -> Tensor:
        n = x.shape[1]
        y = scaled_dot_product_attention(x, x, x, is_causal=n > 1)
        return y + one_hot(torch.arange(n), n + 1).sum(1, keepdim=True) + sqrt(n)


def by_name(x: Tensor) -> Tensor:
    return one_hot(torch.arange(x.shape[1]), x.shape[1] + 1)


def attention_after_padding(x: Tensor) -> Tensor:
    """By as much as a tensor says, as codecs of sound compute it."""
    missing = torch.ceil((torch.tensor(x.shape[1]) - 1) / 2).to(torch.int64).item()
    y = F.avg_pool1d(F.pad(x, (0, 0, 1, int(missing))).mT, 2).mT[:, None]
    return F.scaled_dot_product_attention(y, y, y, is_causal=y.shape[-2] > 1)


class MadeOnce(nn.Module):
    """A table that is as large as what was needed until now, after something that is rewritten."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mask", None, persistent=False)

    def table(self, n: int) -> Tensor:
        if self.mask is not None and self.mask.shape[-1] >= n:
            return self.mask[:n, :n]
        self.register_buffer("mask", torch.ones((n, n), dtype=torch.bool).triu(1), persistent=False)
        return self.mask

    def forward(self, x: Tensor) -> Tensor:
        x = x * 2 if x.sum() > 0 else x
        for _ in range(2):
            x = (x @ x.mT).masked_fill(self.table(x.shape[1]), -1e4).softmax(-1) @ x
        return x


class NothingToCall(nn.Module):
    """A space in which layers compute, which is a module that cannot be called."""

    forward: Any = NotImplemented


class Drawn(nn.Module):
    """Numbers from a generator that was not given."""

    def __init__(self) -> None:
        super().__init__()
        self.space = NothingToCall()

    def forward(self, x: Tensor) -> Tensor:
        b, n, _ = x.shape
        noise = torch.randn((b, n, 1), generator=None, dtype=x.dtype) + torch.rand(n, 1, generator=None)
        return x + 0 * noise + 0 * torch.randint(0, 9, (b, 1, 1), generator=None) + 0 * torch.randperm(
            n, generator=None
        ).unsqueeze(1)


MODELS: list[Any] = [
    Idiom(Drawn), Idiom(made_into_tensors), Idiom(scaled_and_filled),
    Idiom(lists_of_places), Idiom(written_row_by_row), Idiom(cut_or_not, sizes=((2, 6), (3, 8), (1, 5))),
    Idiom(cut_or_not, sizes=((2, 8), (3, 6), (1, 5))), Idiom(ByName), Idiom(by_name), Idiom(MadeOnce),
    Idiom(attention_after_padding), Idiom(of_scipy, sizes=((2, 6), (3, 9), (1, 5), (2, 13))), Idiom(ramps_of_any_dtype),
    Idiom(max_over_time), Idiom(halves), Idiom(half_windows), Idiom(classes), Idiom(pairs), Idiom(diagonals),
    Idiom(logarithmic), Idiom(of_numpy), Idiom(of_python, sizes=((2, 6), (3, 9), (1, 5), (2, 8), (2, 16))),
    Idiom(whole_quotients, sizes=((2, 6), (3, 9), (1, 5), (2, 8), (2, 12))),
    Idiom(average_of_all, example=pictures), Idiom(adapted, example=pictures),
]  # fmt: skip


@pytest.mark.parametrize("idiom", MODELS, ids=str)
def test_sizes_as_plain_numbers(idiom: Idiom, tmp_path: Path) -> None:
    result = compare(idiom, tmp_path / "net.onnx")
    assert not any(note.startswith("[!]") for note in result.notes), result.notes


def test_a_table_that_was_made_before(tmp_path: Path) -> None:
    class Before(MadeOnce):
        def __init__(self) -> None:
            super().__init__()
            self(rows(1, 7))

    compare(Idiom(Before), tmp_path / "net.onnx")


def test_what_was_imported_by_name_is_put_back(tmp_path: Path) -> None:
    before = one_hot, scaled_dot_product_attention, sqrt
    compare(Idiom(ByName), tmp_path / "net.onnx")
    assert all(one is other for one, other in zip(before, (one_hot, scaled_dot_product_attention, sqrt), strict=True))


def test_windows_that_are_fixed_are_pooled_as_before(tmp_path: Path) -> None:
    """Not gathered: the axis beside one that is pooled as a whole keeps its operator."""
    import onnx

    compare(Idiom(average_of_all, example=pictures), tmp_path / "net.onnx")
    kinds = [node.op_type for node in onnx.load(tmp_path / "net.onnx").graph.node]
    assert "MaxPool" in kinds and "Gather" not in kinds


def test_plain_windows_are_not_touched(tmp_path: Path) -> None:
    def pooled(x: Tensor) -> Tensor:
        return F.avg_pool1d(x.mT, 2, 2, 0, True, False) + F.max_pool1d(x.mT, 2, 2, ceil_mode=True)

    compare(Idiom(pooled, example=rows), tmp_path / "net.onnx")
