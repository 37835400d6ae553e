"""What libraries write around their layers: checks of values, caches by size. Each class of it goes through."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils import _pytree as pytree

import tonnx

Sizes = Sequence[tuple[int, int]]
USUAL: Sizes = ((2, 6), (3, 9), (1, 5))


@pytest.fixture(autouse=True)
def arguments_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a new process: torch.compile, which other tests call, has torch.distributions check nothing any more."""
    monkeypatch.setattr(torch.distributions.Distribution, "_validate_args", True)


def rows(b: int, n: int) -> Tensor:
    return torch.rand(b, n, 4)


@dataclass
class Idiom:
    """A model, compared with the file at sizes of which the first is the example's."""

    model: Callable[..., Any] | type[nn.Module]
    note: str = ""
    """What the result must say."""
    example: Callable[[int, int], Tensor] = rows
    sizes: Sizes = USUAL

    def __str__(self) -> str:
        return self.model.__name__


def compare(idiom: Idiom, path: Path) -> tonnx.ExportResult:
    torch.manual_seed(0)
    model: Any = idiom.model() if isinstance(idiom.model, type) else idiom.model
    b, n = idiom.sizes[0]
    x = idiom.example(b, n)
    axes = {0: "b", x.shape.index(n, 1): "n"}
    result = tonnx.export(model, (x,), path, input_names=["x"], dynamic_axes={"x": axes})
    session = onnxruntime.InferenceSession(path.read_bytes())
    for sizes in idiom.sizes:
        x = idiom.example(*sizes)
        with torch.no_grad():
            wanted = pytree.tree_leaves(model(x))
        outputs = session.run(None, {"x": (torch.view_as_real(x) if x.is_complex() else x).numpy()})
        for output, tensor in zip(outputs, wanted, strict=True):
            tensor = torch.as_tensor(tensor)
            tensor = torch.view_as_real(tensor) if tensor.is_complex() else tensor
            np.testing.assert_allclose(output, tensor.numpy(), rtol=1e-3, atol=1e-4)
    assert not idiom.note or any(idiom.note in note for note in result.notes), result.notes
    return result


# Checks of values are no control flow

LEFT_OUT = "a check of values is left out of the file"


def normal(x: Tensor) -> Any:
    chosen = torch.distributions.Normal(x, x.abs() + 1, validate_args=True)
    return chosen.log_prob(2 * x), chosen.entropy()


def categorical(x: Tensor) -> Any:
    chosen = torch.distributions.Categorical(logits=x)
    return chosen.log_prob(x.argmax(-1)), chosen.entropy()


def independent(x: Tensor) -> Tensor:
    each = torch.distributions.Normal(x, x.exp(), validate_args=True)
    return torch.distributions.Independent(each, 1).log_prob(x + 1)


def torch_check(x: Tensor) -> Tensor:
    torch._check(bool(x.min() >= 0), lambda: "negative")
    return x + 1


def torch_check_value(x: Tensor) -> Tensor:
    torch._check_value((x >= 0).all().item())
    return x + 1


def equal_guard(x: Tensor) -> Tensor:
    if torch.equal(x, torch.zeros_like(x)):
        raise ValueError("nothing but zeros")
    return x + 1


CHECKS = [
    Idiom(normal, LEFT_OUT), Idiom(categorical, LEFT_OUT), Idiom(independent, LEFT_OUT),
    Idiom(torch_check, LEFT_OUT), Idiom(torch_check_value), Idiom(equal_guard, LEFT_OUT),
]  # fmt: skip


@pytest.mark.parametrize("idiom", CHECKS, ids=str)
def test_checks_are_left_out(idiom: Idiom, tmp_path: Path) -> None:
    compare(idiom, tmp_path / "net.onnx")


def test_a_check_that_is_caught_decides_something() -> None:
    def caught(x: Tensor) -> Tensor:
        try:
            return torch.distributions.Normal(x, x).log_prob(x)
        except ValueError:
            return x

    with pytest.raises(tonnx.TonnxError, match=r"values of a tensor|is caught"):
        tonnx.export(caught, (torch.rand(3),))


