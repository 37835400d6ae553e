"""`tonnx.load`, recipes, and `tonnx run`: pictures in, answers out, bad input in one clear line."""

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
from tonnx.cli import main
from tonnx.run import read_recipe
from tonnx.run.after import conclude
from tonnx.run.before import prepare
from tonnx.run.detections import Detection, strongest
from tonnx.run.recipe import Recipe, from_json, parse, ready_recipes


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


# Recipes


@pytest.mark.parametrize("name", ready_recipes())
def test_a_ready_recipe_survives_the_way_through_metadata(name: str) -> None:
    recipe = read_recipe(name)
    again = from_json(recipe.to_json())
    assert (again.before, again.after) == (recipe.before, recipe.after)
    assert recipe.before and recipe.after


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"before": ["resise"]}, "before, step 1: there is no step 'resise'"),
        ({"before": ["scale", {"resize": {"foo": 1}}]}, "before, step 2: resize has no option 'foo'"),
        ({"after": [{"output": {}}]}, "after, step 1: output needs name"),
        ({"after": [{"softmax": {}, "top_k": {}}]}, "must be one name with its options"),
        ({"first": []}, "a recipe has no 'first'"),
        ({"before": "scale"}, "must be a list of steps"),
        ({"inputs": {"x": "photo"}}, "inputs says which input is one of"),
        ([], "a recipe has the lists before and after"),
    ],
)
def test_a_wrong_recipe_is_refused(data: object, message: str, tmp_path: Path) -> None:
    path = tmp_path / "recipe.json"
    path.write_text(json.dumps(data))
    with pytest.raises(tonnx.InvalidArgument, match=message):
        read_recipe(path)


@pytest.mark.parametrize(
    ("name", "text"), [("a.toml", "before = [[[\n"), ("a.yaml", "before: [}\n"), ("a.json", "{"), ("a.toml", "\x00")]
)
def test_an_unreadable_recipe(name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(tonnx.InvalidArgument, match=f"the recipe .*{name} is not readable"):
        read_recipe(tmp_path / name)


def test_an_unknown_recipe_lists_the_ready_ones() -> None:
    with pytest.raises(tonnx.InvalidArgument, match="there is no recipe 'imagnet'") as raised:
        read_recipe("imagnet")
    assert "imagenet" in str(raised.value)


# Steps before


def _picture(width: int = 40, height: int = 20) -> Image.Image:
    x = np.arange(width, dtype=np.uint8)[None, :, None] + np.zeros((height, 1, 3), np.uint8)
    return Image.fromarray(x * np.array([1, 2, 3], np.uint8))


@pytest.mark.parametrize(
    ("steps", "shape", "dtype"),
    [
        ([], (20, 40, 3), "uint8"),
        ([{"color": "gray"}], (20, 40, 1), "uint8"),
        ([{"color": "luma"}, "scale", "layout"], (1, 20, 40), "float32"),
        ([{"resize": 8}], (8, 8, 3), "uint8"),
        ([{"resize": {"size": [4, 6]}}, {"layout": "nchw"}], (3, 4, 6), "uint8"),
        ([{"resize": {"short": 10}}], (10, 20, 3), "uint8"),
        ([{"resize": {"long": 10}}], (5, 10, 3), "uint8"),
        ([{"resize": {"height": 5}}], (5, 10, 3), "uint8"),
        ([{"resize": {"factor": 0.5, "multiple_of": 8}}], (8, 16, 3), "uint8"),
        ([{"crop": 20}], (20, 20, 3), "uint8"),
        ([{"crop": [3, 5]}], (3, 5, 3), "uint8"),
        ([{"pad": {"size": 40}}], (40, 40, 3), "uint8"),
        ([{"pad": {"multiple_of": 16, "position": "corner"}}], (32, 48, 3), "uint8"),
        (["scale", {"dtype": "float16"}], (20, 40, 3), "float16"),
        ([{"layout": "nchw"}, {"normalize": {"mean": [1, 2, 3], "std": 2}}], (3, 20, 40), "float32"),
    ],
)
def test_steps_before(steps: list, shape: tuple, dtype: str) -> None:
    array = prepare(_picture(), read_recipe({"before": steps})).pixels()
    assert (array.shape, array.dtype.name) == (shape, dtype)


def test_normalize_is_by_channel_in_both_layouts() -> None:
    normalize = {"normalize": {"mean": [1, 2, 3], "std": [1, 2, 4]}}
    last = prepare(_picture(), read_recipe({"before": [normalize]})).pixels()
    first = prepare(_picture(), read_recipe({"before": ["layout", normalize]})).pixels()
    np.testing.assert_array_equal(last.transpose(2, 0, 1), first)
    np.testing.assert_array_equal(last[0, 10], [(10 - 1) / 1, (20 - 2) / 2, (30 - 3) / 4])


def test_bgr_turns_the_channels_round() -> None:
    rgb, bgr = (prepare(_picture(), read_recipe({"before": [{"color": c}]})).pixels() for c in ("rgb", "bgr"))
    np.testing.assert_array_equal(rgb[..., ::-1], bgr)


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ([{"crop": 21}], "crop: 21 × 21 does not fit into 20 × 40"),
        (["scale", {"resize": 8}], "resize must come before scale"),
        ([{"resize": {}}], "resize takes one of size"),
        ([{"resize": "wide"}], "resize: size must be a number"),
        ([{"resize": {"short": -1}}], "resize: -1 is not a size"),
        ([{"resize": {"size": 8, "filter": "magic"}}], "there is no filter 'magic'"),
        ([{"pad": 10}], "larger than 10 × 10"),
        ([{"color": "cmyk"}], "color: there is no 'cmyk'"),
        ([{"normalize": {"std": 0}}], "std is 0"),
        ([{"normalize": {"mean": [1, 2]}}], "mean has 2 values, the picture 3 channels"),
        ([{"dtype": "str"}], "dtype"),
        ([{"scale": "much"}], r"the step scale\(factor='much'\) cannot be taken"),
    ],
)
def test_steps_before_that_cannot_be_taken(steps: list, message: str) -> None:
    with pytest.raises(tonnx.InvalidArgument, match=message):
        prepare(_picture(), read_recipe({"before": steps}))


