"""SciPy's ``next_fast_len(n + m - 1)``, which long convolutions pad to: a function of C, which takes plain numbers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tonnx.frontends.patching import Patch
from tonnx.frontends.torch.capture.patches.plain_sizes import is_dynamic
from tonnx.frontends.torch.capture.patches.short_sizes import defined_size
from tonnx.frontends.torch.operators.fast_lengths import FastLength

_REASON = "it takes a size as a plain number, which fixes it"


def _fast_length(original: Any, target: Any, real: bool = False) -> Any:
    if not is_dynamic(target):
        return original(target, real)
    return defined_size(target.node.shape_env, FastLength(target.node.expr, 5 if real else 11))


def fast_lengths() -> Iterator[Patch]:
    yield Patch("scipy.fft", "next_fast_len", _fast_length, _REASON, optional=True)
    for library in ("_pocketfft", "_duccfft"):  # before SciPy 1.18, and since; scipy.fftpack asks it
        yield Patch(f"scipy.fft.{library}.helper", "good_size", _fast_length, _REASON, optional=True)
