"""Complex numbers, which are pairs in the file, and spectra."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import fft, nn

import tonnx
from tests.lowering.harness import Case, check, table

torch.manual_seed(0)
r = torch.randn
Z = r(2, 3, 4, dtype=torch.complex64)
PHASES = torch.polar(torch.ones(5, 4), r(5, 4))
HANN = torch.hann_window(8)


def rotary(x: torch.Tensor, phases: torch.Tensor) -> torch.Tensor:
    """Positions as transformers of the LLaMA family have them."""
    pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * phases.view(1, phases.shape[0], 1, -1)).flatten(3).type_as(x)


def written(x: torch.Tensor) -> torch.Tensor:
    y = torch.zeros(2, 3, 4, dtype=torch.complex64)
    y[:, 1] = x[:, 0]
    y *= 2
    return y


def through_views(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Writes to parts, mirror images and other readings of complex numbers, and of reals as such."""
    z = x.clone()
    z.real[:, 0] = 3
    z[1:].imag = z[1:].real * 2
    z.conj().add_(1j)
    torch.view_as_real(z)[..., 0].mul_(2)
    z.view(torch.float32)[..., -1] = 5
    z.mH[:, 0] = 2j
    w = y.clone()
    torch.view_as_complex(w.view(-1, 2)).mul_(1j)
    w.view(torch.complex64)[0] = 4
    w.copy_(w.to(torch.complex64) * (1 + 1j))
    return z * 1j, w


def spectrum(x: torch.Tensor, **options: Any) -> torch.Tensor:
    return torch.stft(x, 8, 4, window=HANN, return_complex=True, **options)