# Steps after


def _after(steps: list, array: np.ndarray, picture: Image.Image | None = None) -> object:
    recipe = read_recipe({"after": steps})
    state = None if picture is None else prepare(picture, Recipe())
    return conclude({"y": array}, state, recipe)


def test_top_k_orders_and_names() -> None:
    answer = _after(["softmax", {"top_k": {"k": 2, "labels": ["a", "b", "c"]}}], np.array([0.0, 3.0, 1.0], np.float32))
    assert [entry["label"] for entry in answer.data["top_k"]] == ["b", "c"]
    assert answer.data["top_k"][0]["score"] == pytest.approx(np.exp(3) / (1 + np.exp(3) + np.exp(1)), rel=1e-6)


def test_ctc_text_drops_repetitions_and_blanks() -> None:
    best = [0, 1, 1, 0, 1, 2, 2, 0]
    assert _after([{"text": "ab"}], np.eye(3, dtype=np.float32)[best]).data["text"] == "aab"


def test_a_mask_covers_the_original() -> None:
    scores = np.zeros((2, 4, 4), np.float32)
    scores[1, :, 2:] = 1
    answer = _after([{"mask": {"alpha": 1, "labels": ["sky", "ground"]}}], scores, _picture())
    assert answer.picture.size == (40, 20)
    assert {entry["label"]: entry["share"] for entry in answer.data["classes"]} == {"sky": 0.5, "ground": 0.5}
    assert answer.picture.getpixel((0, 0)) != answer.picture.getpixel((39, 0))


def test_a_mask_lies_where_the_network_looked() -> None:
    """Padding is cut off, and what was cropped away stays as it was."""
    black = Image.new("RGB", (40, 20))
    letterbox = [{"resize": {"long": 32}}, {"pad": {"size": 32}}, "scale", "layout"]
    classes = np.zeros((16, 16), np.int64)
    classes[4:12, :8], classes[4:12, 8:] = 1, 2  # the picture lies in the middle half
    recipe = parse({"before": letterbox, "after": [{"mask": {"alpha": 1.0}}]}, "r")
    answer = conclude({"y": classes}, prepare(black, recipe), recipe)
    assert {entry["class"]: entry["share"] for entry in answer.data["classes"]} == {1: 0.5, 2: 0.5}
    pixels = np.asarray(answer.picture)
    assert (pixels[:, :20] == pixels[0, 0]).all() and (pixels[:, 20:] == pixels[0, 39]).all()

    recipe = parse({"before": [{"crop": 10}, "scale", "layout"], "after": [{"mask": {"alpha": 1.0}}]}, "r")
    answer = conclude({"y": np.ones((10, 10), np.int64)}, prepare(black, recipe), recipe)
    rows, columns = np.nonzero(np.asarray(answer.picture).any(axis=2))
    assert (rows.min(), rows.max(), columns.min(), columns.max()) == (5, 14, 15, 24)


