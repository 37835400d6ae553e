"""`tonnx run`: pictures in, answers out, bad input in one clear line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from PIL import Image

import tonnx
from tests.run.conftest import Mean
from tonnx.cli import main

# The command


def _run(*arguments: object) -> int:
    return main(["run", *map(str, arguments)])


def test_run_classifies_a_folder_in_batches(folder: Path, capsys: pytest.CaptureFixture) -> None:
    assert _run(folder / "mean.onnx", folder, "--recipe", folder / "mean.yaml", "--batch", 2, "--json") == 0
    results = json.loads(capsys.readouterr().out)["results"]
    best = {Path(r["input"]).stem: r["top_k"][0]["label"] for r in results}
    assert best == {"green": "green", "red": "red"}


def test_run_enlarges_with_the_colours_of_the_original(folder: Path, tmp_path: Path) -> None:
    assert _run(folder / "double.onnx", folder / "*.png", "--recipe", "super-resolution", "-o", tmp_path / "out") == 0
    made = Image.open(tmp_path / "out" / "red-double.png")
    assert made.size == (80, 40)
    assert np.abs(np.subtract(made.getpixel((3, 3)), (200, 10, 20))).max() <= 3


def test_run_draws_boxes_where_they_belong(folder: Path, tmp_path: Path) -> None:
    """The picture is 40 × 20, the network's 32 × 32: 4/5 of the size, 8 rows of padding above."""
    recipe = {"before": [{"resize": {"long": 32}}, {"pad": 32}, "scale", "layout"], "after": ["boxes"]}
    (tmp_path / "boxes.json").write_text(json.dumps(recipe))
    answer = tonnx.load(folder / "rows.onnx", recipe=tmp_path / "boxes.json").predict(folder / "red.png")
    (box,) = answer.data["boxes"]
    assert box["class"] == 1 and box["box"] == pytest.approx([10, 0, 30, 20])
    assert answer.picture.getpixel((20, 0)) != (200, 10, 20)


def test_run_on_arrays_writes_arrays(folder: Path, tmp_path: Path) -> None:
    x = np.random.default_rng(0).random((2, 3, 16, 16), np.float32)
    np.save(tmp_path / "x.npy", x)
    assert _run(folder / "mean.onnx", tmp_path / "x.npy", "-o", tmp_path / "out") == 0
    np.testing.assert_allclose(np.load(tmp_path / "out" / "x-y.npy"), x.mean((2, 3)), rtol=1e-5)


