"""Packages of every generative class of transformers that a tiny model can be made of. ``make test-generate-packages``.

Each in a process of its own, forked when everything is imported, with a limit of processor time.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import resource
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from tools.site_data import write_page

from tests.generation.families import MORE_SIZES, tiny_config, varied
from tests.generation.suite import PACKAGES, line

SECONDS = 150
LARGEST = 25_000_000
OPSET = 18
TOKENS = 16
KINDS = {
    "SEQ_TO_SEQ_CAUSAL_LM": ("text2text-generation", "AutoModelForSeq2SeqLM"),
    "SPEECH_SEQ_2_SEQ": ("automatic-speech-recognition", "AutoModelForSpeechSeq2Seq"),
    "CAUSAL_LM": ("text-generation", "AutoModelForCausalLM"),
    "IMAGE_TEXT_TO_TEXT": ("image-to-text", "AutoModelForImageTextToText"),
}
"""transformers' lists of classes (`MODEL_FOR_…_MAPPING_NAMES`): the task, and what loads them."""
SOUNDS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "whisper": (
        "WhisperFeatureExtractor",
        {"feature_size": 8, "chunk_length": 1},
        {"num_mel_bins": 8, "max_source_positions": 50, "suppress_tokens": None, "begin_suppress_tokens": None},
    ),
    "speech_to_text": (
        "Speech2TextFeatureExtractor",
        {"feature_size": 24, "num_mel_bins": 24},
        {"input_feat_per_channel": 24, "max_source_positions": 600},
    ),
    "canary": ("ParakeetFeatureExtractor", {"feature_size": 16}, {"num_mel_bins": 16}),
    "cohere_asr": ("CohereAsrFeatureExtractor", {"feature_size": 16, "dither": 0.0}, {"num_mel_bins": 16}),
    **dict.fromkeys(("moonshine", "moonshine_streaming"), ("Wav2Vec2FeatureExtractor", {"do_normalize": False}, {})),
    **dict.fromkeys(("seamless_m4t", "seamless_m4t_v2"), ("SeamlessM4TFeatureExtractor", {}, {})),
}
"""Models of speech need to know how sounds are prepared: the class, its settings, and those of the model that fit."""

SIDE = {"height": 16, "width": 16}
PICTURES: dict[str, Any] = {
    "image_size": 16, "patch_size": 8, "depth": 2, "embed_dim": 32, "image_token_id": 90, "image_token_index": 90,
    "video_token_id": 91, "video_token_index": 91, "vision_start_token_id": 92, "vision_end_token_id": 93,
    "scale_factor": 1, "projection_dim": 32, "vision_feature_layer": -1, "image_seq_length": 4, "out_hidden_size": 32,
    "spatial_merge_size": 1, "num_image_tokens": 4, "mm_tokens_per_image": 4,
    "deepstack_visual_indexes": [0], "audio_token_id": 94,
}  # fmt: skip
"""Sizes of models that read pictures in a text."""
PROCESSORS: tuple[dict[str, Any], ...] = (
    {"size": SIDE, "crop_size": SIDE},
    {"size": {"shortest_edge": 256, "longest_edge": 256}, "patch_size": 8, "merge_size": 1, "scale_resolution": 32},
    {"size": {"longest_edge": 16}, "max_image_size": {"longest_edge": 16}, "do_image_splitting": False},
    {"size": {"max_height": 16, "max_width": 16}, "patch_size": 8, "merge_size": 1},
    {"size": SIDE, "patch_size": 8, "merge_size": 1, "downsample_factor": 1, "max_num_patches": 4},
    {"encoder_patch_size": 8, "downsample_factor": 2, "do_image_splitting": False, "min_image_tokens": 1,
     "max_image_tokens": 1},
    {"max_image_size": 490, "min_image_size": 490},
    {"max_soft_tokens": 70, "patch_size": 8, "pooling_kernel_size": 2},
    {"max_soft_tokens": 70, "patch_size": 8, "pooling_kernel_size": 1},
    {"size": {"height": 8, "width": 8}},
    {"size": SIDE, "high_res_size": SIDE},
)
"""How pictures are prepared for them: the first that the model reads."""

