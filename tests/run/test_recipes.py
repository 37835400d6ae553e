"""Recipes, and their steps before and after a network."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import tonnx
from tonnx.run import read_recipe
from tonnx.run.after import conclude
from tonnx.run.before import prepare
from tonnx.run.detections import Detection, strongest
from tonnx.run.recipe import Recipe, from_json, parse, ready_recipes

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
    with pytest.raises(tonnx.InvalidArgument, match=f"{name} is not (readable|TOML)"):
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
