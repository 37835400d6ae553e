"""What libraries write around the shapes of tensors: shapes compared as a whole, masks of bytes, tensors compared."""

from __future__ import annotations

from math import ceil, log2
from pathlib import Path
from typing import Any

import pytest
import sympy
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils._sympy.functions import FloorDiv, IntTrueDiv, Mod, PythonMod, ToFloat

import tonnx
from tests.frontends.torch.capture.test_idioms import Idiom, compare
from tests.frontends.torch.capture.test_record import recorded
from tonnx.frontends.torch.capture.patches.multiples import as_multiple, rounded_quotient, whole_quotient


def mask_of_bytes(x: Tensor) -> tuple[Tensor, Tensor]:
    mask = (x > 0.5).to(torch.uint8)
    return torch.where(mask, x, 2 * x), x.where(condition=mask, other=-x)


def plain_class(x: Tensor) -> Tensor:
    """As libraries do that have tensors of classes of their own; with a constant on one side of a branch."""
    y = x.as_subclass(torch.Tensor).to(torch.float32)
    if torch.any(y > 0.9):
        y[y > 0.9] = 1.0
    return y * 2


def equal_of_other_sizes(x: Tensor) -> Tensor:
    even, odd = 0 * x[:, ::2], 0 * x[:, 1::2]
    return x + 1 if torch.equal(even, odd) else x * 2


def shapes_compared(x: Tensor) -> Tensor:
    y = F.interpolate(F.avg_pool1d(x.mT, 2), scale_factor=2)
    if y.shape[1:] != x.mT.shape[1:]:
        y = F.interpolate(y, size=x.shape[1]) + 1
    return y


class UsualSizes(nn.Module):
    """A table for the usual sizes, something else for all others, as shifted windows have it."""

    def __init__(self) -> None:
        super().__init__()
        self.usual = (2, 6)
        self.register_buffer("table", torch.arange(12.0).reshape(2, 6, 1))

    def forward(self, x: Tensor) -> Tensor:
        sizes = (x.shape[0], x.shape[1])
        return x + self.table if self.usual == sizes else x * 2 + torch.arange(sizes[1])[:, None]


def made_by_classes(x: Tensor) -> Tensor:
    return x * torch.Tensor([x.shape[1] / 2, 1, 2, 3]) + torch.LongTensor([x.shape[1]])


def power_of_two(x: Tensor) -> Tensor:
    """By names that were imported, which nobody can replace in the module that they come from."""
    n = x.shape[1]
    padded = F.pad(x, (0, 0, 0, 2 ** ceil(log2(n)) - n))
    return padded.cumsum(1) / padded.shape[1]


def pictures(b: int, n: int) -> Tensor:
    return torch.rand(b, 3, n, 6)


def nearest(x: Tensor) -> Tensor:
    return F.interpolate(F.avg_pool2d(x, 2, 1), scale_factor=2)


