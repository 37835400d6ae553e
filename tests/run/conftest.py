"""Models and pictures that the tests of running share."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from PIL import Image

import tonnx


class Mean(torch.nn.Module):
    """Three classes: the mean of each channel. Which one wins can be read off a picture."""

    def forward(self, x):
        return x.mean((2, 3))


class Rows(torch.nn.Module):
    """A detector that always finds the same two things, in pixels of its own picture."""

    def forward(self, x):
        rows = torch.tensor([[1.0, 0.9, 8, 8, 24, 24], [0.0, 0.2, 0, 0, 4, 4]])
        return rows + 0 * x.mean()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models and pictures."""
    made = tmp_path_factory.mktemp("run")
    common = {"input_names": ["x"], "output_names": ["y"]}
    batch = {"dynamic_axes": {"x": {0: "batch"}}}
    tonnx.export(Mean(), (torch.rand(2, 3, 16, 16),), made / "mean.onnx", **common, **batch)
    double = torch.nn.Upsample(scale_factor=2)
    dynamic = {"dynamic_axes": {"x": {0: "b", 2: "h", 3: "w"}}}
    tonnx.export(double, (torch.rand(1, 1, 6, 8),), made / "double.onnx", **common, **dynamic)
    tonnx.export(Rows(), (torch.rand(1, 3, 32, 32),), made / "rows.onnx", **common)
    for name, colour in (("red", (200, 10, 20)), ("green", (10, 190, 20))):
        Image.new("RGB", (40, 20), colour).save(made / f"{name}.png")
    (made / "mean.yaml").write_text(
        "before: [{resize: 16}, scale, {layout: nchw}]\nafter: [softmax, {top_k: {k: 2, labels: names.txt}}]\n"
    )
    (made / "names.txt").write_text("red\ngreen\nblue\n")
    return made