def test_names_of_outputs_become_names_of_files(tmp_path: Path) -> None:
    """Valid on every system, and different even where case is ignored."""
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 18]>
        net (float[2] x) => (float[2] "scores:0", float[2] "a/b", float[2] Y, float[2] y)
        { "scores:0" = Neg(x) "a/b" = Abs(x) Y = Neg(x) y = Abs(x) }""")
    onnx.save(model, tmp_path / "net.onnx")
    np.save(tmp_path / "x.npy", np.ones(2, np.float32))
    assert _run(tmp_path / "net.onnx", tmp_path / "x.npy", "-o", tmp_path / "out") == 0
    names = sorted(file.name for file in (tmp_path / "out").iterdir())
    assert names == ["x-Y.npy", "x-a_b.npy", "x-scores_0.npy", "x-y-2.npy"]


def test_a_stored_recipe_needs_nothing_else(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    path = tmp_path / "own.onnx"
    tonnx.export(Mean(), (torch.rand(1, 3, 16, 16),), path, recipe=folder / "mean.yaml")
    assert _run(path, folder / "red.png", "--json") == 0
    assert json.loads(capsys.readouterr().out)["results"][0]["top_k"][0]["label"] == "red"


def _cut(folder: Path, tmp_path: Path) -> list[object]:
    (tmp_path / "half.onnx").write_bytes((folder / "mean.onnx").read_bytes()[:200])
    return [tmp_path / "half.onnx", folder / "red.png"]


def _text_as_picture(folder: Path, tmp_path: Path) -> list[object]:
    (tmp_path / "text.jpg").write_text("not a picture")
    return [folder / "mean.onnx", folder / "red.png", tmp_path / "text.jpg"]


def _half_a_picture(folder: Path, tmp_path: Path) -> list[object]:
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)
    Image.fromarray(noise).save(tmp_path / "whole.png")
    (tmp_path / "half.png").write_bytes((tmp_path / "whole.png").read_bytes()[:2000])
    return [folder / "mean.onnx", tmp_path / "half.png"]


def _picture_of_mode(mode: str, name: str) -> Callable:
    def make(folder: Path, tmp_path: Path) -> list[object]:
        Image.new(mode, (16, 16)).save(tmp_path / name)
        return [folder / "mean.onnx", tmp_path / name]

    return make


def _huge(folder: Path, tmp_path: Path) -> list[object]:
    Image.new("1", (20_000, 20_000)).save(tmp_path / "huge.png")
    return [folder / "mean.onnx", tmp_path / "huge.png"]


def _no_labels(folder: Path, tmp_path: Path) -> list[object]:
    (tmp_path / "r.yaml").write_text("before: [{resize: 16}, scale, layout]\nafter: [{top_k: {labels: nowhere.txt}}]")
    return [folder / "mean.onnx", folder / "red.png", "--recipe", tmp_path / "r.yaml"]


def _nan(folder: Path, tmp_path: Path) -> list[object]:
    np.save(tmp_path / "x.npy", np.full((1, 3, 16, 16), np.nan, np.float32))
    return [folder / "mean.onnx", tmp_path / "x.npy"]


BAD = {
    "cut": (_cut, "ONNX Runtime does not load the model"),
    "text": (_text_as_picture, "text.jpg is not a picture"),
    "half": (_half_a_picture, "half.png cannot be read as a picture"),
    "cmyk": (_picture_of_mode("CMYK", "a.jpg"), "a.jpg has the mode CMYK"),
    "int16": (_picture_of_mode("I;16", "a.png"), "a.png has the mode I;16"),
    "alpha": (_picture_of_mode("RGBA", "a.png"), "a.png has transparent parts"),
    "huge": (_huge, "huge.png is too large"),
    "labels": (_no_labels, "cannot read the label file"),
    "nan": (_nan, "the array for x has NaN"),
    "missing": (lambda folder, tmp: [folder / "mean.onnx", tmp / "no.png"], "there is no file"),
    "no model": (lambda folder, tmp: [tmp / "no.onnx", folder / "red.png"], "there is no file"),
    "glob": (lambda folder, tmp: [folder / "mean.onnx", tmp / "*.png"], "nothing matches"),
    "empty": (lambda folder, tmp: [folder / "mean.onnx", tmp], "there are no pictures in"),
    "provider": (lambda folder, tmp: [folder / "mean.onnx", folder / "red.png", "--provider", "cuda"], "has no CUDA"),
    "unknown": (
        lambda folder, tmp: [folder / "mean.onnx", folder / "red.png", "--provider", "x"],
        "no execution provider",
    ),
    "batch": (lambda folder, tmp: [folder / "rows.onnx", folder / "red.png", "--batch", "2"], "takes batches of 1"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_clear_line_and_no_output(
    case: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    make, message = BAD[case]
    arguments = make(folder, tmp_path)
    recipe = [] if "--recipe" in arguments else ["--recipe", folder / "mean.yaml"]
    assert _run(*arguments, *recipe, "-o", tmp_path / "out") == 1
    captured = capsys.readouterr()
    assert message in captured.err.split("error: ", 1)[1].splitlines()[0]
    assert "Traceback" not in captured.err and not captured.out
    assert not (tmp_path / "out").exists()


def test_without_a_recipe_the_way_is_shown(folder: Path, capsys: pytest.CaptureFixture) -> None:
    assert _run(folder / "mean.onnx", folder / "red.png") == 1
    assert "--recipe: detection, imagenet" in capsys.readouterr().err


def test_keep_going_leaves_out_what_fails(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    arguments = _text_as_picture(folder, tmp_path)
    assert _run(*arguments, "--recipe", folder / "mean.yaml", "--keep-going") == 1
    out = capsys.readouterr().out
    assert "red.png" in out and "[✗]" in out and "text.jpg is not a picture" in out


def test_the_limit_of_pixels_can_be_raised(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    Image.new("1", (20_000, 10_000)).save(tmp_path / "big.png")  # more than Pillow itself lets pass
    recipe = ["--recipe", folder / "mean.yaml"]
    assert _run(folder / "mean.onnx", tmp_path / "big.png", *recipe, "--max-pixels", "200000000") == 0
    assert _run(folder / "mean.onnx", tmp_path / "big.png", *recipe) == 1
    assert "big.png is too large: 20000 × 10000" in capsys.readouterr().err


def test_a_text_called_npy(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    (tmp_path / "x.npy").write_text("hello")
    (tmp_path / "x.npz").write_bytes(b"PK\x03\x04 cut")
    for name in ("x.npy", "x.npz"):
        assert _run(folder / "mean.onnx", tmp_path / name) == 1
        error = capsys.readouterr().err
        assert f"{name}\n" in error and "pickle" not in error and "fault of tonnx" not in error
