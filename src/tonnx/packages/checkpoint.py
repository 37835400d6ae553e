"""A local checkpoint of transformers: is all of it there, what is it for, and its model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tonnx.errors import InvalidArgument, InvalidModel, needed, told_as
from tonnx.run.package import preparation_of, read_json

OTHER = "other"
"""What the class that the config names computes, where no list of transformers says what it is for."""

TASKS: dict[str, tuple[tuple[str, str], ...]] = {
    "text-generation": (("AutoModelForCausalLM", "CAUSAL_LM"),),
    "text2text-generation": (("AutoModelForSeq2SeqLM", "SEQ_TO_SEQ_CAUSAL_LM"),),
    "text-classification": (("AutoModelForSequenceClassification", "SEQUENCE_CLASSIFICATION"),),
    "token-classification": (("AutoModelForTokenClassification", "TOKEN_CLASSIFICATION"),),
    "question-answering": (("AutoModelForQuestionAnswering", "QUESTION_ANSWERING"),),
    "multiple-choice": (("AutoModelForMultipleChoice", "MULTIPLE_CHOICE"),),
    "fill-mask": (("AutoModelForMaskedLM", "MASKED_LM"),),
    "image-classification": (("AutoModelForImageClassification", "IMAGE_CLASSIFICATION"),),
    "image-segmentation": (
        ("AutoModelForSemanticSegmentation", "SEMANTIC_SEGMENTATION"),
        ("AutoModelForImageSegmentation", "IMAGE_SEGMENTATION"),
        ("AutoModelForInstanceSegmentation", "INSTANCE_SEGMENTATION"),
        ("AutoModelForUniversalSegmentation", "UNIVERSAL_SEGMENTATION"),
    ),
    "object-detection": (("AutoModelForObjectDetection", "OBJECT_DETECTION"),),
    "depth-estimation": (("AutoModelForDepthEstimation", "DEPTH_ESTIMATION"),),
    "keypoint-detection": (("AutoModelForKeypointDetection", "KEYPOINT_DETECTION"),),
    "image-to-image": (("AutoModelForImageToImage", "IMAGE_TO_IMAGE"),),
    "masked-im": (("AutoModelForMaskedImageModeling", "MASKED_IMAGE_MODELING"),),
    "mask-generation": (("AutoModelForMaskGeneration", "MASK_GENERATION"),),
    "video-classification": (("AutoModelForVideoClassification", "VIDEO_CLASSIFICATION"),),
    "zero-shot-image-classification": (("AutoModelForZeroShotImageClassification", "ZERO_SHOT_IMAGE_CLASSIFICATION"),),
    "zero-shot-object-detection": (("AutoModelForZeroShotObjectDetection", "ZERO_SHOT_OBJECT_DETECTION"),),
    "visual-question-answering": (("AutoModelForVisualQuestionAnswering", "VISUAL_QUESTION_ANSWERING"),),
    "document-question-answering": (("AutoModelForDocumentQuestionAnswering", "DOCUMENT_QUESTION_ANSWERING"),),
    "image-to-text": (("AutoModelForImageTextToText", "IMAGE_TEXT_TO_TEXT"),),
    "audio-classification": (("AutoModelForAudioClassification", "AUDIO_CLASSIFICATION"),),
    "audio-frame-classification": (("AutoModelForAudioFrameClassification", "AUDIO_FRAME_CLASSIFICATION"),),
    "audio-xvector": (("AutoModelForAudioXVector", "AUDIO_XVECTOR"),),
    "automatic-speech-recognition": (("AutoModelForCTC", "CTC"), ("AutoModelForSpeechSeq2Seq", "SPEECH_SEQ_2_SEQ")),
    "feature-extraction": (("AutoModel", ""),),
    OTHER: (),
}
"""What a package can be for: which of transformers' classes load its model, and under which name it lists those that
it has (`MODEL_FOR_…_MAPPING_NAMES`)."""

PICKLES = ("pytorch_model.bin", "pytorch_model.bin.index.json")
WEIGHTS = ("model.safetensors", "model.safetensors.index.json")
TOKENIZER = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.json",
             "merges.txt", "tokenizer.model", "chat_template.jinja", "chat_template.json",
             "1_Pooling/config.json", "preprocessor_config.json", "processor_config.json")  # fmt: skip
"""Files of a tokenizer, how its tokens become one vector, how pictures and sounds are prepared; copied as they are."""


@dataclass(frozen=True)
class Checkpoint:
    """A folder that was looked at: everything that its model needs is there."""

    folder: Path
    config: dict[str, Any]
    task: str
    loader: str
    """The class of transformers that loads it."""
    trust_remote_code: bool = False
    allow_pickle: bool = False

    def load(self) -> Any:
        """The model, in evaluation mode and float32. Every weight must be in the checkpoint."""
        model, told = self._loaded(
            self.loader,
            trust_remote_code=self.trust_remote_code,
            use_safetensors=not self.allow_pickle or None,
            output_loading_info=True,
        )
        if told["missing_keys"]:
            missing = sorted(told["missing_keys"])
            raise InvalidModel(
                f"{len(missing)} weights are not in the checkpoint: {', '.join(missing[:3])}"
                + (" …" if len(missing) > 3 else ""),
                where=str(self.folder),
                why=f"a {type(model).__name__} needs them, and would have random ones",
                hint=f"is it a checkpoint for {self.task}?",
            )
        return model.float().eval()

    def weight_files(self) -> list[Path]:
        """Its safetensors; none, if the weights are in pickles."""
        single, index = (self.folder / name for name in WEIGHTS)
        if single.is_file():
            return [single]
        named = dict(read_json(index).get("weight_map", {})).values() if index.is_file() else ()
        return [self.folder / str(file) for file in sorted({*map(str, named)})]

    def load_tokenizer(self) -> Any:
        """What makes token ids of texts; None where the checkpoint has none that transformers loads."""
        import transformers

        try:
            return transformers.AutoTokenizer.from_pretrained(self.folder, local_files_only=True)
        except Exception:  # noqa: BLE001 (no files of one, or what they need is not installed; ids do without it)
            return None

    def load_extractor(self) -> Any:
        """What makes a model's input of sounds; None where the checkpoint says nothing of it."""
        return self._load_preparation("feature_extractor_type", "AutoFeatureExtractor")

    def load_image_processor(self) -> Any:
        """What makes a model's input of pictures; None where the checkpoint says nothing of it."""
        return self._load_preparation("image_processor_type", "AutoImageProcessor")

    def _load_preparation(self, kind: str, loader: str) -> Any:
        return self._loaded(loader) if kind in preparation_of(self.folder) else None

    def _loaded(self, loader: str, **options: Any) -> Any:
        """By a class of transformers; that, safetensors, the model's own code and what it needs may raise anything."""
        import transformers

        with told_as(InvalidModel, f"transformers {transformers.__version__} does not load {self.folder}"):
            return getattr(transformers, loader).from_pretrained(self.folder, local_files_only=True, **options)


