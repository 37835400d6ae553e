"""Detection, quantisation, linear algebra and the rest, against what Paddle computed. More opsets: make docs-paddle."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.frontends.paddle.archive import cases, check

ARCHIVES = ("detection", "further", "quantized")


@pytest.mark.parametrize("name", cases("pir", ARCHIVES))
def test_pir(name: str, tmp_path: Path) -> None:
    check("pir", name, 20, tmp_path)


@pytest.mark.parametrize("name", cases("old", ARCHIVES))
def test_old(name: str, tmp_path: Path) -> None:
    check("old", name, 16, tmp_path)


@pytest.mark.parametrize("name", [name for name in cases("old", ("quantized",)) if "channel_wise" in name])
def test_steps_by_channel_below_13(name: str, tmp_path: Path) -> None:
    """There the weights are floats, and ONNX Runtime leaves them so."""
    check("old", name, 11, tmp_path)