def test_the_colours_of_a_crop_are_its_own() -> None:
    half = Image.new("RGB", (40, 20))
    half.paste((255, 0, 0), (20, 0, 40, 20))
    before = [{"color": "luma"}, {"crop": [10, 20]}, "scale", "layout"]
    recipe = parse({"before": before, "after": [{"picture": {"chroma": True}}]}, "r")
    state = prepare(half, recipe)
    made = np.asarray(conclude({"y": state.pixels().repeat(2, 1).repeat(2, 2)}, state, recipe).picture)
    assert made.shape == (20, 40, 3) and made[5, 15].max() < 10 and made[5, 25, 0] > 240


def test_an_alphabet_travels_with_the_file(tmp_path: Path) -> None:
    (tmp_path / "chars.txt").write_text("a\nb\n")
    (tmp_path / "r.yaml").write_text("after: [{text: {alphabet: chars.txt}}]")
    again = from_json(read_recipe(tmp_path / "r.yaml").to_json())
    (tmp_path / "chars.txt").unlink()
    assert conclude({"y": np.eye(3, dtype=np.float32)}, None, again).lines == ["ab"]


def test_nms_keeps_the_best_of_each_class() -> None:
    found = [
        Detection(0, 0.9, (0, 0, 10, 10)),
        Detection(0, 0.8, (1, 1, 10, 10)),
        Detection(1, 0.7, (0, 0, 10, 10)),
        Detection(0, 0.6, (50, 50, 60, 60)),
        Detection(0, 0.1, (80, 80, 90, 90)),
    ]
    assert [d.score for d in strongest(found, 0.5, 0.5)] == [0.9, 0.7, 0.6]


@pytest.mark.parametrize(
    ("steps", "array", "message"),
    [
        (["softmax"], [np.nan, 1], "softmax: the network's output has NaN"),
        ([{"top_k": {"labels": ["a"]}}], [1, 2], "1 labels, but the network has 2 classes"),
        ([{"top_k": {"labels": "nowhere.txt"}}], [1, 2], "cannot read the label file nowhere.txt"),
        ([{"output": "z"}], [1], "the model has no output 'z'"),
        ([{"argmax": 5}], [1], "argmax: there is no axis 5"),
        (["mask"], [1], "mask: a map of classes has two dimensions"),
        (["picture"], [1], "picture: it needs channels, height and width"),
        ([{"text": "abc"}], [[1, 2]], "tells 1 characters apart, the alphabet has 3"),
        (["boxes"], [[1, 2, 3]], "not 6 columns"),
        ([{"boxes": {"columns": ["x"]}}], [[1]], "there is no column 'x'"),
    ],
)
def test_steps_after_that_cannot_be_taken(steps: list, array: list, message: str) -> None:
    with pytest.raises(tonnx.InvalidArgument, match=message):
        _after(steps, np.asarray(array, np.float32), _picture())


# tonnx.load


