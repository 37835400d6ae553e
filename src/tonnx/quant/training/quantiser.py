"""One fake quantiser: what it has seen, the scale that follows from it, and the rounding."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from tonnx.quant.config import Config
from tonnx.quant.training.operators import fake_quantise, integers

_BINS = 2048
_TRIED = 24
"""Ends of the range that a learned scale of weights may begin with: the one with the least square error is taken."""


class Quantiser(torch.nn.Module):
    """Numbers to the nearest step of one scale, or of one for each channel along ``axis``.

    ``limit``: the range goes no further, whatever is seen.
    """

    scale: torch.Tensor
    zero_point: torch.Tensor
    least: torch.Tensor
    most: torch.Tensor

    def __init__(
        self, bits: int, symmetric: bool, config: Config, axis: int | None, limit: float | None = None
    ) -> None:
        super().__init__()
        self.symmetric, self.axis, self.limit = symmetric, axis, limit
        self.low, self.high = (-(1 << bits - 1), (1 << bits - 1) - 1) if symmetric else (0, (1 << bits) - 1)
        self.scales, self.power_of_two = config.scales, config.power_of_two
        self.momentum, self.percentile = config.momentum, config.percentile
        self.half_up = config.rounding == "up"
        for name in ("scale", "least", "most"):
            self.register_buffer(name, torch.zeros(()))
        self.register_buffer("zero_point", torch.zeros((), dtype=torch.int32))
        self.log_scale = torch.nn.Parameter(torch.zeros(())) if self.scales == "learned" else None
        self._histogram: torch.Tensor | None = None
        self._span = 0.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The nearest steps."""
        return fake_quantise(
            x, self.current_scale(), self.zero_point, self.low, self.high, self.axis or 0, self.half_up
        )

    def steps(self, x: torch.Tensor) -> torch.Tensor:
        scale, zero = self.scale, self.zero_point
        from_zero = integers(x, scale, zero, self.low, self.high, self.axis or 0, self.half_up)
        return (from_zero + zero.reshape([-1] + [1] * (x.dim() - 1 - (self.axis or 0)) if zero.dim() else ())).int()

    # The scale

    def current_scale(self) -> torch.Tensor:
        """The scale; while it is trained, as a function of its parameter."""
        if self.log_scale is None or not (self.training or torch.is_grad_enabled()):
            return self.scale
        return self._from_parameter()

    def _from_parameter(self) -> torch.Tensor:
        assert self.log_scale is not None
        if not self.power_of_two:
            return torch.exp2(self.log_scale)
        exponent = torch.ceil(self.log_scale)
        return torch.exp2(self.log_scale + (exponent - self.log_scale).detach())

    @torch.no_grad()
    def settle(self) -> None:
        """The scale that evaluation uses, from the parameter as it is now."""
        if self.log_scale is None:
            return
        if self.power_of_two:
            self.scale = torch.ldexp(torch.ones_like(self.log_scale), torch.ceil(self.log_scale))
        else:
            self.scale = torch.exp2(self.log_scale)

    @torch.no_grad()
    def set_range(self, least: torch.Tensor, most: torch.Tensor) -> None:
        """The finest scale that holds a range, and zero."""
        if self.limit is not None:
            least, most = least.clamp(min=-self.limit), most.clamp(max=self.limit)
        least, most = least.clamp(max=0.0).float(), most.clamp(min=0.0).float()
        span = torch.maximum(-least, most) / self.high if self.symmetric else (most - least) / (self.high - self.low)
        # A range of nothing, or of numbers too small for a scale.
        scale = torch.where(span > torch.finfo(torch.float32).tiny, span, torch.ones_like(span))
        if self.power_of_two:
            fraction, exponent = torch.frexp(scale)
            scale = torch.ldexp(torch.ones_like(scale), exponent - (fraction == 0.5).to(exponent.dtype))
        self.scale = scale
        if self.symmetric:
            self.zero_point = torch.zeros_like(scale, dtype=torch.int32)
        else:
            # Even with powers of two, where ties are common: kernels round them after the zero point was added.
            unit = 2 if self.power_of_two else 1
            self.zero_point = (torch.round(-least / scale / unit) * unit).clamp(self.low, self.high).int()
        if self.log_scale is not None:
            # A power of two is reached from below: ceil of it must stay itself under small steps in both directions.
            begin = torch.log2(scale) - (0.5 if self.power_of_two else 0.0)
            if self.log_scale.shape == begin.shape:
                self.log_scale.copy_(begin)
            else:
                self.log_scale.data = begin

    # What is seen

    @torch.no_grad()
    def observe(self, x: torch.Tensor) -> None:
        """Let the range follow what activations are."""
        x = x.detach().float()
        least, most = torch.aminmax(x) if x.numel() else (x.new_zeros(()), x.new_zeros(()))
        first = bool(self.scale == 0)
        if self.scales == "percentile":
            least, most = self._count(x, least, most)
        elif not first:
            if self.scales == "max":
                least, most = torch.minimum(self.least, least), torch.maximum(self.most, most)
            else:
                least = self.least + self.momentum * (least - self.least)
                most = self.most + self.momentum * (most - self.most)
        self.least, self.most = least, most
        self.set_range(least, most)

    def _count(self, x: torch.Tensor, least: torch.Tensor, most: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The ends of the percentile, of everything so far: a histogram whose span doubles when it has to."""
        widest = max(float(most), -float(least), 1e-30)
        if self._histogram is None:
            self._histogram, self._span = torch.zeros(_BINS, dtype=torch.float64), widest
        while widest > self._span:
            wider = torch.zeros_like(self._histogram)
            wider[_BINS // 4 : -_BINS // 4] = self._histogram.reshape(-1, 2).sum(1)
            self._histogram, self._span = wider, self._span * 2
        self._histogram += torch.histc(x.cpu(), _BINS, -self._span, self._span).double()
        shares = torch.cumsum(self._histogram, 0) / self._histogram.sum()
        beyond = (100.0 - self.percentile) / 100.0
        edges = torch.linspace(-self._span, self._span, _BINS + 1, dtype=torch.float64)
        low = edges[int(torch.searchsorted(shares, torch.tensor(beyond, dtype=torch.float64), right=True))]
        last = int(torch.searchsorted(shares, torch.tensor(1.0 - beyond, dtype=torch.float64)))
        high = edges[min(last, _BINS - 1) + 1]
        return low.to(least), high.to(most)

    @torch.no_grad()
    def span_weight(self, weight: torch.Tensor) -> None:
        """The range of a weight as it is now. A learned one is set once, to the one with the least square error."""
        if self.log_scale is not None and bool((self.scale != 0).all()):
            return
        weight = weight.detach().float()
        dims = [dim for dim in range(weight.dim()) if dim != self.axis] if self.axis is not None else None
        least, most = (weight.amin(), weight.amax()) if dims is None else (weight.amin(dims), weight.amax(dims))
        if self.log_scale is None:
            self.set_range(least, most)
            return
        best = torch.full_like(least, float("inf"))
        part = torch.ones_like(least)
        for share in torch.linspace(1.0, 0.3, _TRIED).tolist():
            self.set_range(least * share, most * share)
            step = (self.scale, self.zero_point, self.low, self.high, self.axis or 0, self.half_up)
            rounded = fake_quantise(weight, *step)
            error = (rounded - weight).square().sum(dims) if dims is not None else (rounded - weight).square().sum()
            part = torch.where(error < best, share, part)
            best = torch.minimum(error, best)
        self.set_range(least * part, most * part)

    # Checkpoints

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *rest: Any) -> None:
        """Scales take their shape from the checkpoint: how many channels there are is known from data only."""
        for name in ("scale", "least", "most", "zero_point", "log_scale"):
            stored, own = state_dict.get(prefix + name), getattr(self, name)
            if isinstance(stored, torch.Tensor) and own is not None and stored.shape != own.shape:
                own.data = own.data.new_zeros(stored.shape)
        super()._load_from_state_dict(state_dict, prefix, *rest)  # type: ignore[arg-type]

    def extra_repr(self) -> str:
        per = "" if self.axis is None else f", axis {self.axis}"
        return f"{self.low} to {self.high}{per}, {self.scales}"
