"""Where tokens of a picture are, and what they see, is asked of the model and of what `generate` tells it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("transformers")

import tests.generation.families  # noqa: F401 (first: transformers imports torchvision)
from tests.generation.packages import image_processor, model_of, run_case
from tonnx.errors import TonnxError
from tonnx.packages.pictures import Picture, decoder_of
from tonnx.packages.vision_language import EmbeddingPart, read_picture, seeing_decoder
from tonnx.run.decoding import DEEP, FEATURES, PLACES, Decoder


def read(family: str) -> Picture:
    model = model_of("IMAGE_TEXT_TO_TEXT", family)
    return read_picture(model, image_processor(family, model))


@pytest.mark.parametrize(
    ("family", "types", "positions"),
    [
        ("llava", {}, None),
        # Its pictures see all of themselves, texts do not.
        ("gemma3", {"name": "token_type_ids", "picture": 1, "text": 0, "new": 0}, None),
        # Its prompts see all of themselves, and positions count from 1.
        (
            "paligemma", {"name": "token_type_ids", "picture": 0, "text": 0, "new": 1},
            {"first": [1], "picture": [[1, 2, 3, 4]], "moving": [[1, 1, 1, 1]], "after": [1]},
        ),
    ],
)  # fmt: skip
def test_what_generate_tells_the_model(family: str, types: dict[str, Any], positions: dict[str, Any] | None) -> None:
    picture = read(family)
    assert (picture.types, picture.positions) == (types, positions)


@pytest.mark.parametrize(("family", "itself"), [("gemma3", False), ("paligemma", False), ("gemma4_unified", True)])
def test_masks_are_those_that_generate_ends_up_with(family: str, itself: bool) -> None:
    """Gemma 4's own code lets more of a picture be seen than the masks that it makes for `generate`."""
    model = model_of("IMAGE_TEXT_TO_TEXT", family)
    picture = read_picture(model, image_processor(family, model))
    assert seeing_decoder(model, EmbeddingPart(model, picture.token), picture)._masks_itself is itself


def test_a_grid_of_patches() -> None:
    picture = read("qwen2_vl")
    assert picture.rows == 4 and picture.positions is not None
    *_, time, height, width = picture.positions["picture"]
    assert (time, height, width) == ([0, 0, 0, 0], [0, 0, 1, 1], [0, 1, 0, 1])
    assert picture.positions["after"][-3:] == [-2, -2, -2]  # as far as the longer side


def test_positions_that_do_not_move_with_the_picture() -> None:
    """Of what is inside the picture, Hunyuan's count from its corner, wherever it is in the text."""
    picture = read("hunyuan_vl")
    assert picture.positions is not None
    assert picture.positions["moving"][0] == [1, 0, 0, 0, 0, 0, 0, 1]
    assert picture.positions["picture"][0] == [0, 0, 1, 2, 0, 1, 2, 7]


def test_how_several_pictures_lie_is_asked_of_the_processor() -> None:
    one, patches = read("llava"), read("minicpmv4_6")
    assert one.several(3)["pixel_values"].shape == (3, *one.pixels.shape[1:])
    assert patches.several(3)["pixel_values"].shape[-1] == 3 * patches.pixels.shape[-1]
    assert patches.pixels.shape[0] == patches.several(3)["pixel_values"].shape[0] == 1


def test_pixels_by_another_name() -> None:
    assert read("video_llava").name == "pixel_values_images"


def test_a_part_that_writes() -> None:
    """BLIP-2 hands over to its language model, which takes no pictures."""
    model = model_of("IMAGE_TEXT_TO_TEXT", "blip-2")
    assert decoder_of(model) is model.language_model
    assert decoder_of(plain := model_of("IMAGE_TEXT_TO_TEXT", "llava")) is plain


@pytest.mark.parametrize(
    ("family", "outputs"), [("llava", ["inputs_embeds"]), ("gemma4", ["inputs_embeds", "per_layer_inputs"])]
)
def test_what_the_decoder_is_given_for_tokens(family: str, outputs: list[str]) -> None:
    """Gemma 4 has vectors for every layer, and shows pictures' tokens as padding."""
    model = model_of("IMAGE_TEXT_TO_TEXT", family)
    ids = torch.tensor([[5, 90, 7]])
    shown = EmbeddingPart(model, 90)(ids)
    assert sorted(shown) == outputs
    table = model.get_input_embeddings()(ids)
    assert torch.equal(shown["inputs_embeds"], table) is (len(outputs) == 1)
    assert torch.equal(shown["inputs_embeds"][:, 0], table[:, 0])


def test_pictures_read_together_with_a_text_are_refused() -> None:
    with pytest.raises(TonnxError, match="together with qformer_input_ids"):
        read("instructblip")


