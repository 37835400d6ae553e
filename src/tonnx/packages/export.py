"""From a folder of transformers to a package: whole or not at all."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from tonnx.api.arguments import PACKAGE, documented
from tonnx.api.result import ExportResult, format_size
from tonnx.errors import InvalidArgument, TonnxError
from tonnx.frontends.patching import locked
from tonnx.io.staging import writing
from tonnx.ir.restrictions import MICROSOFT, restriction_of
from tonnx.ir.rewrite import full_collections_rare
from tonnx.ir.target import ORT, ORT_CPU
from tonnx.packages.checkpoint import TOKENIZER, Checkpoint, read_checkpoint
from tonnx.packages.decoder import Step, export_decoder
from tonnx.packages.diffusion import DENOISERS, TASK, is_pipeline, load_networks, prove_networks, write_networks
from tonnx.packages.encoder import export_encoder, label_settings, prove_encoder
from tonnx.packages.encoder_decoder import EncoderPart, export_decoder_part, first_token, is_encoder_decoder
from tonnx.packages.genai import genai_config
from tonnx.packages.inputs import PICTURES, Call, Preparation, call_of, takes_text
from tonnx.packages.pictures import Picture, takes_pixels
from tonnx.packages.pictures_ahead import export_ahead, read_ahead
from tonnx.packages.preparation import NotUnderstood, picture_steps
from tonnx.packages.proof import PackageProof, prove_package
from tonnx.packages.variants import SMALL_OPSET, SUFFIXES, agreement, greedy_tokens, store_variant, variant
from tonnx.packages.vision_language import EMBEDDING, VISION, export_parts, is_vision_language, read_picture
from tonnx.proof.trials.budget import QUICK
from tonnx.run.features import LOG_MEL
from tonnx.run.package import (
    CAPTIONS,
    GENERATION,
    MANIFEST,
    SPEECH,
    TRANSLATION,
    ZERO_SHOT,
    Package,
    preparation_of,
    read_json,
)  # fmt: skip
from tonnx.versions import installed, release

LAYOUTS = {"plain": "", "optimum": "onnx/"}
"""Where the files are: beside the settings, or where optimum and transformers.js look for them."""

_MODEL, _ENCODER, _DECODER = "model.onnx", "encoder_model.onnx", "decoder_model_merged.onnx"
"""As optimum and transformers.js call them: merged is a decoder for the first token and all others."""
_GENERATING = (GENERATION, TRANSLATION, CAPTIONS)
"""Tasks whose packages are proven by generating: what that tries at many sizes is not tried on each file before."""
_ATTENTION_OPSET, _ATTENTION_RUNTIME = 24, (1, 28)
"""The opset at which attention is one operator that does everything, and the first ONNX Runtime that gives zeros for
queries without keys, as ONNX has it."""


@dataclass(frozen=True)
class PackageResult:
    """What was written."""

    folder: Path
    task: str
    exports: dict[str, ExportResult]
    """The ONNX files by name."""
    proof: PackageProof | float | None
    """Of a decoder what was compared; else the largest difference, as a part of the largest value."""
    notes: list[str] = field(default_factory=list)

    def data(self) -> dict[str, Any]:
        proof = vars(self.proof) if isinstance(self.proof, PackageProof) else self.proof
        exports = {file: result.data() for file, result in self.exports.items()}
        return {"folder": str(self.folder), "task": self.task, "proof": proof, "exports": exports}

    def __str__(self) -> str:
        opset = next(iter(self.exports.values())).opset
        lines = [f"{self.folder}: {self.task}, opset {opset}"]
        if isinstance(self.proof, float):
            used = "from text to picture" if self.task == TASK else "in batches of 1 and 3"
            lines.append(f"  [✓] used {used}, within {self.proof:.2g} of the largest value")
        else:
            lines.append(f"  {self.proof}" if self.proof is not None else "  [!] not compared with the model")
        return "\n".join([*lines, *(f"  {note}" for note in self.notes)])


@dataclass
class _Making:
    """A package on its way: the checkpoint, its model, and what was written of it so far."""

    checkpoint: Checkpoint
    model: Any
    folder: Path
    place: str
    """The folder of the ONNX files inside it: empty, or with a slash."""
    exports: dict[str, ExportResult] = field(default_factory=dict)
    manifest: dict[str, Any] = field(default_factory=dict)
    step: Step | None = None
    call: Call | None = None
    """What a model that takes its input whole is called with."""
    picture: Picture | None = None
    """What a model that reads pictures among tokens is tried with."""

    def write_files(self, **options: Any) -> None:
        """The ONNX files, and how they belong together; ``options`` are those of `tonnx.export`."""
        model, task = self.model, self.checkpoint.task
        has_encoder = is_encoder_decoder(model) and task in (TRANSLATION, SPEECH, CAPTIONS)
        if task == CAPTIONS and not has_encoder:
            return self._write_seeing_files(options)
        if task == TRANSLATION and not has_encoder:
            raise TonnxError(
                f"there is no package for {task} with a {type(model).__name__}",
                why="it is no encoder with a decoder",
                hint="tonnx.export takes its parts one by one",
            )
        if task == GENERATION:
            self.exports[_MODEL], self.step = export_decoder(model, self._file(_MODEL), **options)
            return self._describe_files()
        reader = EncoderPart(model).eval() if has_encoder else model
        checkpoint, beside = self.checkpoint, self.beside
        if not has_encoder:
            beside = replace(beside, tokenizer=checkpoint.load_tokenizer(), task=checkpoint.task)
        self.call = call = call_of(reader, beside)
        self.manifest |= {"input": call.name} if call.name is not None else {}
        if has_encoder:
            self.manifest |= {"encoder": self.place + _ENCODER, "start": first_token(model)}
            self.exports[_ENCODER] = export_encoder(reader, self._file(_ENCODER), call, **options)
            self.exports[_DECODER], self.step = export_decoder_part(model, self._file(_DECODER), call.make(), **options)
        else:
            self.manifest |= label_settings(call) if task == ZERO_SHOT and call.free_texts else {}
            self.exports[_MODEL] = export_encoder(model, self._file(_MODEL), call, **options)
        return self._describe_files()

    @cached_property
    def beside(self) -> Preparation:
        """What the checkpoint has for its sounds or pictures."""
        return Preparation(self.checkpoint.load_extractor(), self.checkpoint.load_image_processor())

    def _write_seeing_files(self, options: dict[str, Any]) -> None:
        """Those of a model that reads pictures among tokens, or before them."""
        processor = self.beside.processor
        files = {name: self._file(name) for name in (VISION, EMBEDDING, _DECODER)}
        if is_vision_language(self.model):
            self.picture = picture = read_picture(self.model, processor)
            self.exports, self.step = export_parts(self.model, picture, files, _DECODER, **options)
            self.manifest |= {"embedding": self.place + EMBEDDING}
        else:
            self.picture = picture = ahead = read_ahead(self.model, processor)
            self.exports, self.step = export_ahead(self.model, ahead, files, _DECODER, **options)
            self.manifest |= {"ahead": True, "seeing": ahead.seeing, "prompt": ahead.prompt}
        self.manifest |= {"vision": self.place + VISION, "input": picture.name}
        self.manifest |= {"image_token": picture.token, "image_rows": picture.rows}
        self.manifest |= {"positions": picture.positions} if picture.positions else {}
        self.manifest |= {"token_types": picture.types} if picture.types else {}
        self._describe_files()

    def _describe_files(self) -> None:
        self.manifest["file"] = self.place + [*self.exports][-1]
        if (step := self.step) is not None:
            handed = {"state": step.handed_on, "one_token": step.one_token, "first_position": step.first_position}
            restricted = restriction_of([*self.exports.values()][-1].model) is not None
            self.manifest |= {**handed, "whole_text": step.whole_text, "one_text_after_past": restricted}

    def copy_weights(self) -> list[str]:
        """The checkpoint's weights beside the ONNX files: runtimes look for them there only."""
        files = self.checkpoint.weight_files()
        if not files:
            raise TonnxError(
                "ONNX files cannot point into pickles", where=str(self.checkpoint.folder), hint='weights="copy"'
            )
        with writing(self.folder):
            return [str(shutil.copyfile(file, self._file(file.name))) for file in files]

    def _file(self, name: str) -> Path:
        return self.folder / f"{self.place}{name}"

    def shrink(self, to: str, verify: bool) -> list[str]:
        """The ONNX files with weights as integers; what that changes."""
        is_generating = verify and self.step is not None and "encoder" not in self.manifest
        vocabulary = int(getattr(self.model.config.get_text_config(decoder=True), "vocab_size", 0))
        wanted = greedy_tokens(Package(self.folder), vocabulary) if is_generating else []
        notes = []
        for name in self.exports:
            result = store_variant(self._file(name), to, verify)
            size = f"{format_size(result.before)} → {format_size(result.after)}"
            loss = f"; {result.losses[0]}" if result.losses else ""
            notes.append(f"{variant(name, to)}: weights as {to}, {size}{loss}")
        smaller = {self.place + name: variant(self.place + name, to) for name in self.exports}
        for file in (MANIFEST, "genai_config.json"):
            if (self.folder / file).is_file():
                _write_json(self.folder / file, _renamed(read_json(self.folder / file), smaller))
        if is_generating:
            notes.append(agreement(wanted, greedy_tokens(Package(self.folder), vocabulary)))
        return notes

    def prove(self, tokens: int) -> PackageProof | float:
        package = Package(self.folder, spin=False)  # the model's turn comes between its own
        if self.step is not None:
            return prove_package(package, self.model, tokens, self.beside, self.picture)
        assert self.call is not None
        return prove_encoder(package, self.call)


