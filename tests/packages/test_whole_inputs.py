"""Models that take their input whole: which inputs, in which form, asked of the model itself; labels of the user's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("transformers")
pytest.importorskip("tokenizers")

import torch
import transformers
from PIL import Image

import tonnx
from tests.packages.test_packages import write_tokenizer
from tonnx.cli import main
from tonnx.errors import TonnxError
from tonnx.packages.export import export_package

SIZES = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2}
TEXT = {"vocab_size": 97, "max_position_embeddings": 40, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
SIDE = {"height": 8, "width": 8}
VISION = {**SIZES, "image_size": 8, "patch_size": 4}
LABELS = ["cat", "dog house", "a b"]


def processor(kind: str = "CLIPImageProcessor") -> Any:
    return getattr(transformers, kind)(size=SIDE, crop_size=SIDE)


def source(folder: Path, model: Any, *beside: Any) -> Path:
    torch.manual_seed(0)
    model.apply(model._init_weights)
    model.eval().save_pretrained(folder)
    for each in beside:
        each.save_pretrained(folder)
    return folder


def clip(**beyond: Any) -> Any:
    return transformers.CLIPModel(
        transformers.CLIPConfig(text_config={**SIZES, **TEXT}, vision_config=VISION, projection_dim=8, **beyond)
    )


def siglip() -> Any:
    return transformers.SiglipModel(transformers.SiglipConfig(text_config={**SIZES, **TEXT}, vision_config=VISION))


def inputs_of(package: Path) -> dict[str, Any]:
    return {name: tuple(port.shape) for name, port in tonnx.load(package / "model.onnx").inputs.items()}


@pytest.mark.parametrize(("make", "scores"), [(clip, "softmax"), (siglip, "sigmoid")])
def test_labels_of_the_users(make: Any, scores: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = source(tmp_path / "source", make(), processor())
    write_tokenizer(folder)
    assert export_package(folder, tmp_path / "out").task == "zero-shot-image-classification"
    package, model = tonnx.load(tmp_path / "out"), type(make()).from_pretrained(folder)
    assert inputs_of(tmp_path / "out")["pixel_values"] == ("image_batch", 3, 8, 8)
    picture = Image.fromarray(np.random.default_rng(0).integers(0, 256, (13, 11, 3), dtype=np.uint8))
    picture.save(tmp_path / "cat.png")
    rows = package.token_ids([f"A {label}" for label in LABELS])
    length = 40 if scores == "sigmoid" else max(map(len, rows))
    ids = torch.tensor([[*row, *[0] * (length - len(row))] for row in rows])
    with torch.no_grad():
        given = {"input_ids": ids, "attention_mask": (ids != 0).long(), **processor()(picture, return_tensors="pt")}
        logits = model(**given).logits_per_image[0]
    wanted = logits.sigmoid() if scores == "sigmoid" else logits.softmax(-1)
    for item in (picture, tmp_path / "cat.png"):
        (answer,) = package.classify([item], labels=LABELS, template="A {}")
        assert list(answer.values()) == sorted(answer.values(), reverse=True)
        np.testing.assert_allclose([answer[label] for label in LABELS], wanted, rtol=1e-3)
    called = ["run", str(tmp_path / "out"), str(tmp_path / "cat.png"), *(f"--label={label}" for label in LABELS)]
    assert main([*called, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["results"][0]["answer"]
    assert told == package.classify([picture], labels=LABELS)[0]
    with pytest.raises(TonnxError, match="needs labels"):
        package.classify([picture])


def text_config(kind: str, **more: Any) -> Any:
    return getattr(transformers, kind)(vocab_size=97, max_position_embeddings=40, **SIZES, **more)


WHOLE = [
    (lambda: clip(), "zero-shot-image-classification",
     {"input_ids": ("text_batch", "sequence"), "pixel_values": ("image_batch", 3, 8, 8),
      "attention_mask": ("text_batch", "sequence")}),
    (lambda: transformers.OwlViTForObjectDetection(transformers.OwlViTConfig(
        text_config={**SIZES, **TEXT}, vision_config=VISION, projection_dim=16)), "zero-shot-object-detection",
     {"input_ids": ("text_batch", "sequence"), "pixel_values": ("image_batch", 3, 8, 8),
      "attention_mask": ("text_batch", "sequence")}),
    (lambda: transformers.BertForMultipleChoice(text_config("BertConfig")), "multiple-choice",
     dict.fromkeys(("input_ids", "attention_mask", "token_type_ids"), ("batch", "choices", "sequence"))),
    (lambda: transformers.LayoutLMForQuestionAnswering(text_config("LayoutLMConfig")), "document-question-answering",
     {"bbox": ("batch", "sequence", 4),
      **dict.fromkeys(("input_ids", "attention_mask", "token_type_ids"), ("batch", "sequence"))}),
    (lambda: transformers.VideoMAEForVideoClassification(transformers.VideoMAEConfig(**VISION, num_frames=4)),
     "video-classification", {"pixel_values": ("batch", 4, 3, 8, 8)}),
    (lambda: transformers.PatchTSTForPrediction(transformers.PatchTSTConfig(
        num_input_channels=3, context_length=16, patch_length=4, patch_stride=4, d_model=8, num_attention_heads=2,
        num_hidden_layers=1, ffn_dim=8)), "other", {"past_values": ("batch", 16, 3)}),
    (lambda: transformers.BertForNextSentencePrediction(text_config("BertConfig")), "other",
     dict.fromkeys(("input_ids", "attention_mask", "token_type_ids"), ("batch", "sequence"))),
]  # fmt: skip


@pytest.mark.parametrize(("make", "task", "inputs"), WHOLE, ids=[f"{task} {len(i)}" for _, task, i in WHOLE])
def test_what_a_model_takes_is_in_the_file(make: Any, task: str, inputs: dict[str, Any], tmp_path: Path) -> None:
    result = export_package(source(tmp_path / "source", make()), tmp_path / "out", verify="quick")
    assert result.task == task and inputs_of(tmp_path / "out") == inputs
    assert isinstance(result.proof, float)


def test_outputs_are_the_models_own(tmp_path: Path) -> None:
    export_package(source(tmp_path / "source", clip()), tmp_path / "out", verify="quick")
    outputs = [*tonnx.load(tmp_path / "out" / "model.onnx").outputs]
    assert outputs == ["logits_per_image", "logits_per_text", "text_embeds", "image_embeds"]


def test_pictures_have_the_size_that_they_are_prepared_to(tmp_path: Path) -> None:
    config = transformers.ResNetConfig(embedding_size=8, hidden_sizes=[8, 8], depths=[1, 1])
    made = transformers.ViTImageProcessor(size={"height": 40, "width": 40})
    folder = source(tmp_path / "source", transformers.ResNetForImageClassification(config), made)
    export_package(folder, tmp_path / "out", verify="quick")
    assert inputs_of(tmp_path / "out") == {"pixel_values": ("batch", 3, 40, 40)}
    picture = Image.fromarray(np.zeros((9, 7, 3), np.uint8))
    assert len(tonnx.load(tmp_path / "out").classify([picture])[0]) == 2


def test_a_model_that_draws_is_told_so(tmp_path: Path) -> None:
    config = transformers.ViTMAEConfig(**VISION, decoder_hidden_size=8, decoder_num_hidden_layers=1,
                                       decoder_num_attention_heads=2, decoder_intermediate_size=8)  # fmt: skip
    with pytest.raises(TonnxError, match="draws"):
        export_package(source(tmp_path / "source", transformers.ViTMAEForPreTraining(config)), tmp_path / "out")


@pytest.mark.parametrize(
    ("harm", "told"), [("SpeechT5ForTextToSpeech", "no package for"), ("BertForDancing", "no package for")]
)
def test_what_generates_by_a_loop_of_its_own_is_no_whole(harm: str, told: str, tmp_path: Path) -> None:
    folder = source(tmp_path / "source", transformers.BertModel(text_config("BertConfig")))
    config = (folder / "config.json").read_text().replace("BertModel", harm)
    (folder / "config.json").write_text(config)
    with pytest.raises(TonnxError, match=told):
        export_package(folder, tmp_path / "out")
