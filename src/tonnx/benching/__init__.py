"""Time ONNX files side by side. The package is not called bench, so that `tonnx.bench` can be the function."""

from __future__ import annotations

from tonnx.benching.measure import Bench, Timing, bench

__all__ = ["Bench", "Timing", "bench"]
