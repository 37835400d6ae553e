"""Interpolation by factors that are computed of sizes: PyTorch takes plain numbers for them.

``F.interpolate(table, scale_factor=((h + 0.1) / 16, (w + 0.1) / 16), mode="bicubic")``: positions are those that the
factors say, which are not those of the sizes that come of them. Axis by axis, pixels are picked, or weighed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from tonnx.frontends.patching import How, Patch

_SYMBOLIC = (torch.SymInt, torch.SymFloat)


def _interpolate(
    original: Any,
    input: torch.Tensor,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> torch.Tensor:
    factors = list(scale_factor) if isinstance(scale_factor, (list, tuple)) else [scale_factor] * (input.dim() - 2)
    given = size is not None or recompute_scale_factor or mode.startswith("lanczos")
    if given or not any(isinstance(factor, _SYMBOLIC) for factor in factors):
        return original(  # type: ignore[no-any-return]
            input, size, scale_factor, mode, align_corners, recompute_scale_factor, antialias
        )
    axes = [_Axis(n, torch.sym_int(n * factor), factor) for n, factor in zip(input.shape[2:], factors, strict=True)]
    if align_corners or mode == "area":  # positions are those of the sizes
        sizes = [axis.count for axis in axes]
        return original(input, sizes, None, mode, align_corners, None, antialias)  # type: ignore[no-any-return]
    layout = _layout(input)
    for place, axis in enumerate(axes, 2):
        if mode == "nearest":
            input = input.index_select(place, axis.picks(0.0, (1, 2) if len(axes) == 2 else ()))
        elif mode == "nearest-exact":
            input = input.index_select(place, axis.picks(0.5, ()))
        else:
            weights = (axis.filtered if antialias else axis.taps)(mode == "bicubic").to(input.dtype)
            input = (weights @ input.movedim(place, -2)).movedim(-2, place)
    return input.contiguous(memory_format=layout)


def _layout(x: torch.Tensor) -> torch.memory_format:
    """The order in memory that the result has, too: what is a view of it depends on that."""
    if x.is_contiguous() or x.dim() not in (4, 5):
        return torch.contiguous_format
    last = torch.channels_last if x.dim() == 4 else torch.channels_last_3d
    return last if x.is_contiguous(memory_format=last) else torch.contiguous_format


@dataclass(frozen=True)
class _Axis:
    """What becomes of one axis. All of it is dynamic, and computed as PyTorch's kernels do."""

    size: Any
    count: Any
    """The new size."""
    factor: Any

    def picks(self, shift: float, shortcuts: tuple[int, ...]) -> torch.Tensor:
        """The nearest pixels. Sizes that become a whole multiple may take a shortcut, whatever the factor says."""
        places = torch.arange(self.count)
        picks = ((places.float() + shift) * (1 / self.factor)).floor().long().clamp(max=self.size - 1)
        for times in shortcuts:
            picks = torch.where(self._becomes(times), places // times, picks)
        return picks

    def _becomes(self, times: int) -> torch.Tensor:
        return torch.tensor(self.count) == torch.tensor(self.size * times)

    def taps(self, cubic: bool) -> torch.Tensor:
        """The weights [new size, size] of the two or four pixels around; beyond the border is the border."""
        places = torch.arange(self.count).double()
        at = (places + 0.5) * (1 / self.factor) - 0.5
        if not cubic:
            at = torch.where(self._becomes(1), places, at.clamp(min=0))
        first, weights = at.floor(), torch.zeros(self.count, self.size, dtype=torch.float64)
        for offset in range(-1, 3) if cubic else range(2):
            pixels = first + offset
            chosen = pixels.clamp(torch.tensor(0.0), torch.tensor(self.size - 1.0))[:, None] == self._pixels()
            weights = weights + chosen * _weight(pixels - at, cubic, -0.75)[:, None]
        return weights

    def _pixels(self) -> torch.Tensor:
        return torch.arange(self.size).double()

    def filtered(self, cubic: bool) -> torch.Tensor:
        """The weights of a filter as wide as the step, and nothing from beyond the border; no size changes: a copy."""
        step, reach = 1 / self.factor, 2 if cubic else 1
        wide, places = torch.sym_max(step, 1.0), torch.arange(self.count).double()[:, None]
        middles = (places + 0.5) * step
        low, high = ((middles + side * reach * wide + 0.5).long() for side in (-1, 1))
        inside = (torch.arange(self.size) >= low) & (torch.arange(self.size) < high)
        weights = inside * _weight((self._pixels() + 0.5 - middles) / wide, cubic, -0.5)
        return torch.where(self._becomes(1), places == self._pixels(), weights / weights.sum(1, keepdim=True))


def _weight(distance: torch.Tensor, cubic: bool, coefficient: float) -> torch.Tensor:
    x = distance.abs()
    if not cubic:
        return (1 - x).clamp(min=0)
    near = ((coefficient + 2) * x - (coefficient + 3)) * x * x + 1
    far = (((x - 5) * x + 8) * x - 4) * coefficient
    return torch.where(x < 1, near, torch.where(x < 2, far, 0.0))


def resizing() -> Iterator[Patch]:
    yield Patch("torch.nn.functional", "interpolate", _interpolate, "it takes factors as plain numbers", How.CODE)
