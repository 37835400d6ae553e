"""A checkpoint becomes a package that generates the model's tokens; what is not whole is refused."""

from __future__ import annotations

import json
import pickle
import shutil
import wave
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("transformers")
pytest.importorskip("tokenizers")

import tokenizers
import torch
import transformers
from PIL import Image

import tonnx
from tests.generation.families import tiny_model, varied
from tonnx.cli import main
from tonnx.errors import InvalidModel, TonnxError, VerificationFailed
from tonnx.packages import proof, vision_language
from tonnx.packages.decoder import decoder_step
from tonnx.packages.export import export_package

PROMPT = "Hello"


def write_tokenizer(folder: Path) -> None:
    """One token for each letter."""
    vocabulary = {"<pad>": 0, "<s>": 1, "</s>": 2} | {chr(29 + place): place for place in range(3, 97)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="<pad>"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Split("", "isolated")
    tokenizer.decoder = tokenizers.decoders.Fuse()
    tokenizer.save(str(folder / "tokenizer.json"))


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkpoint") / "llama"
    tiny_model("llama").save_pretrained(folder, max_shard_size="20KB")
    write_tokenizer(folder)
    return folder


@pytest.fixture(scope="module")
def package(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("package") / "llama-onnx"
    result = export_package(checkpoint, folder)
    assert result.task == "text-generation" and result.proof is not None and result.proof.tokens == 16
    return folder


def test_texts(package: Path, capsys: pytest.CaptureFixture[str]) -> None:
    loaded = tonnx.load(package)
    rows = loaded.token_ids([PROMPT])
    model = tiny_model("llama")
    model.generation_config.eos_token_id = loaded.settings.get("eos_token_id")
    wanted = model.generate(torch.tensor(rows), do_sample=False, max_new_tokens=12)[0, len(rows[0]) :].tolist()
    (generated,) = loaded.generate(PROMPT, max_new_tokens=12)
    assert generated.tokens == wanted
    assert "".join(loaded.stream(PROMPT, max_new_tokens=12)) == generated.text
    beams = model.generate(torch.tensor(rows), do_sample=False, max_new_tokens=8, num_beams=3)[0, len(rows[0]) :]
    assert loaded.generate(PROMPT, max_new_tokens=8, num_beams=3)[0].tokens == beams.tolist()
    assert main(["generate", str(package), PROMPT, "--max-new-tokens", "12"]) == 0
    assert capsys.readouterr().out == f"{PROMPT}{generated.text}\n"
    assert main(["generate", str(package), PROMPT, "Hi", "--max-new-tokens", "12", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["results"][0]["tokens"] == wanted


def test_genai_config_names_what_is_in_the_file(package: Path) -> None:
    decoder = json.loads((package / "genai_config.json").read_text(encoding="utf-8"))["model"]["decoder"]
    model = tonnx.load(package / decoder["filename"])
    layers = range(decoder["num_hidden_layers"])
    for port, side in ((model.inputs, decoder["inputs"]), (model.outputs, decoder["outputs"])):
        assert {name % i if "%d" in name else name for name in side.values() for i in layers} == set(port)
    assert model.inputs["past_key_values.0.key"].shape == (
        "batch", decoder["num_key_value_heads"], "past", decoder["head_size"],
    )  # fmt: skip


def test_layout_and_a_second_time(checkpoint: Path, tmp_path: Path) -> None:
    for _ in range(2):  # an older package is replaced
        export_package(checkpoint, tmp_path / "out", layout="optimum", verify=False)
        assert (tmp_path / "out" / "onnx" / "model.onnx").is_file()
    assert tonnx.load(tmp_path / "out").generate([[3, 4]], max_new_tokens=2)[0].tokens
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize(("to", "suffix"), [("int8", "_int8"), ("int4", "_q4"), ("fp16", "_fp16")])
def test_smaller_weights(to: str, suffix: str, checkpoint: Path, tmp_path: Path) -> None:
    result = export_package(checkpoint, tmp_path / "out", to=to, layout="optimum", verify="quick", tokens=2)
    assert [path.name for path in (tmp_path / "out" / "onnx").iterdir()] == [f"model{suffix}.onnx"]
    assert "greedy tokens as with floats" in str(result) and f"weights as {to}" in str(result)
    assert tonnx.load(tmp_path / "out").generate([[3, 4]], max_new_tokens=2)[0].tokens
    genai = json.loads((tmp_path / "out" / "genai_config.json").read_text(encoding="utf-8"))
    assert genai["model"]["decoder"]["filename"] == f"onnx/model{suffix}.onnx"


def no_config(folder: Path) -> None:
    (folder / "config.json").unlink()


def no_weights(folder: Path) -> None:
    for file in folder.glob("*.safetensors*"):
        file.unlink()


def only_a_pickle(folder: Path) -> None:
    no_weights(folder)
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps({}))


def no_shard(folder: Path) -> None:
    next(folder.glob("model-00002*.safetensors")).unlink()


def cut_shard(folder: Path) -> None:
    file = next(folder.glob("model-00001*.safetensors"))
    file.write_bytes(file.read_bytes()[:100])


def no_lm_head(folder: Path) -> None:
    from safetensors.torch import load_file, save_file

    tensors = {name: t for file in sorted(folder.glob("*.safetensors")) for name, t in load_file(file).items()}
    no_weights(folder)
    save_file({n: t for n, t in tensors.items() if "layers.1" not in n}, folder / "model.safetensors", {"format": "pt"})


def config(**changed: Any) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        content = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        (folder / "config.json").write_text(json.dumps({**content, **changed}), encoding="utf-8")

    return change


def broken_config(folder: Path) -> None:
    (folder / "config.json").write_text("{", encoding="utf-8")


HARMED = [
    (no_config, "no config.json"),
    (broken_config, "cannot be read"),
    (no_weights, "has no weights"),
    (only_a_pickle, "--allow-pickle"),
    (no_shard, "files with weights are missing"),
    (cut_shard, "does not load"),
    (no_lm_head, "are not in the checkpoint"),
    (config(model_type="unknown"), "no package for the model type 'unknown'"),
    (config(architectures=["LlamaForTokenClassification"]), "are not in the checkpoint"),
    (config(architectures=["LlamaForDancing"]), "no package for"),
    (config(auto_map={"AutoModel": "code.Net"}), "--trust-remote-code"),
]


@pytest.mark.parametrize(("harm", "message"), HARMED, ids=[getattr(h, "__name__", m) for h, m in HARMED])
def test_what_is_not_whole_is_refused(
    harm: Callable[[Path], None], message: str, checkpoint: Path, tmp_path: Path
) -> None:
    shutil.copytree(checkpoint, tmp_path / "source")
    harm(tmp_path / "source")
    with pytest.raises(TonnxError) as raised:
        export_package(tmp_path / "source", tmp_path / "out")
    assert message in str(raised.value)
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


def test_wrong_calls(checkpoint: Path, package: Path, tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "thesis.tex").write_text("x", encoding="utf-8")
    calls: list[tuple[dict[str, Any], str]] = [
        ({"source": tmp_path / "nowhere"}, "there is no folder"),
        ({"task": "dancing"}, "there is no task 'dancing'"),
        ({"task": "fill-mask"}, "does not fit the model type 'llama'"),
        ({"layout": "round"}, "layout must be one of"),
        ({"tokens": 0}, "tokens must be at least 1"),
        ({"to": "int3"}, "to must be one of int8, int4, fp16"),
        ({"to": "int8", "weights": "reference"}, "not those of the checkpoint"),
        ({"output": tmp_path / "taken"}, "is no package"),
        ({"output": tmp_path / "no" / "out"}, "does not exist"),
    ]
    for changed, message in calls:
        with pytest.raises(TonnxError, match=message):
            export_package(**{"source": checkpoint, "output": tmp_path / "out", **changed})
    with pytest.raises(InvalidModel, match="is no package"):
        tonnx.load(tmp_path)
    with pytest.raises(TonnxError, match="no option 'beams'"):
        tonnx.load(package).generate(PROMPT, beams=2)
    assert main(["export", str(tmp_path / "taken"), "-o", str(tmp_path / "out"), "--task", "text-generation"]) == 1


def test_without_a_tokenizer(package: Path, tmp_path: Path) -> None:
    shutil.copytree(package, tmp_path / "out")
    (tmp_path / "out" / "tokenizer.json").unlink()
    loaded = tonnx.load(tmp_path / "out")
    assert loaded.generate([[3, 4, 5]], max_new_tokens=3)[0].text is None
    with pytest.raises(InvalidModel, match="give token ids"):
        loaded.generate(PROMPT)


@pytest.mark.parametrize(
    ("kind", "task"),
    [("BertModel", "feature-extraction"), ("BertForSequenceClassification", "text-classification")],
)
def test_whole_texts(kind: str, task: str, tmp_path: Path) -> None:
    import transformers

    torch.manual_seed(0)
    sizes = {"vocab_size": 97, "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "num_labels": 3}
    model = getattr(transformers, kind)(transformers.BertConfig(**sizes, intermediate_size=48)).eval()
    model.save_pretrained(tmp_path / "source")
    write_tokenizer(tmp_path / "source")
    assert export_package(tmp_path / "source", tmp_path / "out").task == task
    package = tonnx.load(tmp_path / "out")
    texts = ["Hello", "Hi"]
    for text, row in zip(texts, package.token_ids(texts), strict=True):
        with torch.no_grad():
            wanted = model(torch.tensor([row]))[0][0].numpy()
        if task == "feature-extraction":
            assert np.allclose(package.encode(texts)[texts.index(text)], wanted.mean(axis=0), atol=1e-4)
        else:
            chances = package.classify(texts)[texts.index(text)]
            assert next(iter(chances)) == f"LABEL_{wanted.argmax()}" and abs(sum(chances.values()) - 1) < 1e-6
    with pytest.raises(TonnxError, match="generate is for text-generation"):
        package.generate("Hello")


def test_a_model_without_a_cache_computes_from_the_beginning(tmp_path: Path) -> None:
    model = tiny_model("openai-gpt")
    model.save_pretrained(tmp_path / "source")
    result = export_package(tmp_path / "source", tmp_path / "out", verify="quick", tokens=4)
    assert "from the beginning" in str(result)
    prompts, package = [[5, 6, 7], [9, 8, 7]], tonnx.load(tmp_path / "out")
    asked = {"do_sample": False, "max_new_tokens": 5, "num_beams": 2, "eos_token_id": None, "pad_token_id": 0}
    wanted = model.generate(torch.tensor(prompts), **asked)[:, 3:].tolist()
    package.settings = {}
    assert [row.tokens for row in package.generate(prompts, max_new_tokens=5, num_beams=2)] == wanted


@pytest.fixture(scope="module")
def seeing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that reads pictures in a text, and the package of it."""
    folder = tmp_path_factory.mktemp("seeing")
    sizes = {"vocab_size": 97, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1}
    config = transformers.LlavaConfig(
        vision_config={"model_type": "clip_vision_model", **sizes, **heads, "image_size": 8, "patch_size": 4},
        text_config={"model_type": "llama", **sizes, **heads}, image_token_id=90, vision_feature_layer=-1,
    )  # fmt: skip
    torch.manual_seed(0)
    varied(transformers.LlavaForConditionalGeneration(config)).save_pretrained(folder / "source")
    side = {"height": 8, "width": 8}
    transformers.CLIPImageProcessor(size=side, crop_size=side).save_pretrained(folder / "source")
    write_tokenizer(folder / "source")
    result = export_package(folder / "source", folder / "out", verify="quick", tokens=4, layout="optimum")
    assert result.task == "image-to-text" and "encoder within" in str(result)
    return folder


def test_pictures_in_a_text(seeing: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = ["decoder_model_merged.onnx", "embed_tokens.onnx", "vision_encoder.onnx"]
    assert sorted(path.name for path in (seeing / "out" / "onnx").iterdir()) == names
    image = Image.fromarray(np.random.default_rng(0).integers(0, 256, (13, 11, 3), dtype=np.uint8))
    image.save(seeing / "cat.png")
    model = transformers.LlavaForConditionalGeneration.from_pretrained(seeing / "source")
    pixels = transformers.CLIPImageProcessor.from_pretrained(seeing / "source")(images=image, return_tensors="pt")
    package = tonnx.load(seeing / "out")
    ids = package.token_ids("Hi")[0]
    asked = {"do_sample": False, "max_new_tokens": 6, "eos_token_id": None, "pad_token_id": 0}
    wanted = model.generate(torch.tensor([[90] * 4 + ids]), **pixels, **asked)[0, 4 + len(ids) :].tolist()
    package.settings = {}
    assert package.generate("Hi", images=seeing / "cat.png", max_new_tokens=6)[0].tokens == wanted
    assert package.generate([[90, *ids]], images=[image], max_new_tokens=6)[0].tokens == wanted
    assert package.generate("Hi", max_new_tokens=6)[0].tokens != wanted
    with pytest.raises(TonnxError, match="2 pictures for 1 prompts"):
        package.generate("Hi", images=[image, image])
    called = ["generate", str(seeing / "out"), "Hi", "--image", str(seeing / "cat.png"), "--max-new-tokens", "6"]
    assert main([*called, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["results"][0]["tokens"] == wanted


@pytest.mark.parametrize("stage", ["vision encoder", "embedding", "a picture"])
def test_the_stage_that_departs_is_named(stage: str, seeing: Path) -> None:
    model = transformers.LlavaForConditionalGeneration.from_pretrained(seeing / "source")
    package = tonnx.load(seeing / "out")
    processor = transformers.CLIPImageProcessor.from_pretrained(seeing / "source")
    picture = vision_language.read_picture(model, processor)
    with torch.no_grad():
        if stage == "vision encoder":
            model.model.multi_modal_projector.linear_1.weight.mul_(1.5)
        elif stage == "embedding":
            model.get_input_embeddings().weight.mul_(1.5)
    if stage == "a picture":
        package.decoder._picture_token = None  # its rows are not put into their places
    with pytest.raises(VerificationFailed, match=stage):
        proof.prove_package(package, model, 4, picture=picture)


def test_another_model_is_found_out(package: Path) -> None:
    other = tiny_model("llama")
    with torch.no_grad():
        other.lm_head.weight[7] += 1.0
    with pytest.raises(VerificationFailed, match="scores differ"):
        proof.prove_package(tonnx.load(package), other, 4)


def test_a_model_that_fails_itself_is_said_to(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_model("llama")
    monkeypatch.setattr(model.model, "forward", lambda *_, **__: torch.ones(2) + torch.ones(3))
    with pytest.raises(TonnxError, match="LlamaForCausalLM itself fails on 2 texts of 5 tokens"):
        decoder_step(model)


# Pictures and sounds

PREPARED = {
    "do_resize": True, "size": {"height": 32, "width": 32}, "resample": 2, "do_rescale": True,
    "rescale_factor": 1 / 255, "do_normalize": True, "image_mean": [0.5] * 3, "image_std": [0.25] * 3,
}  # fmt: skip


def checkpoint_of(model: Any, folder: Path, **beside: Any) -> Path:
    model.eval().save_pretrained(folder)
    for name, content in beside.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    return folder


def tiny_vit() -> Any:
    torch.manual_seed(0)
    return transformers.ViTForImageClassification(
        transformers.ViTConfig(
            hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=37, image_size=32,
            patch_size=8, num_labels=5, id2label={i: f"thing {i}" for i in range(5)},
        )
    )  # fmt: skip


def tiny_wav2vec2() -> Any:
    torch.manual_seed(0)
    return transformers.Wav2Vec2ForCTC(
        transformers.Wav2Vec2Config(
            vocab_size=8, hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=37,
            conv_dim=(16,) * 7, num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=2, pad_token_id=0,
        )
    )  # fmt: skip


def test_pictures_are_prepared_as_the_checkpoint_says(tmp_path: Path) -> None:
    model = tiny_vit()
    source = checkpoint_of(model, tmp_path / "vit", preprocessor_config=PREPARED)
    result = export_package(source, tmp_path / "package")
    assert result.task == "image-classification" and isinstance(result.proof, float) and not result.notes
    pixels = np.random.default_rng(0).integers(0, 256, (40, 50, 3), dtype=np.uint8)
    picture = Image.fromarray(pixels)
    picture.save(tmp_path / "cat.png")
    small = np.asarray(picture.resize((32, 32), Image.Resampling.BILINEAR), np.float32)
    array = ((small / 255 - 0.5) / 0.25).transpose(2, 0, 1)[None]
    chances = torch.softmax(model(torch.from_numpy(array)).logits[0], -1).tolist()
    loaded = tonnx.load(tmp_path / "package")
    for items in ([tmp_path / "cat.png"], [picture], array):
        (answer,) = loaded.classify(items)
        assert list(answer.values()) == sorted(answer.values(), reverse=True)
        np.testing.assert_allclose([answer[f"thing {i}"] for i in range(5)], chances, rtol=1e-4)
    with pytest.raises(TonnxError, match="generate is for text-generation"):
        loaded.generate("x")


@pytest.mark.parametrize(
    ("asked", "told"),
    [({"do_pad": True}, "do_pad"), ({"size": {"longest_edge": 9}}, "longest_edge"), ({"crop_pct": 0.9}, "crop_pct")],
)
def test_pictures_that_are_prepared_otherwise_are_taken_as_arrays(
    asked: dict[str, Any], told: str, tmp_path: Path
) -> None:
    source = checkpoint_of(tiny_vit(), tmp_path / "vit", preprocessor_config=PREPARED | asked)
    result = export_package(source, tmp_path / "package", verify=False)
    assert any(told in note for note in result.notes)
    with pytest.raises(TonnxError, match="how pictures are prepared"):
        tonnx.load(tmp_path / "package").classify([Image.new("RGB", (9, 9))])


def test_speech(tmp_path: Path) -> None:
    model = tiny_wav2vec2()
    letters = ["<pad>", "|", "A", "B", "C", "D", "E", "F"]
    vocabulary = {letter: number for number, letter in enumerate(letters)}
    settings = {"do_normalize": True, "sampling_rate": 16_000}
    source = checkpoint_of(model, tmp_path / "w2v", vocab=vocabulary, preprocessor_config=settings)
    result = export_package(source, tmp_path / "package")
    assert result.task == "automatic-speech-recognition"
    samples = (np.random.default_rng(0).standard_normal(9000) * 3000).astype(np.int16)
    with wave.open(str(tmp_path / "speech.wav"), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(16_000)
        file.writeframes(samples.tobytes())
    sound = samples / np.float32(32768)
    scaled = torch.from_numpy((sound - sound.mean()) / np.sqrt(sound.var() + 1e-7))
    numbers = torch.unique_consecutive(model(scaled[None]).logits[0].argmax(-1))
    wanted = "".join(letters[number] for number in numbers.tolist() if number).replace("|", " ").strip()
    loaded = tonnx.load(tmp_path / "package")
    assert wanted and loaded.transcribe(tmp_path / "speech.wav") == loaded.transcribe(sound) == wanted
    with pytest.raises(TonnxError, match="cannot be read as a WAV file"):
        loaded.transcribe(source / "config.json")