def read_checkpoint(
    folder: Path, task: str | None = None, *, trust_remote_code: bool = False, allow_pickle: bool = False
) -> Checkpoint:
    """Look at a folder without loading weights. Refuses what is not whole, and what does not fit the task."""
    if not folder.is_dir():
        raise InvalidArgument(f"there is no folder {folder}")
    config = read_json(folder / "config.json", f"{folder} is no checkpoint: it has no config.json")
    needed("transformers", "a checkpoint is loaded by transformers", "pip install transformers")  # before anything else
    _check_weights(folder, allow_pickle)
    if config.get("auto_map") and not trust_remote_code:
        raise InvalidModel(
            f"{folder} brings Python code of its own",
            why=f"its config.json names {', '.join(sorted(map(str, config['auto_map'].values())))[:200]}",
            hint="--trust-remote-code runs it; look at it first",
        )
    task, loader = _task_of(config, task, trust_remote_code)
    return Checkpoint(folder, config, task, loader, trust_remote_code, allow_pickle)


def _check_weights(folder: Path, allow_pickle: bool) -> None:
    names = [*WEIGHTS, *(PICKLES if allow_pickle else ())]
    found = next((folder / name for name in names if (folder / name).is_file()), None)
    if found is None:
        pickles = [name for name in PICKLES if (folder / name).is_file()]
        raise InvalidModel(
            f"{folder} has no weights",
            why=f"there is {pickles[0]}, a pickle, which can run code when it is read" if pickles
            else "there is neither model.safetensors nor model.safetensors.index.json",
            hint="--allow-pickle reads it" if pickles else None,
        )  # fmt: skip
    if found.suffix == ".json":
        index = read_json(found, f"{found} is not there")
        files = sorted({str(file) for file in dict(index.get("weight_map", {})).values()})
        missing = [file for file in files if not (folder / file).is_file()]
        if missing or not files:
            raise InvalidModel(
                f"{len(missing)} of {len(files)} files with weights are missing: {', '.join(missing[:3])}",
                where=str(found),
            )


