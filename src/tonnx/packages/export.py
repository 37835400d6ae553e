"""From a folder of transformers to a package: whole or not at all."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tonnx.api.result import ExportResult
from tonnx.errors import InvalidArgument, TonnxError
from tonnx.io.staging import writing
from tonnx.packages.checkpoint import TOKENIZER, Checkpoint, read_checkpoint
from tonnx.packages.decoder import Step, export_decoder
from tonnx.packages.encoder import export_encoder, prove_encoder, takes_text
from tonnx.packages.genai import genai_config
from tonnx.packages.preparation import NotUnderstood, picture_steps
from tonnx.packages.proof import PackageProof, prove_package
from tonnx.run.package import GENERATION, MANIFEST, Package, read_json

LAYOUTS = {"plain": "model.onnx", "optimum": "onnx/model.onnx"}
"""Where the file is: beside the settings, or where optimum and transformers.js look for it."""


@dataclass(frozen=True)
class PackageResult:
    """What was written."""

    folder: Path
    task: str
    export: ExportResult
    proof: PackageProof | float | None
    """Of a decoder what was compared; else the largest difference, as a part of the largest value."""
    notes: list[str] = field(default_factory=list)

    def data(self) -> dict[str, Any]:
        """For JSON."""
        proof = vars(self.proof) if isinstance(self.proof, PackageProof) else self.proof
        return {"folder": str(self.folder), "task": self.task, "proof": proof, "export": self.export.data()}

    def __str__(self) -> str:
        lines = [f"{self.folder}: {self.task}, opset {self.export.opset}"]
        if isinstance(self.proof, float):
            lines.append(f"  [✓] used in batches of 1 and 3, within {self.proof:.2g} of the largest value")
        else:
            lines.append(f"  {self.proof}" if self.proof is not None else "  [!] not compared with the model")
        return "\n".join([*lines, *(f"  {note}" for note in self.notes)])


def export_package(
    source: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    task: str | None = None,
    opset_version: int | None = None,
    layout: str = "plain",
    verify: bool | str | float = True,
    tokens: int = 16,
    trust_remote_code: bool = False,
    allow_pickle: bool = False,
    progress: Callable[[str], object] | None = None,
) -> PackageResult:
    """Make a package of a local checkpoint of transformers.

    Example::

        tonnx.export_package("SmolLM-135M", "smollm-onnx")
        tonnx.load("smollm-onnx").generate("Once upon")[0].text

    Args:
        source: a folder with config.json, safetensors and tokenizer.
        output: the folder to write; it must not exist, or be an older package.
        task: what it is for; by default what the config says.
        layout: ``"plain"`` has model.onnx beside the settings, ``"optimum"`` in the folder onnx.
        verify: prove the file, as `tonnx.export` does it, and the package by its use: so many greedy ``tokens`` must be
            the model's.
        trust_remote_code: run Python code that the checkpoint brings.
        allow_pickle: read weights from pickles, which can run code.
        progress: called with the name of each stage.
    """
    destination = Path(output)
    _check(layout, tokens, destination)
    stage = progress or (lambda name: None)
    stage("look")
    checkpoint = read_checkpoint(Path(source), task, trust_remote_code=trust_remote_code, allow_pickle=allow_pickle)
    stage("load")
    model = checkpoint.load()
    with tempfile.TemporaryDirectory(prefix=".tonnx-", dir=destination.resolve().parent) as hidden:
        folder = Path(hidden) / destination.name
        file = folder / LAYOUTS[layout]
        file.parent.mkdir(parents=True)
        options = {"opset_version": opset_version}
        step = None
        if checkpoint.task == GENERATION:
            result, step = export_decoder(model, file, verify=verify, progress=progress, **options)
        else:
            result = export_encoder(model, file, verify=verify, progress=progress, **options)
        notes = _write_beside(checkpoint, model, folder, LAYOUTS[layout], step, result)
        stage("use")
        proof: PackageProof | float | None = None
        if verify is not False:
            package = Package(folder)
            proof = prove_package(package, model, tokens) if step is not None else prove_encoder(package, model)
        with writing(destination):
            if destination.exists():
                shutil.rmtree(destination)
            os.replace(folder, destination)
    return PackageResult(destination, checkpoint.task, result, proof, notes)


def _check(layout: str, tokens: int, destination: Path) -> None:
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


def _write_beside(
    checkpoint: Checkpoint, model: Any, folder: Path, file: str, step: Step | None, result: ExportResult
) -> list[str]:
    """Everything but the ONNX file."""
    notes = []
    copied = [name for name in TOKENIZER if (checkpoint.folder / name).is_file()]
    with writing(folder):
        for name in ("config.json", *copied):
            (folder / name).parent.mkdir(exist_ok=True)
            shutil.copyfile(checkpoint.folder / name, folder / name)
        manifest: dict[str, Any] = {"format": 1, "task": checkpoint.task, "file": file}
        if step is None and not takes_text(model):
            notes += _describe_input(checkpoint, model, manifest)
        if step is not None:
            settings = model.generation_config.to_diff_dict() if model.generation_config is not None else {}
            _write_json(folder / "generation_config.json", settings)
            shapes = {str(value.name): list(value.shape or ()) for value in result.model.graph.inputs}
            if (genai := genai_config(model.config, settings, file, shapes, step.handed_on)) is not None:
                _write_json(folder / "genai_config.json", genai)
            manifest |= {"state": step.handed_on, "one_token": step.one_token, "first_position": step.first_position}
        _write_json(folder / MANIFEST, manifest)
    if "tokenizer.json" not in copied and takes_text(model):
        notes.append("[!] the checkpoint has no tokenizer.json: the package takes token ids, not texts")
    if step is not None and step.one_token:
        notes.append("takes one token at a time: a part of its state does not grow with the past")
    return notes


def _describe_input(checkpoint: Checkpoint, model: Any, manifest: dict[str, Any]) -> list[str]:
    """What goes into the file, and how pictures become that."""
    manifest["input"] = model.main_input_name
    file = checkpoint.folder / "preprocessor_config.json"
    if model.main_input_name != "pixel_values":
        return []
    if not file.is_file():
        return [f"[!] the checkpoint has no {file.name}: the package takes arrays, not pictures"]
    try:
        manifest["before"] = picture_steps(read_json(file))
    except NotUnderstood as error:
        return [f"[!] the package takes arrays, not pictures: {file.name} asks for {error}"]
    return []


def _write_json(file: Path, content: dict[str, Any]) -> None:
    file.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