# Caches by size

_BY_SIZE: dict[Any, Tensor] = {}
_MADE_ONCE: Tensor | None = None


@functools.cache
def _positions(n: int) -> Tensor:
    return torch.arange(n).float()


@functools.lru_cache(maxsize=4)
def _channels(n: int) -> Tensor:
    return torch.arange(n).float()


def lru_cache_by_size(x: Tensor) -> Tensor:
    return x * _positions(x.shape[1])[None, :, None]


def lru_cache_of_a_number(x: Tensor) -> Tensor:
    return x * _channels(4)


def global_dict(x: Tensor) -> Tensor:
    n = x.shape[1]
    if n not in _BY_SIZE:
        _BY_SIZE[n] = torch.arange(n).float()
    return x * _BY_SIZE[n][None, :, None]


def global_variable(x: Tensor) -> Tensor:
    global _MADE_ONCE
    if _MADE_ONCE is None:
        _MADE_ONCE = torch.arange(4).float()
    return x * _MADE_ONCE


class DictOfModule(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.masks: dict[Any, Tensor] = {}

    def mask(self, n: int, m: int) -> Tensor:
        mask = self.masks.get((n, m))
        if mask is None:
            self.masks[n, m] = mask = torch.ones(n, m).tril()
        return mask

    def forward(self, x: Tensor) -> Tensor:
        n = x.shape[1]
        return self.mask(n, n) @ x + self.mask(n, 2 * n).sum()


class DictOfClass(nn.Module):
    cache: dict[Any, Tensor] = {}  # noqa: RUF012 (the idiom that is tested)

    def forward(self, x: Tensor) -> Tensor:
        n = x.size(1)
        if (n, x.dtype) not in self.cache:
            self.cache[n, x.dtype] = torch.arange(n).float()
        if 4 not in self.cache:
            self.cache[4] = torch.arange(4).float()
        return x * self.cache[n, x.dtype][None, :, None] + self.cache[4]


class TextKeys(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cache: dict[str, Tensor] = {}

    def forward(self, x: Tensor) -> Tensor:
        if x.sum() > 1e9:  # so that it takes two attempts: what the first one left would be found by the second
            x = x + 1
        key = f"{x.shape[1]}"
        if key not in self.cache:
            self.cache[key] = torch.arange(x.shape[1]).float()
        return x * self.cache[key][None, :, None]


CACHES = [
    Idiom(lru_cache_by_size), Idiom(lru_cache_of_a_number), Idiom(global_dict), Idiom(global_variable),
    Idiom(DictOfModule), Idiom(DictOfClass), Idiom(TextKeys),
]  # fmt: skip


@pytest.mark.parametrize("idiom", CACHES, ids=str)
def test_caches_by_size(idiom: Idiom, tmp_path: Path) -> None:
    compare(idiom, tmp_path / "net.onnx")
    held = [_MADE_ONCE, *_BY_SIZE.values(), *DictOfClass.cache.values(), _channels(4), _positions(3)]
    assert all(type(value) is Tensor for value in held if value is not None), "something of the capture stayed"
    assert all(type(part) is not torch.SymInt for key in (*_BY_SIZE, *DictOfClass.cache) for part in np.ravel([key]))


# Numbers that do not depend on the inputs


class MadeOnce(nn.Module):
    """A flag says whether what depends on data was made; here it was."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("ready", torch.Tensor([True]))
        self.register_buffer("scale", torch.tensor([1.0, 2.0, 3.0, 4.0]))

    def forward(self, x: Tensor) -> Tensor:
        if not self.ready:
            self.scale.copy_(x.mean((0, 1)))
            self.ready.copy_(torch.Tensor([True]))
        return x * self.scale


class NumbersInBuffers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("steps", torch.tensor(3))
        self.register_buffer("grid", torch.tensor([2, 2]))
        self.weight = nn.Parameter(torch.ones(4) + torch.arange(4))

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(self.steps):
            x = x * self.weight + 1
        return x.reshape(x.shape[0], -1, int(self.grid[0]), self.grid[1].item())


def axes_as_a_tensor(x: Tensor) -> Tensor:
    axes = torch.arange(1, len(x.shape)).tolist()
    return (x - x.mean(dim=axes, keepdim=True)) * int(torch.tensor([2, 3]).prod())


def counted_in_a_loop(x: Tensor) -> Tensor:
    count = torch.tensor(0)
    while x.sum() < 50:
        x = x.abs() * 2 + 1
        count += 1
    return x * count


HELD = "decided by the values that the weights have now"
SETTLED = [Idiom(MadeOnce, HELD), Idiom(NumbersInBuffers, HELD), Idiom(axes_as_a_tensor), Idiom(counted_in_a_loop)]


@pytest.mark.parametrize("idiom", SETTLED, ids=str)
def test_numbers_of_weights_and_constants(idiom: Idiom, tmp_path: Path) -> None:
    compare(idiom, tmp_path / "net.onnx")


# Sizes in Python's own functions


def scaled_to_fit(x: Tensor) -> Tensor:
    h, w = x.shape[-2:]
    scale = min(6 / min(h, w), 12 / max(h, w))
    return F.interpolate(x, scale_factor=scale, recompute_scale_factor=True, mode="bilinear")


def padded_to_a_power_of_two(x: Tensor) -> Tensor:
    n = x.shape[1]
    return F.pad(x, [0, 0, 0, 2 ** math.ceil(math.log2(n)) - n])


def side_of_a_square(x: Tensor) -> Tensor:
    return x[:, : int(math.sqrt(x.shape[1])) ** 2] * math.log(x.shape[1]) / math.sqrt(x.shape[1])


def largest_of_a_list(x: Tensor) -> Tensor:
    sides = [x.shape[1], 2 * x.shape[0], 3]
    return x.new_zeros(max(sides), min(sides)) + x.sum()


class RoundedUpToAStride(nn.Module):
    """As detectors pad their pictures: sizes through int, float and ceil, then layers that look at sizes."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(3, 4, 3, 2, 1), nn.MaxPool2d(2), nn.Conv2d(4, 4, 3, 2, 1))

    def forward(self, x: Tensor) -> Tensor:
        sides = [int(math.ceil(float(side) / 8.0) * 8.0) for side in x.shape[-2:]]
        padded = x.new_full((x.shape[0], 3, *sides), 0)
        padded[:, :, : x.shape[2], : x.shape[3]].copy_(x)
        return self.layers(padded)


def cut_by_a_tensor_of_sizes(x: Tensor) -> Tensor:
    length = torch.floor(torch.as_tensor(3 * x.shape[1] / 4)).long()
    return x[:, :length] * torch.tensor([x.shape[0], 1.5, 2, 3])


def windows_as_long_as_the_whole(x: Tensor) -> Tensor:
    parts, step = [], x.shape[1]
    for start in range(0, x.shape[1], step):
        parts.append(x[:, start : start + step] * 2)
    assert len(parts) == 1
    return parts[0]


def positions_between_two_ends(x: Tensor) -> Tensor:
    return x * torch.linspace(-1.0, 1.0, steps=x.shape[1], device=x.device, dtype=x.dtype)[:, None]


def centres_of_cells(x: Tensor) -> Tensor:
    """As deformable attention has its reference points: the ends are sizes as well, or tensors."""
    n = x.shape[1] // 2 + 1
    ends = torch.linspace(x[0, 0, 0], x.new_tensor(2.0), n)
    return torch.stack([torch.linspace(0.5, n - 0.5, n, dtype=x.dtype), ends])


def windows_of_any_length(x: Tensor) -> Tensor:
    n = x.shape[1]
    windows = [torch.hann_window(n), torch.hamming_window(n, periodic=False), torch.bartlett_window(n)]
    return x * torch.stack([*windows, torch.blackman_window(n, False, dtype=x.dtype)], -1)


def step_beside_indices(x: Tensor) -> Tensor:
    """As the score of a conditional random field: one step, every row, its own tag."""
    tags = x.argmax(-1)
    score = x.new_zeros(x.shape[0])
    for step in range(1, x.shape[1]):
        score = score + x.transpose(0, 1)[step, torch.arange(x.shape[0]), tags[:, step]]
    return score


def products_of_three(x: Tensor) -> Tensor:
    return torch.einsum("bnd,bmd,bme->bne", x, 2 * x, x + 1)


def pooled_over_all(x: Tensor) -> Any:
    """As networks had it before there was adaptive pooling; with a window of 1 beside it."""
    sides = x.size()[2:]
    rows = F.avg_pool2d(x, (x.shape[2], 1), stride=1)
    return F.avg_pool2d(x, sides), F.max_pool2d(x, kernel_size=sides), rows, F.avg_pool1d(x[:, 0], x.shape[3])


def padded_to_be_even(x: Tensor) -> Tensor:
    return F.avg_pool2d(x, kernel_size=2, padding=[side % 2 for side in x.shape[2:]])


def halved_until_small(x: Tensor) -> Tensor:
    """As measures of pictures do: the window is a share of the picture."""
    return F.avg_pool2d(x, max(1, round(min(x.shape[-2:]) / 4)))


def mirrored_by_numpy(x: Tensor) -> Tensor:
    """As wavelets pad: places beyond both ends, folded back."""
    n = x.shape[2]
    places, low, span = np.asanyarray(np.arange(-2, n + 3, dtype="int32")), -0.5, n - 0.5 + 0.5
    folded = np.fmod(places - low, 2 * span)
    folded = np.where(folded < 0, folded + 2 * span, folded)
    folded = np.where(folded >= span, 2 * span - folded, folded) + low
    rows, columns = np.meshgrid(folded, np.arange(x.shape[3]))
    rows, columns = (torch.from_numpy(np.array(each, dtype="int64")) for each in (rows, columns))
    return x[:, :, rows, columns]


def picture(b: int, n: int) -> Tensor:
    return torch.randn(b, 3, n, 7)


NUMBERS = [
    Idiom(pooled_over_all, example=picture, sizes=((2, 6), (3, 9), (1, 4))),
    Idiom(mirrored_by_numpy, example=picture, sizes=((2, 6), (3, 9), (1, 4))),
    Idiom(padded_to_be_even, example=picture, sizes=((2, 6), (3, 9), (1, 5))),
    Idiom(halved_until_small, example=picture, sizes=((2, 6), (3, 15), (1, 24))),
    Idiom(positions_between_two_ends, sizes=((2, 6), (3, 9), (1, 1))),
    Idiom(centres_of_cells, sizes=((2, 6), (3, 9), (1, 1))),
    Idiom(windows_of_any_length, sizes=((2, 6), (3, 9), (1, 1))),
    Idiom(products_of_three),
    Idiom(step_beside_indices),
    Idiom(cut_by_a_tensor_of_sizes),
    Idiom(windows_as_long_as_the_whole),
    Idiom(RoundedUpToAStride, example=lambda b, n: torch.rand(b, 3, n, 12), sizes=((2, 10), (3, 16), (1, 21))),
    Idiom(scaled_to_fit, example=lambda b, n: torch.rand(b, 3, n, 8), sizes=((2, 6), (3, 4), (1, 20))),
    Idiom(padded_to_a_power_of_two, sizes=((2, 6), (3, 8), (1, 33), (1, 512))),
    Idiom(side_of_a_square, sizes=((2, 9), (3, 16), (1, 5))),
    Idiom(largest_of_a_list, sizes=((2, 9), (7, 4), (1, 5))),
]


@pytest.mark.parametrize("idiom", NUMBERS, ids=str)
def test_sizes_in_functions_of_python(idiom: Idiom, tmp_path: Path) -> None:
    compare(idiom, tmp_path / "net.onnx")


# Spectra


def sound(b: int, n: int) -> Tensor:
    return torch.randn(b, n)


def masked_spectrum(x: Tensor) -> Tensor:
    window = torch.hann_window(16)
    spectrum = torch.stft(x, 16, 4, window=window, return_complex=True)
    spectrum = spectrum * (spectrum.abs() / (spectrum.abs() + 1))
    return torch.istft(spectrum, 16, 4, window=window, length=x.shape[-1])


def sizes_of_spectra(x: Tensor) -> Any:
    spectrum = torch.fft.rfft(x)
    return spectrum.reshape(spectrum.shape[0], 1, -1), spectrum.numel(), spectrum.size(-1)


@pytest.mark.parametrize("model", [masked_spectrum, sizes_of_spectra], ids=lambda model: model.__name__)
def test_spectra(model: Any, tmp_path: Path) -> None:
    compare(Idiom(model, example=sound, sizes=((2, 80), (3, 97), (1, 64))), tmp_path / "net.onnx")


# Attention


def causal_at_some_sizes(x: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(x, x, x, is_causal=x.shape[1] > 1)


def test_attention_that_is_causal_at_some_sizes(tmp_path: Path) -> None:
    compare(Idiom(causal_at_some_sizes, sizes=((2, 6), (3, 9), (1, 1))), tmp_path / "net.onnx")


# Branches on sizes of which one side serves for all


def pictures(b: int, n: int) -> Tensor:
    return torch.rand(b, 3, n, 6)


class PadsWhatIsMissing(nn.Module):
    """A network with skips, as for segmentation: odd sizes come back one larger."""

    def __init__(self) -> None:
        super().__init__()
        self.down, self.up = nn.Conv2d(3, 3, 3, stride=2, padding=1), nn.ConvTranspose2d(3, 3, 2, 2)

    def forward(self, x: Tensor) -> Tensor:
        y = self.up(self.down(x))
        if y.shape != x.shape:
            missing = x.shape[2] - y.shape[2]
            y = F.pad(y, [0, x.shape[3] - y.shape[3], missing // 2, missing - missing // 2])
        return torch.cat([x, y], 1)


class SizeOfSkip(nn.Module):
    """As diffusers' U-Nets: the size is handed on only where twice the half is not the whole."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Conv2d(3, 3, 3, stride=2, padding=1)

    def upsampled(self, y: Tensor, size: Any = None) -> Tensor:
        return F.interpolate(y, scale_factor=2.0) if size is None else F.interpolate(y, size=size)

    def forward(self, x: Tensor) -> Tensor:
        odd, size = False, None
        for dim in x.shape[-2:]:
            if dim % 2 != 0:
                odd = True
                break
        if odd:
            size = x.shape[2:]
        return self.upsampled(self.down(x), size) + x


class TableThatFits(nn.Module):
    """Positions of the usual size are kept, those of others are computed."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", self.positions(8))

    def positions(self, n: int) -> Tensor:
        return torch.outer(torch.arange(n).float(), torch.ones(4)).sin()

    def forward(self, x: Tensor) -> Tensor:
        n = x.shape[1]
        return x + (self.table if n == len(self.table) else self.positions(n))


GENERAL = [
    Idiom(PadsWhatIsMissing, example=pictures, sizes=((2, 8), (3, 9), (1, 5))),
    Idiom(SizeOfSkip, example=pictures, sizes=((2, 8), (3, 9), (1, 5))),
    Idiom(TableThatFits, sizes=((2, 8), (3, 9), (1, 5))),
]


@pytest.mark.parametrize("idiom", GENERAL, ids=str)
def test_the_general_side_serves(idiom: Idiom, tmp_path: Path) -> None:
    result = compare(idiom, tmp_path / "net.onnx")
    assert "If" not in {node.op_type for node in result.model.graph.all_nodes()}
