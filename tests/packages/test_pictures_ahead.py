"""Pictures that are read before the text: what they leave in the decoder is a file of its own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("transformers")

import tests.generation.families  # noqa: F401 (first: transformers imports torchvision)
from tests.generation.packages import image_processor, model_of, run_case
from tonnx.errors import InvalidArgument, TonnxError
from tonnx.packages.pictures_ahead import PictureAhead, read_ahead
from tonnx.run.decoding import Decoder
from tonnx.run.package import Package

KEYS = {f"past_key_values.{layer}.{part}" for layer in (0, 1) for part in ("key", "value")}
CROSSING = {f"past_key_values.{layer}.encoder.{part}" for layer in (0, 1) for part in ("key", "value")}


def read(family: str) -> PictureAhead:
    model = model_of("IMAGE_TEXT_TO_TEXT", family)
    return read_ahead(model, image_processor(family, model))


@pytest.mark.parametrize(
    ("family", "parts", "seeing"),
    [
        # In front of the text: five places of the state are its own.
        ("git", dict.fromkeys(KEYS, 5), {}),
        # By cross-attention, whose keys and values are in the state of one layer; four tiles, of which one is used.
        (
            "mllama", {"past_key_values.1.key": None, "past_key_values.1.value": None},
            {"cross_attention_mask": [[1, 0, 0, 0]]},
        ),
        # Or are computed at every step.
        ("idefics", {"image_encoder_embeddings": None}, {"image_attention_mask": [1]}),
        # In a part that the model hands over to.
        ("blip", dict.fromkeys({*CROSSING, "encoder_hidden_states", "encoder_attention_mask"}), {}),
    ],
)  # fmt: skip
def test_what_a_picture_leaves(family: str, parts: dict[str, Any], seeing: dict[str, Any]) -> None:
    picture = read(family)
    assert (picture.parts, picture.seeing) == (parts, seeing)


def test_a_prompt_that_the_model_changes() -> None:
    """BLIP begins with a token of its own, and drops the one that ends the prompt."""
    picture = read("blip")
    assert picture.prompt == {"first": 1, "dropped": 1} and picture.settings


@pytest.mark.parametrize("family", ["git", "mllama", "idefics", "blip"])
def test_packages(family: str) -> None:
    assert run_case(f"IMAGE_TEXT_TO_TEXT:{family}", tokens=4) == "ok"


def test_a_model_without_pictures_is_refused() -> None:
    model = model_of("CAUSAL_LM", "llama")
    llava = model_of("IMAGE_TEXT_TO_TEXT", "llava")
    with pytest.raises(TonnxError, match="LlamaForCausalLM yet"):
        read_ahead(model, image_processor("llava", llava))


class Recorded:
    def __init__(self) -> None:
        self.inputs = dict.fromkeys(("input_ids", "attention_mask", "sees"), "tensor(int64)")
        self.shapes = dict[str, Any]()
        self.given: list[dict[str, np.ndarray]] = []

    def run(self, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        self.given.append(feeds)
        return {"logits": np.zeros((*feeds["input_ids"].shape, 5))}


def test_tokens_see_a_picture_from_its_token_on() -> None:
    """Also where a prompt comes in parts, and in every step after it; those that pad it in front do not."""
    session = Recorded()
    decoder = Decoder(session, {"image_token": 9, "seeing": {"sees": [2, 0]}})  # type: ignore[arg-type]
    ids, mask = np.array([[4, 9, 5], [0, 9, 5]]), np.array([[1, 1, 1], [0, 1, 1]])
    decoder.step(ids, mask, {})
    decoder.step(ids[:, :1], mask[:, :1], {})
    decoder.step(ids[:, 1:], mask, {})
    decoder.step(np.array([[7], [7]]), np.ones((2, 4), np.int64), {})
    whole, first, rest, new = (feeds["sees"] for feeds in session.given)
    assert whole.tolist() == [[[0, 0], [2, 0], [2, 0]]] * 2
    assert np.array_equal(np.concatenate([first, rest], 1), whole) and new.tolist() == [[[2, 0]]] * 2


def test_a_package_takes_no_text_without_a_picture() -> None:
    package = Package.__new__(Package)
    package.manifest = {"ahead": True, "image_token": -1, "image_rows": 0, "prompt": {"first": 1, "dropped": 1}}
    package.task, package.folder = "image-to-text", "folder"  # type: ignore[assignment]
    with pytest.raises(InvalidArgument, match="takes no text without a picture"):
        package.generate([[5, 6]])
    assert package._with_places([5, 6, 7]) == [1, 6] and package._with_places([5]) == [1]