@documented(PACKAGE)
@locked()
@full_collections_rare()
def export_package(
    source: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    task: str | None = None,
    opset_version: int | None = None,
    runtime: str | None = ORT_CPU,
    layout: str = "plain",
    weights: str = "copy",
    verify: bool | str | float = True,
    tokens: int = 16,
    to: str | None = None,
    trust_remote_code: bool = False,
    allow_pickle: bool = False,
    progress: Callable[[str], object] | None = None,
) -> PackageResult:
    """Make a package of a local checkpoint of transformers.

    Example::

        tonnx.export_package("SmolLM-135M", "smollm-onnx")
        tonnx.load("smollm-onnx").generate("Once upon")[0].text
    """
    destination = Path(output)
    _check(layout, weights, tokens, destination, to)
    stage = progress or (lambda name: None)
    stage("look")
    if is_pipeline(Path(source)):
        _check_pipeline(task, to, weights)
        options: dict[str, Any] = {"opset_version": opset_version, "runtime": runtime, "verify": verify}
        return _export_pipeline(Path(source), destination, stage, **options, progress=progress)
    checkpoint = read_checkpoint(Path(source), task, trust_remote_code=trust_remote_code, allow_pickle=allow_pickle)
    stage("load")
    model = checkpoint.load()
    if task is None and checkpoint.task == CAPTIONS and not is_encoder_decoder(model) and not takes_pixels(model):
        checkpoint = replace(checkpoint, task=GENERATION)  # Mistral 4's texts: transformers lists it there alone
    with tempfile.TemporaryDirectory(prefix=".tonnx-", dir=destination.resolve().parent) as hidden:
        making = _Making(checkpoint, model, Path(hidden) / destination.name, LAYOUTS[layout])
        (making.folder / making.place).mkdir(parents=True)
        opset = _opset(opset_version, runtime, to)
        options = {"opset_version": opset, "runtime": runtime, "verify": verify, "progress": progress}
        if weights != "copy":
            options["weights"] = making.copy_weights()
        if verify is True and checkpoint.task in _GENERATING:
            options["verify"] = QUICK
        making.write_files(**options)
        notes = _write_beside(making)
        notes += [note for each in making.exports.values() for note in each.notes if MICROSOFT in note]
        stage("use")
        proof = making.prove(tokens) if verify is not False else None
        if to is not None:
            stage("quantise")
            notes += making.shrink(to, verify is not False)
        _move(making.folder, destination)
    return PackageResult(destination, checkpoint.task, making.exports, proof, notes)