class Deep:
    """A session whose decoder adds rows of pictures in two layers."""

    def __init__(self) -> None:
        names = ("inputs_embeds", PLACES, f"{DEEP}0", f"{DEEP}1")
        self.inputs, self.shapes = dict.fromkeys(names, "tensor(float)"), dict[str, Any]()
        self.given: list[dict[str, np.ndarray]] = []

    def run(self, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        self.given.append(feeds)
        ids = feeds["input_ids" if "input_ids" in feeds else "inputs_embeds"]
        return {"logits": np.zeros((*ids.shape[:2], 5)), "inputs_embeds": np.zeros((*ids.shape, 3))}


@pytest.mark.parametrize("one_token", [False, True])
def test_rows_that_layers_add(one_token: bool) -> None:
    """The further columns of a picture's rows go to the layers, in the order of the texts; no token has any later."""
    session, features = Deep(), np.arange(36.0).reshape(2, 2, 9)
    decoder = Decoder(session, {"image_token": 9, "one_token": one_token}, Deep())  # type: ignore[arg-type]
    ids, mask = np.array([[4, 9, 9, 5], [9, 9, 6, 6]]), np.ones((2, 4), np.int64)
    _, state = decoder.step(ids, mask, {FEATURES: features})
    decoder.step(np.array([[9], [7]]), np.ones((2, 5), np.int64), state)
    *prompt, last = session.given
    assert not last[PLACES].any() and last[f"{DEEP}0"].shape == (0, 3)  # a token that was generated is no picture
    places = np.concatenate([feeds[PLACES] for feeds in prompt], 1)
    np.testing.assert_array_equal(places, ids == 9)
    for layer in range(2):
        rows = np.concatenate([feeds[f"{DEEP}{layer}"] for feeds in prompt])
        wanted = features[..., 3 * layer + 3 : 3 * layer + 6].reshape(-1, 3)
        np.testing.assert_array_equal(np.sort(rows[:, 0]), wanted[:, 0])
        assert one_token or np.array_equal(rows, wanted)


class Recorded:
    """A session that keeps what it is given."""

    def __init__(self) -> None:
        self.inputs = dict.fromkeys(("position_ids", "token_type_ids", "inputs_embeds"), "tensor(int64)")
        self.shapes = {"position_ids": [2, "batch", "sequence"]}
        self.given: list[dict[str, np.ndarray]] = []

    def run(self, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        self.given.append(feeds)
        ids = feeds["input_ids" if "input_ids" in feeds else "inputs_embeds"]
        return {"logits": np.zeros((*ids.shape[:2], 5)), "inputs_embeds": np.zeros((*ids.shape, 3))}


@pytest.mark.parametrize("one_token", [False, True])
def test_pictures_at_several_places(one_token: bool) -> None:
    """Two texts with a picture of two tokens each, the second one padded; then one more token."""
    session = Recorded()
    said = {"first": [1, 0], "picture": [[1, 1], [0, 1]], "after": [0, -1]}
    kinds = {"name": "token_type_ids", "picture": 1, "text": 0, "new": 2}
    manifest = {"image_token": 9, "positions": said, "token_types": kinds, "one_token": one_token}
    decoder = Decoder(session, manifest, Recorded())  # type: ignore[arg-type]
    ids = np.array([[4, 9, 9, 5], [0, 9, 9, 6]])
    mask = np.array([[1, 1, 1, 1], [0, 1, 1, 1]])
    features = np.arange(12.0).reshape(2, 2, 3)
    _, state = decoder.step(ids, mask, {FEATURES: features})
    decoder.step(np.array([[9], [7]]), np.concatenate([mask, [[1], [1]]], 1), state)
    joined = {name: np.concatenate([feeds[name] for feeds in session.given[:-1]], 1 if name == "inputs_embeds" else -1)
              for name in session.inputs}  # fmt: skip
    np.testing.assert_array_equal(joined["position_ids"], [[[1, 2, 2, 3], [1, 1, 1, 2]], [[0, 1, 2, 2], [0, 0, 1, 1]]])
    np.testing.assert_array_equal(joined["token_type_ids"], [[0, 1, 1, 0], [0, 1, 1, 0]])
    np.testing.assert_array_equal(joined["inputs_embeds"][:, 1:3], features)
    last = session.given[-1]
    np.testing.assert_array_equal(last["position_ids"], [[[4], [3]], [[3], [2]]])
    assert not last["inputs_embeds"].any() and (last["token_type_ids"] == 2).all()  # which is no picture


@pytest.mark.models
@pytest.mark.parametrize("family", ["qwen2_vl", "gemma3", "paligemma", "qwen3_vl", "gemma4", "hunyuan_vl", "blip-2"])
def test_token_for_token(family: str) -> None:
    assert run_case(f"IMAGE_TEXT_TO_TEXT:{family}", tokens=6) == "ok"