CASES = [
    Case("rotary", lambda x: rotary(x, PHASES), [r(2, 5, 3, 8)], {0: [0]}),
    Case("rotary, any length", lambda x, a: rotary(x, torch.polar(torch.ones_like(a), a)), [r(2, 5, 3, 8), r(5, 4)],
         {0: {0: "n", 1: "t"}, 1: {0: "t"}}),
    Case("rotary, half", lambda x: rotary(x, PHASES), [r(2, 5, 3, 8).half()], opset=9),
    Case("inputs and outputs", lambda x: x * 2j + 1, [Z], {0: [0]}),
    Case("double", lambda x: x * x.conj(), [Z.to(torch.complex128)]),
    Case("made and taken apart", lambda x, y: (torch.complex(x, y).abs(), torch.complex(x, y).angle()), [r(3), r(3)]),
    Case("casts", lambda x: (x.cfloat() * 1j).imag + x.to(torch.complex64).real, [r(3, 2)]),
    Case("arithmetic", lambda x: (x - 1j) / (x + 3) + 2 / x - 0.5 * x, [Z]),
    Case("powers", lambda x: x**2 + x**0.5 + x.square(), [Z]),
    Case("functions", lambda x: torch.exp(x).log().sqrt() + x.sgn() + x.sigmoid(), [Z]),
    Case("matmul", lambda x: x @ x.mH + torch.einsum("bij,bkj->bik", x, x), [Z]),
    Case("a real operand", lambda x, w: x * w.real + (x @ w.real.T.to(x.dtype)).sum(), [Z, r(4, 4)[:1]]),
    Case("views", lambda x: torch.cat([x.transpose(1, 2)[..., 0], x.sum(-2)], 1).unsqueeze(-1).permute(2, 0, 1), [Z],
         {0: [0]}),
    Case("moved", lambda x: (x.movedim(1, 0), x.movedim((0, 2), (-1, 0))), [Z], {0: [0]}),
    Case("choices", lambda x: torch.where(x.real > 0, x, torch.zeros_like(x)).masked_fill(x.imag > 0, 0.5), [Z]),
    Case("gather, flip, roll", lambda x: x.index_select(1, torch.tensor([2, 0])).flip(-1).roll(1, -1), [Z], {0: [0]}),
    Case("equal", lambda x: (x == x.conj(), x != 0), [Z]),
    Case("norm", lambda x: x.norm(dim=-1), [Z]),
    Case("in place", written, [Z]),
    Case("through views", through_views, [Z, r(3, 4)]),
    Case("made of ones", lambda x: x + torch.ones(4, dtype=x.dtype) + x.new_ones(4) * torch.ones_like(x)
         + torch.eye(4, dtype=x.dtype)[:3], [Z]),
    Case("joined with reals", lambda x, y: (torch.hstack([x, y]), torch.vstack([y, x]), torch.block_diag(x, y)),
         [Z[0], r(3, 4)]),
    Case("infinity", lambda x, y: (torch.complex(y, x.real), torch.where(y > 0, x, y), torch.cat([x, y[None]]), y == x),
         [Z[0], torch.tensor([float("inf"), 1, -1, 2])]),
    Case("circular functions", lambda x: x.sin() + x.cos() * x.sinh() - x.cosh() + (x * 60).tanh(), [Z]),
    Case("power 0", lambda x: x**0, [Z * 0]),
    Case("as another dtype", lambda x, y: (x.view(torch.float32), y.view(torch.complex64) * 1j), [Z, r(3, 4)]),
    Case("fft", lambda x: torch.view_as_real(fft.fft(x)), [r(2, 8)], "all", has=["DFT"]),
    Case("fft, opset 9", lambda x: torch.view_as_real(fft.fft(x)), [r(2, 8)], opset=9, has_not=["DFT"]),
    Case("fft, opset 26", lambda x: fft.ifft(fft.fft(x, n=12)).real, [r(2, 8)], opset=26),
    Case("rfft", lambda x: fft.rfft(x, norm="ortho").abs(), [r(2, 9)], "all"),
    Case("irfft", lambda x: fft.irfft(fft.rfft(x), n=x.shape[-1]), [r(2, 9)], "all"),
    Case("irfft, even", lambda x: fft.irfft(fft.rfft(x) * 2j, norm="forward"), [r(2, 8)]),
    Case("two axes", lambda x: fft.ifft2(fft.fft2(x)).real + fft.irfft2(fft.rfft2(x)), [r(2, 4, 6)]),
    Case("fftn", lambda x: fft.fftn(x, s=(3, 5), dim=(0, 2), norm="ortho").real, [r(2, 4, 6)]),
    Case("hfft", lambda x: fft.hfft(fft.ihfft(x), n=8), [r(2, 8)]),
    Case("mixing tokens", lambda x: fft.fft(fft.fft(x, dim=-1), dim=-2).real, [r(2, 4, 6)], {0: [0, 1]}),
    Case("stft", lambda x: torch.view_as_real(spectrum(x)), [r(2, 32)], "all"),
    Case("stft, one signal", lambda x: spectrum(x, center=False, onesided=False, normalized=True).abs(), [r(32)]),
    Case("stft in reals", lambda x: torch.stft(x, 8, 4, 6, HANN[:6], return_complex=False), [r(2, 32)], "all"),
    Case("istft", lambda x: torch.istft(spectrum(x), 8, 4, window=HANN), [r(2, 32)], "all"),
    Case("stft, float64, and a window of float32", lambda x: torch.istft(spectrum(x), 8, 4, window=HANN),
         [r(2, 32).double()]),
    Case("istft, both sides", lambda x, y: torch.istft(torch.complex(x, y), 8, 4, window=HANN, onesided=False),
         [r(2, 8, 6), r(2, 8, 6)]),
    Case("istft, filled up", lambda x: torch.istft(spectrum(x), 8, 4, window=HANN, length=70), [r(2, 32)], "all"),
    Case("istft, length", lambda x: torch.istft(spectrum(x), 8, 4, window=HANN, length=30), [r(2, 32)], opset=13),
]  # fmt: skip


@table(CASES)
def test_complex(case: Case) -> None:
    check(case)


class Spectra(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("window", HANN)
        self.register_buffer("phases", PHASES[0])

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        y = torch.stft(x, 8, 4, window=self.window, return_complex=True)
        back = torch.istft(y, 8, 4, window=self.window) + torch.fft.irfft(torch.fft.rfft(x) * 2)
        turned = torch.view_as_complex(x[:, :8].reshape(x.size(0), 4, 2)) * self.phases
        pairs = torch.stft(x, 8, 4, window=self.window, return_complex=False)
        return back * y.dim(), torch.view_as_real(turned), pairs**2


@pytest.mark.parametrize("way", ["script", "trace"])
def test_torchscript(way: str) -> None:
    result = tonnx.export(Spectra(), r(2, 32), dynamic_axes={"x": {0: "n"}}, capture=way)
    assert result.verification is not None and result.verification.ok


def test_what_has_no_rule_is_named() -> None:
    with pytest.raises(tonnx.TonnxError, match=r"product of complex numbers along an axis"):
        check(Case("cumprod", lambda x: x.cumprod(0), [Z]))