def windows(x: Tensor) -> Tensor:
    """Padded to windows and cut again, then halved, twice."""
    for _ in range(2):
        h = x.shape[2]
        y = F.pad(x, (0, 0, 0, (3 - h % 3) % 3))
        y = y.unflatten(2, (y.shape[2] // 3, 3)).softmax(3).flatten(2, 3)
        x = F.pad(x + y[:, :, :h], (0, 0, 0, h % 2))
        x = x[:, :, 0::2] + x[:, :, 1::2]
    return x


def one_window(x: Tensor) -> Tensor:
    """Of which there is one in the example: rows of windows and of pictures are as many there, and a mask is one."""
    b, c, h, w = x.shape
    y = F.pad(x, (0, 0, 0, (4 - h % 4) % 4))
    count, shift = y.shape[2] // 4, 2
    if count == 1:
        shift = 0
    y = y.unflatten(2, (count, 4)).transpose(1, 2).reshape(b * count, c, 4, w)
    places = torch.arange(count * 4).roll(shift).view(count, 4).float()
    mask = places.unsqueeze(1) - places.unsqueeze(2)
    y = (mask[None, :, None] @ y.view(b, count, c, 4, w)).view(b * count, c, 4, w)
    return y.view(b, count, c, 4, w).transpose(1, 2).flatten(2, 3)[:, :, :h]


def small_picture(x: Tensor) -> Tensor:
    """Whose features are one pixel high, to which torch would limit the picture."""
    y = F.avg_pool2d(x, 4, 4, ceil_mode=True)
    rows = y.permute(0, 2, 3, 1).reshape(x.shape[0] * y.shape[2], -1, 3)
    return rows + torch.arange(rows.shape[0])[:, None, None]


def multiples_only(x: Tensor) -> Tensor:
    """Many checks that other sizes do not pass, then a branch that multiples take otherwise."""
    h = x.shape[2]
    for left in (h % 8, h // 2 % 4, h // 4 % 2, 3 * h % 8, 5 * h % 8):
        if left:
            raise ValueError("not a multiple of 8")
    y = x * 2 if h <= 16 else x * h
    return y + ceil(h / 8)


def as_many_modes(x: Tensor) -> Tensor:
    """Of seven modes those that the result has; where it has more, the transform fills them up."""
    modes = torch.fft.rfft(x.mean(1, keepdim=True).expand(-1, 12, -1).cumsum(1), dim=1)
    return torch.fft.irfft(modes[:, : x.shape[1] // 2 + 1], x.shape[1], dim=1) + x


class SamePadding(nn.Module):
    """As TensorFlow pads: what comes after has sizes that only the run knows, and torch's kernels ask about them."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 3, 3, 2), nn.BatchNorm2d(3)
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        height = int(x.shape[2])
        pad = max(3 - 2, 0) if height % 2 == 0 else max(3 - height % 2, 0)
        x = self.norm(self.conv(F.pad(x, (1, 1, pad // 2, pad - pad // 2))))
        pooled = F.adaptive_avg_pool2d(x, 1)
        return x + F.interpolate(pooled, size=x.shape[2:], mode="bilinear", align_corners=True)


class Resized(nn.Module):
    """A table of places, stretched by a factor that is a little more than what its new size says."""

    def __init__(self, mode: str, **options: Any) -> None:
        super().__init__()
        self.mode, self.options = mode, options
        rank = {"linear": 1, "trilinear": 3}.get(mode, 2)
        self.table = nn.Parameter(torch.rand(1, 3, *(4, 3, 3)[:rank]))

    def forward(self, x: Tensor) -> Tensor:
        factors = [(x.shape[2] + 0.1) / 4, x.shape[3] / 3, 1.0][: self.table.dim() - 2]
        table = self.table.movedim(1, -1).contiguous().movedim(-1, 1)  # channels last: the result is, too
        resized = F.interpolate(table, scale_factor=factors, mode=self.mode, **self.options)
        return x.mean() + (resized.movedim(1, -1).view(-1, 3) if resized.dim() == 4 else resized)


RESIZED: list[tuple[str, dict[str, Any]]] = [
    ("nearest", {}), ("nearest-exact", {}), ("area", {}), ("linear", {}), ("bilinear", {}), ("trilinear", {}),
    ("bicubic", {}), ("bicubic", {"align_corners": True}), ("bilinear", {"recompute_scale_factor": True}),
    ("bilinear", {"antialias": True}), ("bicubic", {"antialias": True}),
]  # fmt: skip


SHAPES = [
    Idiom(SamePadding, example=pictures, sizes=((2, 8), (3, 9), (1, 13))),
    Idiom(multiples_only, example=pictures, sizes=((2, 16), (3, 24), (1, 8))),
    Idiom(one_window, example=pictures, sizes=((2, 4), (3, 9), (1, 16))),
    Idiom(small_picture, example=pictures, sizes=((1, 4), (3, 9), (1, 16))),
    Idiom(mask_of_bytes), Idiom(equal_of_other_sizes), Idiom(shapes_compared), Idiom(made_by_classes),
    Idiom(power_of_two), Idiom(plain_class), Idiom(as_many_modes, sizes=((2, 13), (3, 9), (1, 18))),
    Idiom(UsualSizes), Idiom(UsualSizes, sizes=((2, 9), (2, 6), (3, 6))),
    Idiom(nearest, example=pictures), Idiom(windows, example=pictures, sizes=((2, 14), (3, 9), (1, 5))),
]  # fmt: skip


@pytest.mark.parametrize("idiom", SHAPES, ids=str)
def test_shapes(idiom: Idiom, tmp_path: Path) -> None:
    compare(idiom, tmp_path / "net.onnx")


@pytest.mark.parametrize(("mode", "options"), RESIZED, ids=str)
def test_resizing_by_factors_of_sizes(mode: str, options: dict[str, Any], tmp_path: Path) -> None:
    model = Resized(mode, **options)
    compare(Idiom(model, example=pictures, sizes=((2, 7), (3, 4), (1, 2), (1, 12))), tmp_path / "net.onnx")


@pytest.mark.parametrize("model", [mask_of_bytes, nearest])
def test_shapes_are_found_by_the_recorder(model: Any) -> None:
    recorded(model, pictures(2, 6), axes={"x": {0: "b", 2: "n"}})


def test_what_sympy_cannot_solve_is_no_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def unsolved(*args: object) -> None:
        raise NotImplementedError("the inequality cannot be solved")

    monkeypatch.setattr("sympy.solvers.inequalities.reduce_inequalities", unsolved)
    compare(Idiom(shapes_compared), tmp_path / "net.onnx")


H, W = sympy.symbols("h w", integer=True, positive=True)
MULTIPLES = [
    (H + PythonMod(7 - Mod(H, 7), 7), 7 * FloorDiv(H + 6, 7)),
    (H + Mod(H, 2), 2 * FloorDiv(H + 1, 2)),
    (H + PythonMod(-H, 8), 8 * FloorDiv(H + 7, 8)),
    (H - Mod(H, 4), 4 * FloorDiv(H, 4)),
    (H + 8 - Mod(H, 8), 8 * FloorDiv(H, 8) + 8),
    (H + Mod(H, 3), None),
    (W + PythonMod(-H, 8), None),
    (H + PythonMod(5 - Mod(H, 7), 7), None),
    (H + 1 - Mod(H, 2), None),
]


@pytest.mark.parametrize(("size", "multiple"), MULTIPLES, ids=str)
def test_what_is_padded_to_a_multiple_is_written_as_one(size: Any, multiple: Any) -> None:
    shorter = as_multiple(size)
    assert shorter == (size if multiple is None else multiple)
    for n in range(1, 40):
        at = {H: sympy.Integer(n), W: sympy.Integer(2 * n + 3)}
        assert shorter.xreplace(at) == size.xreplace(at)


QUOTIENTS = [
    (FloorDiv(3 * H - 1, H), 2),
    (FloorDiv(4 * H + 4, H + 1), 4),
    (FloorDiv(3 * H + 3 * W - 1, H + W), 2),
    (FloorDiv(3 * H + 1, H), None),
    (FloorDiv(3 * H - 2, H), None),
    (FloorDiv(3 * H + W, H), None),
    (FloorDiv(H - 1, 4), None),
    (FloorDiv(3 * (H - W) - 1, H - W), None),  # which may be negative
]


@pytest.mark.parametrize(("quotient", "number"), QUOTIENTS, ids=str)
def test_a_number_of_equal_parts_is_plain(quotient: Any, number: int | None) -> None:
    assert whole_quotient(quotient) == (quotient if number is None else number)
    for n in range(1, 40) if number is not None else ():
        assert quotient.xreplace({H: sympy.Integer(n), W: sympy.Integer(2 * n + 3)}) == number


ROUNDED = [
    ("ceil", IntTrueDiv(H, 256), FloorDiv(H + 255, 256)),
    ("floor", IntTrueDiv(H, W), FloorDiv(H, W)),
    ("trunc", ToFloat(H) * sympy.Float(0.75), FloorDiv(3 * H, 4)),
    ("trunc", IntTrueDiv(H - W, 2), None),  # which may be negative
    ("floor", ToFloat(H) * sympy.Float(0.1), None),  # not exact
    ("floor", IntTrueDiv(H, H - W), None),
]


@pytest.mark.parametrize(("rounding", "number", "quotient"), ROUNDED, ids=str)
def test_a_rounded_fraction_of_a_size_is_a_quotient(rounding: str, number: Any, quotient: Any) -> None:
    assert rounded_quotient(rounding, number) == quotient


def test_parts_of_what_was_joined(tmp_path: Path) -> None:
    class Both(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            one, other = torch.cat([x, 2 * x]).chunk(2)
            return one - other

    result = tonnx.export(Both(), torch.rand(2, 3), tmp_path / "net.onnx", dynamic_shapes=({0: "b"},))
    assert not result.notes and result.capture == "recorder"
