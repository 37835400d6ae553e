"""Where tokens of a picture are, and what they see, is asked of the model and of what `generate` tells it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("transformers")

import tests.generation.families  # noqa: F401 (first: transformers imports torchvision)
from tests.generation.packages import image_processor, model_of, run_case
from tonnx.errors import TonnxError
from tonnx.packages.vision_language import Picture, read_picture
from tonnx.run.decoding import FEATURES, Decoder


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
            {"first": [1], "picture": [[1, 2, 3, 4]], "after": [1]},
        ),
    ],
)  # fmt: skip
def test_what_generate_tells_the_model(family: str, types: dict[str, Any], positions: dict[str, Any] | None) -> None:
    picture = read(family)
    assert (picture.types, picture.positions) == (types, positions)


def test_a_grid_of_patches() -> None:
    picture = read("qwen2_vl")
    assert picture.rows == 4 and picture.positions is not None
    *_, time, height, width = picture.positions["picture"]
    assert (time, height, width) == ([0, 0, 0, 0], [0, 0, 1, 1], [0, 1, 0, 1])
    assert picture.positions["after"][-3:] == [-2, -2, -2]  # as far as the longer side


def test_pictures_in_several_layers_are_refused() -> None:
    with pytest.raises(TonnxError, match="deepstack_features"):
        read("qwen3_vl")


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
@pytest.mark.parametrize("family", ["qwen2_vl", "gemma3", "paligemma"])
def test_token_for_token(family: str) -> None:
    assert run_case(f"IMAGE_TEXT_TO_TEXT:{family}", tokens=6) == "ok"
