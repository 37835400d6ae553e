"""Preprocessing that becomes part of a file computes what the recipe does."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import tonnx
from tests.run.conftest import Mean


@pytest.mark.parametrize("recipe", ["imagenet", "segmentation", "detection", "super-resolution"])
def test_embedded_preprocessing_is_the_recipe(recipe: str, folder: Path, tmp_path: Path) -> None:
    sizes = {"imagenet": 224, "detection": 640}
    size, channels = sizes.get(recipe, 64), 1 if recipe == "super-resolution" else 3
    axes = {"x": {0: "b"} if recipe in sizes else {0: "b", 2: "h", 3: "w"}}
    inputs = (torch.rand(2, channels, size, size),)
    common = {"input_names": ["x"], "output_names": ["y"], "dynamic_axes": axes, "recipe": recipe}
    tonnx.export(Mean(), inputs, tmp_path / "plain.onnx", **common)
    tonnx.export(Mean(), inputs, tmp_path / "whole.onnx", embed_preprocessing=True, **common)
    plain, whole = tonnx.load(tmp_path / "plain.onnx"), tonnx.load(tmp_path / "whole.onnx")
    assert whole.inputs["x"].dtype == np.uint8
    picture = Image.fromarray(np.asarray(Image.open(folder / "red.png").resize((400, 300))))
    np.testing.assert_allclose(whole(picture)["y"], plain(picture)["y"], atol=0.02)


def test_embedding_needs_a_recipe(tmp_path: Path) -> None:
    with pytest.raises(tonnx.InvalidArgument, match="needs a recipe"):
        tonnx.export(Mean(), (torch.rand(1, 3, 8, 8),), tmp_path / "a.onnx", embed_preprocessing=True)


@pytest.mark.parametrize(
    ("steps", "side"),
    [
        ([{"resize": {"size": 16}}, "scale", "layout", {"dtype": "float16"}], torch.float16),
        ([{"resize": {"size": 16}}, "layout"], torch.uint8),
    ],
)
def test_embedding_into_other_dtypes(steps: list, side: torch.dtype, tmp_path: Path) -> None:
    class Sum(torch.nn.Module):
        def forward(self, x):
            return x.float().sum((2, 3))

    x = (torch.rand(2, 3, 16, 16) * 200).to(side)
    recipe = {"before": steps}
    tonnx.export(Sum(), (x,), tmp_path / "s.onnx", opset_version=18, recipe=recipe, embed_preprocessing=True)
    assert tonnx.load(tmp_path / "s.onnx").inputs["x"].dtype == np.uint8


class Same(torch.nn.Module):
    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return image * 1.0


@pytest.mark.parametrize("opset", [7, 17, 18])
@pytest.mark.parametrize("filter", ["bilinear", "bicubic"])
def test_embedded_resize_is_pillows(filter: str, opset: int, tmp_path: Path) -> None:
    """On noise, where every difference at a border or in rounding between the passes shows."""
    resize = {"resize": {"size": [24, 30], "filter": filter}}
    steps = [{"color": "rgb"}, resize, {"layout": "nchw"}, {"dtype": "float32"}]
    options = {"recipe": {"before": steps}, "embed_preprocessing": True, "opset_version": opset}
    tonnx.export(Same(), (torch.rand(1, 3, 24, 30),), tmp_path / "same.onnx", **options)
    model, random = tonnx.load(tmp_path / "same.onnx"), np.random.default_rng(0)
    for size in ((61, 47), (10, 14), (24, 30), (1, 1)):
        picture = random.integers(0, 256, (*size, 3)).astype(np.uint8)
        (actual,) = model(picture[None]).values()
        wanted = Image.fromarray(picture).resize((30, 24), getattr(Image.Resampling, filter.upper()))
        worst = np.abs(actual[0].transpose(1, 2, 0) - np.asarray(wanted)).max()
        assert worst <= {"bilinear": 1, "bicubic": 2}[filter], size


def test_embedded_padding_takes_smaller_pictures(tmp_path: Path) -> None:
    recipe = {"before": [{"color": "rgb"}, {"pad": {"size": [24, 30]}}, "scale", {"layout": "nchw"}]}
    options = {"recipe": recipe, "embed_preprocessing": True, "opset_version": 9}
    tonnx.export(Same(), (torch.rand(1, 3, 24, 30),), tmp_path / "same.onnx", **options)
    picture = np.full((10, 12, 3), 255, np.uint8)
    (padded,) = tonnx.load(tmp_path / "same.onnx")(picture[None]).values()
    assert padded.shape == (1, 3, 24, 30) and padded.sum() == pytest.approx(10 * 12 * 3)