def _export_pipeline(source: Path, destination: Path, stage: Callable[[str], object], **options: Any) -> PackageResult:
    """A folder of diffusers: its networks one by one, then a picture through all of them."""
    stage("load")
    networks = load_networks(source)
    with tempfile.TemporaryDirectory(prefix=".tonnx-", dir=destination.resolve().parent) as hidden:
        folder = Path(hidden) / destination.name
        folder.mkdir()
        exports = write_networks(source, folder, networks, **options)
        with writing(folder):
            denoiser = next(file for file in exports if file.split("/")[0] in DENOISERS)
            _write_json(folder / MANIFEST, {"format": 1, "task": TASK, "file": denoiser, "files": [*exports]})
        stage("use")
        proof = prove_networks(folder, networks) if options["verify"] is not False else None
        _move(folder, destination)
    return PackageResult(destination, TASK, exports, proof)


def _opset(opset: int | None, runtime: str | None, to: str | None) -> int | None:
    """What was asked for, else the opset whose operators the runtime is fastest with; None: the usual one."""
    if opset is None and runtime == ORT and release(installed("onnxruntime") or "0") >= _ATTENTION_RUNTIME:
        return _ATTENTION_OPSET
    return SMALL_OPSET if opset is None and to == "int4" else opset


def _move(folder: Path, destination: Path) -> None:
    with writing(destination):
        if destination.exists():
            shutil.rmtree(destination)
        os.replace(folder, destination)


