"""Encoder-decoders as two files: they read texts, pictures and sounds, and generate the model's tokens."""

from __future__ import annotations

import json
import shutil
import wave
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("transformers")
pytest.importorskip("tokenizers")

from tests.generation.families import varied  # first: transformers imports torchvision
from tests.packages.test_packages import write_tokenizer

# isort: split
import torch
import transformers

import tonnx
from tonnx.cli import main
from tonnx.errors import TonnxError, VerificationFailed
from tonnx.packages import proof
from tonnx.packages.export import export_package
from tonnx.run.features import log_mel
from tonnx.run.rules import Rules

SPECIAL = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 3}
SIZES = {
    "vocab_size": 97, "d_model": 32, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48,
}  # fmt: skip
RULED = {"forced_bos_token_id": 5, "no_repeat_ngram_size": 2, "repetition_penalty": 1.3, "forced_eos_token_id": 2}


def tiny(kind: str) -> Any:
    torch.manual_seed(0)
    if kind == "t5":
        sizes = {"vocab_size": 97, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4}
        return varied(transformers.T5ForConditionalGeneration(transformers.T5Config(**sizes, **SPECIAL)))
    if kind == "bart":
        config = transformers.BartConfig(**SIZES, **SPECIAL, max_position_embeddings=64)
        model = varied(transformers.BartForConditionalGeneration(config))
        model.generation_config.update(**RULED)
        return model
    if kind == "whisper":
        lengths = {"max_source_positions": 50, "max_target_positions": 64, "num_mel_bins": 8}
        settings = {**SIZES, **SPECIAL, **lengths, "suppress_tokens": None, "begin_suppress_tokens": None}
        model = varied(transformers.WhisperForConditionalGeneration(transformers.WhisperConfig(**settings)))
        model.generation_config.suppress_tokens = [5, 6]
        return model
    if kind == "pix2struct":
        sizes = {"hidden_size": 24, "d_kv": 6, "d_ff": 37, "num_layers": 1, "num_heads": 4}
        seen = {"num_hidden_layers": 1, "num_attention_heads": 4, "patch_embed_hidden_size": 48, "seq_len": 6}
        text = transformers.Pix2StructTextConfig(vocab_size=97, **sizes, **SPECIAL)
        vision = transformers.Pix2StructVisionConfig(hidden_size=24, d_kv=6, d_ff=37, **seen)
        parts = {"text_config": text.to_dict(), "vision_config": vision.to_dict()}
        return varied(transformers.Pix2StructForConditionalGeneration(transformers.Pix2StructConfig(**parts)))
    vit = transformers.ViTConfig(
        hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=37, image_size=32, patch_size=8
    )
    gpt2 = transformers.GPT2Config(vocab_size=97, n_embd=24, n_layer=1, n_head=2, n_positions=64)
    both = transformers.VisionEncoderDecoderConfig.from_encoder_decoder_configs(vit, gpt2)
    for name, token in SPECIAL.items():
        setattr(both, name, token)
    return varied(transformers.VisionEncoderDecoderModel(both))


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("packages")


def exported(kind: str, packages: Path) -> tuple[Any, Path, Path]:
    """The model, its checkpoint, and its package, which is made once."""
    model, source, folder = tiny(kind), packages / kind, packages / f"{kind}-onnx"
    if not folder.exists():
        model.save_pretrained(source)
        write_tokenizer(source)
        if kind == "whisper":
            transformers.WhisperFeatureExtractor(feature_size=8, chunk_length=1).save_pretrained(source)
        if kind == "pix2struct":
            processor = transformers.Pix2StructImageProcessor(patch_size={"height": 4, "width": 4}, max_patches=6)
            processor.save_pretrained(source)
        result = export_package(source, folder, layout="optimum", tokens=8)
        assert [*result.exports] == ["encoder_model.onnx", "decoder_model_merged.onnx"]
        assert result.proof is not None and result.proof.tokens == 8 and result.proof.encoder < 1e-4
    return model, source, folder