SECTION = """
## Packages

Written by `make test-generate-packages`: a checkpoint of a tiny model of each class that transformers'
AutoModelForCausalLM, AutoModelForSeq2SeqLM, AutoModelForSpeechSeq2Seq and AutoModelForImageTextToText load, made a
package by `tonnx.export_package`
at opset {opset} with its default proof: the files compute what the model does, and {tokens} greedy tokens are
`generate`'s at batch 1 and 3, with padding, with scores compared after a past of 0, 1 and 7.
transformers {transformers}.

How to read it: a row is `ok` if the package was proven, whatever its form; `one token at a time` and `from the
beginning` are slower ones. Tiny models have windows shorter than the text, sparse attention that chooses (`index_topk`
16: where scores are equal, PyTorch leaves open which it takes, and the model is asked to take the first), and pictures
of 16 by 16 pixels. `itself fails on a picture` is said of a tiny model with the settings of the test, not of the class.
Scores are compared at the positions that `generate` gives, which for RoBERTa and its kin are not those that the model
has by itself. Where a model takes padding for text, and `generate` gives a prompt other tokens in a batch than
alone, the package has those of each prompt alone. Other opsets, and ONNX Runtime's own operators:
[generation-forms.md](generation-forms.md).

Not in the table, because the test makes no model of less than {largest} parameters, none that reads a picture of the
test's, or was not run so far: {untried}.

{counts}

| family | class | task | package |
|---|---|---|---|
{rows}
"""


def families() -> dict[str, tuple[str, str]]:
    """Every family: ``kind:family`` → its class and task."""
    from transformers.models.auto import modeling_auto

    result = {}
    for kind, (task, _) in KINDS.items():
        for family, name in getattr(modeling_auto, f"MODEL_FOR_{kind}_MAPPING_NAMES").items():
            result[f"{kind}:{family}"] = (name if isinstance(name, str) else name[0], task)
    return result


def config_of(kind: str, family: str) -> Any:
    """A tiny configuration; raises a ValueError for a model that is not tiny all the same."""
    import torch
    import transformers

    sizes = {name: size for name, size in MORE_SIZES.items() if name != "is_decoder" or kind == "CAUSAL_LM"}
    pictures = PICTURES if kind == "IMAGE_TEXT_TO_TEXT" else {}
    config = tiny_config(family, **sizes, **pictures, **SOUNDS.get(family, ("", {}, {}))[2])
    decoder = getattr(config, "decoder", None)
    if hasattr(decoder, "add_cross_attention"):
        decoder.add_cross_attention = decoder.is_decoder = True
    if kind in ("SEQ_TO_SEQ_CAUSAL_LM", "SPEECH_SEQ_2_SEQ") and not config.is_encoder_decoder:
        raise ValueError("no encoder-decoder")
    with torch.device("meta"):
        model = getattr(transformers, KINDS[kind][1]).from_config(config)
    count = sum(parameter.numel() for parameter in model.parameters())
    if count > LARGEST:
        raise ValueError(f"{count} parameters")
    return config


def model_of(kind: str, family: str) -> Any:
    import torch
    import transformers

    config = config_of(kind, family)
    torch.manual_seed(0)
    model = varied(getattr(transformers, KINDS[kind][1]).from_config(config))
    settings = model.generation_config
    if config.is_encoder_decoder and settings.decoder_start_token_id is None:  # checkpoints say it
        settings.decoder_start_token_id = MORE_SIZES["decoder_start_token_id"]
    return model


def image_processor(family: str, model: Any) -> Any:
    """What prepares small pictures for a model."""
    import transformers
    from transformers.models.auto.image_processing_auto import IMAGE_PROCESSOR_MAPPING_NAMES

    from tonnx.errors import TonnxError
    from tonnx.packages.vision_language import is_vision_language, read_picture

    parent = getattr(getattr(model.config, "vision_config", None), "model_type", "")
    usual = "CLIPImageProcessor" if family in IMAGE_PROCESSOR_MAPPING_NAMES else "Qwen2VLImageProcessor"
    names: Any = next((each for kind, each in IMAGE_PROCESSOR_MAPPING_NAMES.items() if kind in (family, parent)), usual)
    listed = names.values() if isinstance(names, dict) else [names] if isinstance(names, str) else names
    make = getattr(transformers, next(each for each in listed if each))
    made = []
    for settings in PROCESSORS:
        with contextlib.suppress(TonnxError, ValueError, TypeError, AttributeError):
            made.append(make(**settings))
            if is_vision_language(model):
                try:
                    read_picture(model, made[-1])
                except TonnxError as error:
                    if "there is no package" in str(error):
                        return made[-1]
                    raise
            return made[-1]
    return made[0]  # the model is refused for it