def test_a_loaded_model_takes_what_people_have(folder: Path) -> None:
    model = tonnx.load(folder / "mean.onnx", recipe=folder / "mean.yaml")
    x = torch.rand(3, 3, 16, 16)
    expected = x.mean((2, 3)).numpy()
    for given in (x, x.numpy(), x.tolist(), x.clone().requires_grad_()):
        np.testing.assert_allclose(model(given)["y"], expected, rtol=1e-5)
    np.testing.assert_allclose(model(x=x)["y"], expected, rtol=1e-5)
    np.testing.assert_allclose(model({"x": x})["y"], expected, rtol=1e-5)
    red = model(folder / "red.png")["y"]
    np.testing.assert_allclose(red, np.array([[200, 10, 20]]) / 255, rtol=1e-5)
    np.testing.assert_array_equal(model(Image.open(folder / "red.png"))["y"], red)
    assert model.predict(folder / "green.png").data["top_k"][0]["label"] == "green"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: m(np.zeros((1, 3, 16, 16))), r"x: float32\[batch, 3, 16, 16\] was given as float64"),
        (lambda m: m(np.zeros((1, 3, 16, 8), np.float32)), r"shape \[1, 3, 16, 8\](.|\n)*axis 3 is 16"),
        (lambda m: m(np.zeros((3, 16, 16), np.float32)), r"its rank is 4"),
        (lambda m: m(), "missing: x"),
        (lambda m: m(1, 2), "2 inputs were given, the model has 1"),
        (lambda m: m(y=1), "the model has no input 'y'"),
        (lambda m: m(object()), "cannot be made of object"),
    ],
)
def test_a_loaded_model_checks_its_inputs(call: Callable, message: str, folder: Path) -> None:
    with pytest.raises(tonnx.InvalidArgument, match=message):
        call(tonnx.load(folder / "mean.onnx"))


def test_names_of_dimensions_must_agree(tmp_path: Path) -> None:
    pair = {"a": {0: "n"}, "b": {0: "n"}}
    path = tmp_path / "add.onnx"
    tonnx.export(torch.add, (torch.rand(2), torch.rand(2)), path, input_names=["a", "b"], dynamic_axes=pair)
    with pytest.raises(tonnx.InvalidArgument, match="n is 2 in a, but 3 in b"):
        tonnx.load(path)(np.zeros(2, np.float32), np.zeros(3, np.float32))


@pytest.mark.parametrize(
    ("options", "message"), [({"threads": 0}, "threads"), ({"providers": ["CUDA"]}, "has no CUDA")]
)
def test_load_refuses(options: dict, message: str, folder: Path) -> None:
    with pytest.raises(tonnx.InvalidArgument, match=message):
        tonnx.load(folder / "mean.onnx", **options)


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


def _relu(path: Path, kind: int, shape: list | None, op: str = "Relu", opset: int = 17) -> Path:
    ends = [onnx.helper.make_tensor_value_info(name, kind, shape) for name in "xy"]
    graph = onnx.helper.make_graph([onnx.helper.make_node(op, ["x"], ["y"])], "g", ends[:1], ends[1:])
    imports = [onnx.helper.make_opsetid("", opset)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=imports, ir_version=8), path)
    return path


def test_an_input_of_unknown_rank_takes_any(tmp_path: Path) -> None:
    model = tonnx.load(_relu(tmp_path / "any.onnx", onnx.TensorProto.FLOAT, None))
    assert model(-np.ones((2, 3), np.float32))["y"].shape == (2, 3)
    scalar = tonnx.load(_relu(tmp_path / "scalar.onnx", onnx.TensorProto.FLOAT, []))
    with pytest.raises(tonnx.InvalidArgument, match="its rank is 0"):
        scalar(np.ones(2, np.float32))


def test_numbers_are_not_changed_to_fit(tmp_path: Path) -> None:
    model = tonnx.load(_relu(tmp_path / "i.onnx", onnx.TensorProto.INT64, ["n"], "Identity"))
    assert model([1, 2.0])["y"].tolist() == [1, 2]
    assert model(np.array([1, 2], ">i8"))["y"].tolist() == [1, 2]
    for wrong in ([1.5, 2], None):
        with pytest.raises(tonnx.InvalidArgument, match="cannot be made of"):
            model(wrong)
    with pytest.raises(tonnx.InvalidArgument, match="takes the path of a file, not bytes"):
        tonnx.load((tmp_path / "i.onnx").read_bytes())


def test_pictures_in_a_list_are_a_batch(folder: Path) -> None:
    model = tonnx.load(folder / "mean.onnx", recipe=folder / "mean.yaml", providers="cpu")
    paths = [folder / "red.png", folder / "green.png"]
    assert model(paths)["y"].argmax(1).tolist() == [0, 1]
    assert model([Image.open(path) for path in paths])["y"].argmax(1).tolist() == [0, 1]
    assert model.predict(np.asarray(Image.open(paths[1]))).data["top_k"][0]["label"] == "green"
    with pytest.raises(tonnx.InvalidArgument, match="a picture is a path"):
        model.predict(3)


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