@pytest.mark.parametrize("kind", ["t5", "bart"])
def test_texts(kind: str, packages: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, _, folder = exported(kind, packages)
    loaded = tonnx.load(folder)
    rows = loaded.token_ids(["Hello", "Hi you"])
    for beams in (1, 3):
        wanted = [
            model.generate(torch.tensor([row]), do_sample=False, num_beams=beams, max_new_tokens=9)[0, 1:].tolist()
            for row in rows
        ]
        assert [each.tokens for each in loaded.generate(rows, num_beams=beams, max_new_tokens=9)] == wanted
    text = loaded.generate("Hello", max_new_tokens=9)[0].text
    assert "".join(loaded.stream("Hello", max_new_tokens=9)) == text
    assert main(["generate", str(folder), "Hello", "--max-new-tokens", "9"]) == 0
    assert capsys.readouterr().out == f"{text}\n"  # not after the prompt: it is rewritten, not continued


def test_names_are_those_of_optimum(packages: Path) -> None:
    _, _, folder = exported("t5", packages)
    encoder = tonnx.load(folder / "onnx" / "encoder_model.onnx")
    decoder = tonnx.load(folder / "onnx" / "decoder_model_merged.onnx")
    assert ([*encoder.inputs], [*encoder.outputs]) == (["input_ids", "attention_mask"], ["last_hidden_state"])
    layers = [
        f"{layer}.{half}.{part}" for layer in (0, 1) for half in ("decoder", "encoder") for part in ("key", "value")
    ]
    states = {"input_ids", "encoder_hidden_states", "encoder_attention_mask"}
    assert {*decoder.inputs} == states | {f"past_key_values.{name}" for name in layers}
    assert [name for name in decoder.inputs if name not in states] == [f"past_key_values.{name}" for name in layers]
    assert [*decoder.outputs] == ["logits", *(f"present.{name}" for name in layers)]


def test_speech(packages: Path, tmp_path: Path) -> None:
    model, source, folder = exported("whisper", packages)
    samples = (np.random.default_rng(0).standard_normal(24_000) * 3000).astype(np.int16)  # one and a half pieces
    with wave.open(str(tmp_path / "speech.wav"), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(16_000)
        file.writeframes(samples.tobytes())
    extractor, loaded = transformers.AutoFeatureExtractor.from_pretrained(source), tonnx.load(folder)
    words = []
    for piece in (samples[:16_000], samples[16_000:]):
        sound = (piece / np.float32(32768)).astype(np.float32)
        features = extractor(sound, sampling_rate=16_000, return_tensors="pt")["input_features"]
        np.testing.assert_allclose(log_mel(sound, extractor.to_dict()), features[0], atol=1e-5)
        ids = transformers.GenerationMixin.generate(model, features, do_sample=False, max_new_tokens=8)
        words.append(loaded.text(ids[0, 1:].tolist()).strip())
    assert loaded.transcribe(tmp_path / "speech.wav", max_new_tokens=8) == " ".join(words).strip()
    with pytest.raises(TonnxError, match="has no language 'xx'"):
        loaded.transcribe(np.zeros(99), language="xx")
    settings = {"lang_to_id": {"<|de|>": 7, "<|en|>": 8}, "task_to_id": {"transcribe": 9}, "no_timestamps_token_id": 10}
    loaded.settings |= settings
    context = loaded.context({"input_features": np.zeros([1, 8, 100], np.float32)})
    assert loaded._speech_start(context, "en") == [3, 8, 9, 10]
    assert loaded._speech_start(context, None)[1] in (7, 8)


@pytest.mark.parametrize(("kind", "shape"), [("vit-gpt2", (2, 3, 32, 32)), ("pix2struct", (2, 6, 50))])
def test_pictures(kind: str, shape: tuple[int, ...], packages: Path) -> None:
    """As pixels, and as the patches that only the checkpoint's processor makes."""
    model, _, folder = exported(kind, packages)
    pixels = np.abs(np.random.default_rng(0).standard_normal(shape)).astype(np.float32)  # the first two are places
    wanted = model.generate(torch.from_numpy(pixels), do_sample=False, max_new_tokens=6)[:, 1:].tolist()
    assert [each.tokens for each in tonnx.load(folder).generate(pixels, max_new_tokens=6)] == wanted


@pytest.mark.parametrize(
    ("part", "told"),
    [("encoder", "last_hidden_state of the package differs"), ("decoder", "the decoder's scores differ")],
)
def test_the_part_that_departs_is_named(part: str, told: str, packages: Path) -> None:
    _, _, folder = exported("t5", packages)
    other = tiny("t5")
    with torch.no_grad():
        getattr(other, part).final_layer_norm.weight[:9] += 0.5
    with pytest.raises(VerificationFailed, match=told):
        proof.prove_package(tonnx.load(folder), other, 4)


def test_settings_that_are_not_kept_are_found_out(packages: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, _, folder = exported("bart", packages)
    monkeypatch.setattr(Rules, "applied", lambda rules, scores, *_: scores)
    with pytest.raises(VerificationFailed, match=r"generation_config\.json"):
        proof.prove_package(tonnx.load(folder), model, 4)


def test_what_does_not_fit_is_refused(packages: Path, tmp_path: Path) -> None:
    _, source, _ = exported("t5", packages)
    with pytest.raises(TonnxError, match="does not fit the model type 't5'"):
        export_package(source, tmp_path / "out", task="automatic-speech-recognition")
    shutil.copytree(source, tmp_path / "source")
    for name in ("config.json", "generation_config.json"):
        content = json.loads((source / name).read_text(encoding="utf-8"))
        kept = {key: value for key, value in content.items() if key not in ("decoder_start_token_id", "bos_token_id")}
        (tmp_path / "source" / name).write_text(json.dumps(kept), encoding="utf-8")
    with pytest.raises(TonnxError, match="does not say what its decoder begins with"):
        export_package(tmp_path / "source", tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


CASES: list[dict[str, Any]] = [
    {"repetition_penalty": 1.7},
    {"no_repeat_ngram_size": 2},
    {"no_repeat_ngram_size": 1},
    {"bad_words_ids": [[4], [8, 9], [1, 2, 3, 4, 5, 6, 7, 8, 9]]},
    {"min_length": 7},
    {"min_new_tokens": 3},
    {"forced_bos_token_id": 11},
    {"forced_eos_token_id": 2},
    {"suppress_tokens": [4, 5]},
    {"begin_suppress_tokens": [6, 7]},
    {"begin_suppress_tokens": [6, 7], "forced_bos_token_id": 11},
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: "+".join(case))
def test_rules_mean_what_they_mean_in_transformers(case: dict[str, Any]) -> None:
    model = tiny("bart")
    scores = np.random.default_rng(0).standard_normal((2, 97)).astype(np.float32)
    rows = [[3, 8, 9, 4, 8], [3, 7, 7, 1, 7]]
    for given in (1, 3):
        config = transformers.GenerationConfig(**{**SPECIAL, **case}, max_new_tokens=4, max_length=given + 4)
        model._prepare_special_tokens(config, False, device="cpu")
        processors = model._get_logits_processor(
            config, input_ids_seq_length=given, encoder_input_ids=torch.tensor(rows), prefix_allowed_tokens_fn=None,
            logits_processor=transformers.LogitsProcessorList(), device="cpu",
        )  # fmt: skip
        for new in range(min(4, 6 - given)):
            tokens = [row[: given + new] for row in rows]
            wanted = processors(torch.tensor(tokens), torch.from_numpy(scores.copy())).numpy()
            actual = Rules.of(case).applied(scores, tokens, given, new, 4, [2])
            np.testing.assert_allclose(actual, wanted, rtol=1e-6, err_msg=f"{given} given, {new} new")


def test_weights_stay_in_the_safetensors(packages: Path, tmp_path: Path) -> None:
    _, source, folder = exported("t5", packages)
    export_package(source, tmp_path / "out", weights="reference", verify=False)
    sizes = {path.name: path.stat().st_size for path in (tmp_path / "out").iterdir()}
    written = sum(size for name, size in sizes.items() if name.endswith(".onnx"))
    assert sizes["model.safetensors"] == (source / "model.safetensors").stat().st_size
    assert written < sum(path.stat().st_size for path in (folder / "onnx").iterdir()) - sizes["model.safetensors"] / 2
    shutil.move(tmp_path / "out", tmp_path / "elsewhere")
    rows = [[9, 8, 7]]
    wanted = tonnx.load(folder).generate(rows, max_new_tokens=5)
    assert tonnx.load(tmp_path / "elsewhere").generate(rows, max_new_tokens=5) == wanted


def test_speech_without_its_preparation_is_refused(packages: Path, tmp_path: Path) -> None:
    _, source, _ = exported("whisper", packages)
    unprepared = shutil.ignore_patterns("*processor_config.json")
    shutil.copytree(source, tmp_path / "source", ignore=unprepared)
    with pytest.raises(TonnxError, match="takes 'input_features'"):
        export_package(tmp_path / "source", tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["source"]