def _task_of(config: dict[str, Any], asked: str | None, remote: bool) -> tuple[str, str]:
    """The task that was asked for, or the one that the config speaks of, and the class that loads its model."""
    if asked is not None and asked not in TASKS:
        raise InvalidArgument(f"there is no task {asked!r}", why=f"tonnx makes packages for {', '.join(TASKS)}")
    named = config.get("architectures") or ()
    ways = [(task, *way) for task in ([asked] if asked else TASKS) for way in TASKS[task]]
    fitting = [(task, loader) for task, loader, kind in ways if any(name in _classes(config, kind) for name in named)]
    fitting = fitting or [(task, name) for task, _, kind in ways for name in named if _is_own_class(config, name, kind)]
    if asked is not None or remote:  # heads that the config does not name are asked for by task
        fitting += [(task, loader) for task, loader, kind in ways if remote or _classes(config, kind)]
    if not fitting and asked in (None, OTHER):
        fitting = [(OTHER, name) for name in named if _takes_whole(config, name)]
    if not fitting and asked is not None:
        loaders = " and ".join(loader for _, loader, _ in ways) or "transformers"
        raise InvalidArgument(
            f"the task {asked} does not fit {_described(config)}", why=f"{loaders} has no class for it"
        )
    if not fitting:
        raise InvalidModel(
            f"there is no package for {_described(config)}", why=f"tonnx makes packages for {', '.join(TASKS)}"
        )
    return fitting[0]


def _classes(config: dict[str, Any], kind: str) -> tuple[str, ...]:
    """The classes that transformers has for this type of model and this kind of head."""
    from transformers.models.auto import modeling_auto

    name = f"MODEL_FOR_{kind}_MAPPING_NAMES" if kind else "MODEL_MAPPING_NAMES"
    mapping: dict[str, Any] = getattr(modeling_auto, name, {})  # a version may not have it
    named = mapping.get(str(config.get("model_type")))
    return (named,) if isinstance(named, str) else tuple(named or ())


def _is_own_class(config: dict[str, Any], name: str, kind: str) -> bool:
    """Whether a class of this kind is made for this very config, though no list says so: part of a larger model."""
    from transformers.models.auto import modeling_auto

    mapping: dict[str, Any] = getattr(modeling_auto, f"MODEL_FOR_{kind}_MAPPING_NAMES", {}) if kind else {}
    if not any(name in ([names] if isinstance(names, str) else names) for names in mapping.values()):
        return False
    return _class_for(config, name) is not None


def _class_for(config: dict[str, Any], name: str) -> Any:
    """The class of this name, if transformers has one that is made for this very config."""
    import transformers

    try:
        found = getattr(transformers, name)
        return found if found.config_class.model_type == config.get("model_type") else None
    except (ImportError, AttributeError):  # what it needs is not installed, or it is not of this version
        return None


def _takes_whole(config: dict[str, Any], name: str) -> bool:
    """Whether the class of this name is made for the config, and is called once: what generates has a loop."""
    found = _class_for(config, name)
    return found is not None and not found.can_generate()


def _described(config: dict[str, Any]) -> str:
    architectures = ", ".join(config.get("architectures") or ()) or "no architecture"
    return f"the model type {config.get('model_type')!r} ({architectures})"