def _check_pipeline(task: str | None, to: str | None, weights: str) -> None:
    if task not in (None, TASK):
        raise InvalidArgument(f"the task {task} does not fit a folder of diffusers", hint=f"it is {TASK}")
    if to is not None or weights != "copy":
        raise InvalidArgument("of a folder of diffusers the weights are copied as floats", hint="tonnx quantize FILE")


def _check(layout: str, weights: str, tokens: int, destination: Path, to: str | None) -> None:
    if to is not None and to not in SUFFIXES:
        raise InvalidArgument(f"to must be one of {', '.join(SUFFIXES)}, not {to!r}")
    if to is not None and weights == "reference":
        raise InvalidArgument(f"weights as {to} are not those of the checkpoint", hint='weights="copy"')
    if weights not in ("copy", "reference"):
        raise InvalidArgument(f"weights of a package must be copy or reference, not {weights!r}")
    if layout not in LAYOUTS:
        raise InvalidArgument(f"layout must be one of {', '.join(LAYOUTS)}, not {layout!r}")
    if tokens < 1:
        raise InvalidArgument(f"tokens must be at least 1, not {tokens}")
    _check_destination(destination)


def _check_destination(destination: Path) -> None:
    if not destination.resolve().parent.is_dir():
        raise TonnxError(f"cannot write {destination}", why=f"the folder {destination.parent} does not exist")
    is_package = (destination / MANIFEST).is_file()
    if destination.is_file() or (destination.is_dir() and any(destination.iterdir()) and not is_package):
        raise TonnxError(f"cannot write {destination}", why="it exists, and is no package", hint="choose another name")


def _write_beside(making: _Making) -> list[str]:
    """Everything but the ONNX files."""
    checkpoint, model, folder, step = making.checkpoint, making.model, making.folder, making.step
    notes = _describe_input(making)
    copied = [name for name in TOKENIZER if (checkpoint.folder / name).is_file()]
    with writing(folder):
        for name in ("config.json", *copied):
            (folder / name).parent.mkdir(exist_ok=True)
            shutil.copyfile(checkpoint.folder / name, folder / name)
        if step is not None:
            settings = model.generation_config.to_diff_dict() if model.generation_config is not None else {}
            settings |= getattr(making.picture, "settings", {})
            _write_json(folder / "generation_config.json", settings)
            decoder = making.exports[[*making.exports][-1]]
            shapes = {str(value.name): list(value.shape or ()) for value in decoder.model.graph.inputs}
            genai = genai_config(model.config, settings, making.manifest["file"], shapes, step.handed_on)
            if genai is not None and making.picture is None:
                _write_json(folder / "genai_config.json", genai)
        _write_json(folder / MANIFEST, {"format": 1, "task": checkpoint.task, **making.manifest})
    if "tokenizer.json" not in copied and (takes_text(model) or step is not None):
        notes.append("[!] the checkpoint has no tokenizer.json: the package takes and gives token ids, not texts")
    if step is not None and step.one_token:
        notes.append("takes one token at a time, also of a prompt")
    if step is not None and step.whole_text:
        notes.append("[!] the model has no cache: every token is computed from the beginning")
    return notes


def _describe_input(making: _Making) -> list[str]:
    """How pictures and sounds become what goes into the file."""
    name, settings = making.manifest.get("input"), preparation_of(making.checkpoint.folder)
    if name is None:
        return []
    if name not in PICTURES:
        is_known = not settings or name == "input_values" or settings.get("feature_extractor_type") == LOG_MEL
        kind = settings.get("feature_extractor_type")
        return [] if is_known else [f"[!] the package takes arrays, not sounds: they are prepared by a {kind}"]
    if not settings:
        return ["[!] the checkpoint has no preprocessor_config.json: the package takes arrays, not pictures"]
    given = [value for result in making.exports.values() for value in result.model.graph.inputs if value.name == name]
    if any(len(value.shape or ()) != 4 for value in given):
        return ["[!] the package takes arrays, not pictures: films, or pictures in patches"]
    try:
        making.manifest["before"] = picture_steps(settings)
    except NotUnderstood as error:
        return [f"[!] the package takes arrays, not pictures: preprocessor_config.json asks for {error}"]
    return []


def _renamed(content: Any, names: dict[str, str]) -> Any:
    """Settings that speak of files by other names."""
    if isinstance(content, dict):
        return {key: _renamed(part, names) for key, part in content.items()}
    return names.get(content, content) if isinstance(content, str) else content


def _write_json(file: Path, content: dict[str, Any]) -> None:
    file.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