def run_case(case: str, **options: Any) -> str:
    """What comes of a package; ``options`` are those of `tonnx.export_package`."""
    import transformers

    import tonnx
    from tonnx.errors import TonnxError
    from tonnx.packages.pictures import takes_pixels

    kind, family = case.split(":")
    options = {"opset_version": OPSET, "tokens": TOKENS, "task": KINDS[kind][0]} | options
    processor = None
    try:
        model = model_of(kind, family)
        if kind == "IMAGE_TEXT_TO_TEXT":
            if model.config.is_encoder_decoder or takes_pixels(model):
                processor = image_processor(family, model)
            else:  # a model of texts that is in no other list
                options["task"] = None
    except Exception as error:
        return f"no tiny model: {line(error)}"
    with tempfile.TemporaryDirectory() as folder:
        try:
            model.save_pretrained(Path(folder) / "source")
            if kind == "SPEECH_SEQ_2_SEQ" and family in SOUNDS:
                name, settings, _ = SOUNDS[family]
                getattr(transformers, name)(**settings).save_pretrained(Path(folder) / "source")
            if processor is not None:
                processor.save_pretrained(Path(folder) / "source")
            source, package = Path(folder) / "source", Path(folder) / "package"
            result = tonnx.export_package(source, package, **options)
        except TonnxError as error:
            if "itself fails on a picture" in str(error):
                return f"no tiny model: {line(error)}"
            return f"refused: {line(error)}; {(error.why or '')[:200]}".replace("|", "/").replace("\n", " ")
        except Exception as error:
            return f"fails: {line(error)}"
    remarks = [remark for remark in ("one token at a time", "from the beginning") if remark in str(result.notes)]
    return ", ".join(["ok", *remarks, *_own_operators(result)])


def _own_operators(result: Any) -> list[str]:
    """How many operators of ONNX Runtime there are, by name."""
    counts: Counter[str] = Counter()
    for export in result.exports.values():
        counts.update(node.op_type for node in export.model.graph if node.domain == "com.microsoft")
    return [f"{count} {name}" for name, count in counts.items()]


def _child(case: str, options: dict[str, Any], results: Any) -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS + 5))
    results.put(run_case(case, **options))


def in_fork(case: str, **options: Any) -> str:
    """`run_case` in a process of its own, forked when everything is imported."""
    forks = multiprocessing.get_context("fork")
    results = forks.Queue()
    process = forks.Process(target=_child, args=(case, options, results))
    process.start()
    process.join()
    return results.get() if process.exitcode == 0 else f"fails: ends with {process.exitcode} ({SECONDS} s at most)"


def section(results: dict[str, str]) -> str:
    import transformers

    every = families()
    tried = {case: result for case, result in results.items() if not result.startswith("no tiny model")}
    rows = [
        f"| {case.partition(':')[2]} | {every[case][0]} | {every[case][1]} | {result} |"
        for case, result in tried.items()
    ]
    untried = sorted(every[case][0] for case in every if case not in tried and not _is_other(results, case))
    pictures = "IMAGE_TEXT_TO_TEXT"
    counts = []
    for kind, word in ((False, "texts and sounds"), (True, "pictures in texts")):
        each = [result for case, result in tried.items() if case.startswith(pictures) is kind]
        counts.append(f"{word}: **{sum(result.startswith('ok') for result in each)} of {len(each)}**")
    return SECTION.format(
        opset=OPSET, tokens=TOKENS, transformers=transformers.__version__, largest=f"{LARGEST:,}",
        untried=", ".join(untried), counts=" · ".join(counts), rows="\n".join(rows),
    )  # fmt: skip


def _is_other(results: dict[str, str], case: str) -> bool:
    """Whether a class is of a third kind, a decoder that reads sounds."""
    return "no encoder-decoder" in results.get(case, "")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", help="KIND:family,…; all if not given")
    parser.add_argument("--results", type=Path, required=True, help="JSON; what is in it is not tried again")
    parser.add_argument("--write", type=Path, help="the page whose section on packages is written")
    options = parser.parse_args()
    import transformers

    import tonnx.packages.export  # noqa: F401 (before the first fork)

    transformers.logging.set_verbosity_error()
    results = json.loads(options.results.read_text()) if options.results.exists() else {}
    for case in options.cases.split(",") if options.cases else families():
        if case not in results or options.cases:
            results[case] = in_fork(case)
            print(case, results[case], flush=True)
            options.results.write_text(json.dumps(results, indent=1))
    if options.write:
        page = options.write.read_text(encoding="utf-8").partition(PACKAGES)[0]
        write_page(options.write, page.rstrip("\n") + "\n" + section(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
