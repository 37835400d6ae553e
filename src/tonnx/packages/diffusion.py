"""A folder of diffusers as ONNX files: text encoders, the network that removes noise, the autoencoder's two halves.

Folders and names are those that optimum has, so that its pipelines find them.
"""

from __future__ import annotations

import inspect
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tonnx.api.export import export
from tonnx.api.result import ExportResult
from tonnx.errors import InvalidModel, TonnxError, needed, told_as
from tonnx.io.staging import writing
from tonnx.packages.decoder import Around, compared, random_array
from tonnx.proof.session import Session
from tonnx.run.package import read_json

INDEX, TASK = "model_index.json", "text-to-image"
_BATCH, _SIDE, _LENGTH = 2, 8, 7
"""Of the example; the side is that of the latent picture, the length that of a text."""
DENOISERS = ("unet", "transformer")
_WIDTHS = ("joint_attention_dim", "caption_channels", "cap_feat_dim", "text_embed_dim", "cross_attention_dim")
"""What configurations call the width of a text's states, the most telling first."""


@dataclass
class Part:
    """One file: its folder, the network, an example by input name, and what is dynamic in it."""

    name: str
    network: torch.nn.Module
    example: dict[str, torch.Tensor]
    axes: dict[str, dict[int, str]] = field(default_factory=dict)


class TextEncoder(torch.nn.Module):
    """The states of all tokens, those of every layer where the pipeline has several encoders, and what they pool to."""

    def __init__(self, model: Any, every_layer: bool) -> None:
        super().__init__()
        self.model, self._every_layer = model, every_layer

    def forward(self, input_ids: torch.Tensor) -> dict[str, torch.Tensor]:
        result = self.model(input_ids=input_ids, output_hidden_states=self._every_layer, return_dict=True)
        named = {name: value for name, value in result.items() if torch.is_tensor(value)}
        layers = result.hidden_states if self._every_layer else ()
        return named | {f"hidden_states.{place}": layer for place, layer in enumerate(layers)}


class Denoiser(Around):
    """The noise of a latent picture, given a text and how far the drawing is."""

    def forward(
        self,
        sample: torch.Tensor,
        timestep: torch.Tensor,
        encoder_hidden_states: torch.Tensor,
        text_embeds: torch.Tensor | None = None,
        time_ids: torch.Tensor | None = None,
    ) -> dict[str, torch.Tensor]:
        more = None if text_embeds is None else {"text_embeds": text_embeds, "time_ids": time_ids}
        return {"out_sample": self.model(sample, timestep, encoder_hidden_states, added_cond_kwargs=more).sample}


class Transformer(Around):
    """A transformer in the place of a U-Net: what it is given is what its signature names."""

    def forward(self, **inputs: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"out_hidden_states": self.model(**inputs, return_dict=False)[0]}


class VaeEncoder(Around):
    """A picture as mean and spread of its latent one."""

    def forward(self, sample: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"latent_parameters": self.model.encode(sample).latent_dist.parameters}


class VaeDecoder(Around):
    """A latent picture as one of pixels."""

    def forward(self, latent_sample: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"sample": self.model.decode(latent_sample).sample}


def is_pipeline(folder: Path) -> bool:
    return (folder / INDEX).is_file()


def load_networks(folder: Path) -> dict[str, Any]:
    """The networks that draw, by the names of their folders, in float32; pickles are not read."""
    what, hint = "a folder with a model_index.json is loaded by diffusers", "pip install diffusers transformers"
    libraries = {name: needed(name, what, hint) for name in ("diffusers", "transformers")}
    index = {name: said for name, said in read_json(folder / INDEX).items() if isinstance(said, list) and said[-1]}
    if "vae" not in index or not index.keys() & {*DENOISERS}:
        raise TonnxError(
            f"there is no package for {folder}",
            why=f"its {INDEX} has {', '.join(index) or 'no networks'}; a unet or a transformer, and a vae are needed",
            hint="tonnx.export takes its parts one by one",
        )
    networks = {}
    for name in sorted(name for name in index if name in (*DENOISERS, "vae") or name.startswith("text_encoder")):
        library, kind = map(str, index[name])
        owner = libraries.get(library)
        if not hasattr(owner, kind):
            raise InvalidModel(f"{name} is a {library}.{kind}, which is not installed", where=str(folder / INDEX))
        with told_as(InvalidModel, f"{library} does not load {folder / name}"):
            loaded = getattr(owner, kind).from_pretrained(
                str(folder / name), local_files_only=True, use_safetensors=True
            )
        networks[name] = loaded.float().eval()
    return networks


def parts_of(components: Mapping[str, Any]) -> Iterator[Part]:
    encoders = {name: part for name, part in components.items() if name.startswith("text_encoder")}
    for name, encoder in encoders.items():
        longest = getattr(encoder.config, "max_position_embeddings", None)  # without one, any length will do
        length, moving = (int(longest), {0: "batch"}) if longest else (_LENGTH, {0: "batch", 1: "sequence"})
        ids = torch.arange(_BATCH * length).reshape(_BATCH, length) % int(encoder.config.vocab_size)
        network = TextEncoder(encoder, len(encoders) > 1).eval()
        yield Part(name, network, {"input_ids": ids}, {"input_ids": moving})
    yield _denoiser(components["unet"]) if "unet" in components else _transformer(components["transformer"])
    vae = components["vae"]
    if not {"block_out_channels", "latent_channels"} <= vae.config.keys():
        why = "its config does not say by how much it makes pictures smaller"
        raise TonnxError(f"there is no package with a {type(vae).__name__}", why=why)
    scale = 2 ** (len(vae.config.block_out_channels) - 1)
    picture = random_array(_BATCH, vae.config.in_channels, _SIDE * scale, _SIDE * scale)
    latent = random_array(_BATCH, vae.config.latent_channels, _SIDE, _SIDE)
    moving = {0: "batch", 2: "height", 3: "width"}
    yield Part("vae_encoder", VaeEncoder(vae).eval(), {"sample": picture}, {"sample": moving})
    yield Part("vae_decoder", VaeDecoder(vae).eval(), {"latent_sample": latent}, {"latent_sample": moving})


def _denoiser(unet: Any) -> Part:
    config = unet.config
    example = {
        "sample": random_array(_BATCH, config.in_channels, _SIDE, _SIDE),
        "timestep": torch.tensor(17),
        "encoder_hidden_states": random_array(_BATCH, _LENGTH, config.cross_attention_dim),
    }
    axes = {"sample": {0: "batch", 2: "height", 3: "width"}, "encoder_hidden_states": {0: "batch", 1: "sequence"}}
    if config.addition_embed_type == "text_time":
        width = config.projection_class_embeddings_input_dim - 6 * config.addition_time_embed_dim
        example |= {"text_embeds": random_array(_BATCH, width), "time_ids": random_array(_BATCH, 6).abs() * 100}
        axes |= {"text_embeds": {0: "batch"}, "time_ids": {0: "batch"}}
    return Part("unet", Denoiser(unet).eval(), example, axes)


def _transformer(model: Any) -> Part:
    """Latent pictures as they are; as rows of patches where the network is told the places of these."""
    taken, config = inspect.signature(model.forward).parameters, model.config
    width = next((int(config[name]) for name in _WIDTHS if config.get(name)), 0)
    grid = torch.cartesian_prod(torch.arange(_SIDE), torch.arange(_SIDE)).float()
    picture, channels = {0: "batch", 2: "height", 3: "width"}, int(config.in_channels)
    packed, text = "img_ids" in taken, {0: "batch", 1: "sequence"}
    shape = (_BATCH, _SIDE**2, channels) if packed else (_BATCH, channels, _SIDE, _SIDE)
    mask = torch.ones(_BATCH, _LENGTH, dtype=torch.long)
    mask[1, -2:] = 0
    known: dict[str, tuple[torch.Tensor, dict[int, str]]] = {
        "hidden_states": (random_array(*shape), {0: "batch", 1: "patches"} if packed else picture),
        "timestep": (torch.tensor([17.0, 500.0]), {0: "batch"}),
        "encoder_hidden_states": (random_array(_BATCH, _LENGTH, width), text),
        "encoder_attention_mask": (mask, text),
        "txt_ids": (torch.zeros(_LENGTH, 3), {0: "sequence"}),
        "img_ids": (torch.nn.functional.pad(grid, (1, 0)), {0: "patches"}),
    }
    if pooled := config.get("pooled_projection_dim"):
        known["pooled_projections"] = random_array(_BATCH, int(pooled)), {0: "batch"}
    if config.get("guidance_embeds"):
        known["guidance"] = torch.tensor([3.5, 1.0]), {0: "batch"}
    needed = [name for name, each in taken.items() if each.default is each.empty and each.kind is not each.VAR_KEYWORD]
    if not width or (unknown := [name for name in needed if name not in known]):
        raise TonnxError(
            f"there is no package with a {type(model).__name__} yet",
            why=f"it takes {', '.join(unknown)}" if width else f"its config has none of {', '.join(_WIDTHS)}",
            hint="tonnx.export takes its parts one by one",
        )
    given = {name: known[name] for name in known if name in taken}
    example, axes = ({name: pair[side] for name, pair in given.items()} for side in (0, 1))
    return Part("transformer", Transformer(model).eval(), example, axes)  # type: ignore[arg-type]


def write_networks(source: Path, folder: Path, networks: Mapping[str, Any], **options: Any) -> dict[str, ExportResult]:
    """Write all files, and what belongs beside them; ``options`` are those of `tonnx.export`."""
    results = {}
    for part in parts_of(networks):
        (folder / part.name).mkdir(parents=True)
        file = f"{part.name}/model.onnx"
        results[file] = export(part.network, (), folder / file, kwargs=part.example, dynamic_axes=part.axes, **options)
    with writing(folder):
        for name in sorted(os.listdir(source)):
            has_weights = any((source / name).glob("*.safetensors")) or any((source / name).glob("*.bin"))
            if (source / name).is_dir() and not has_weights:
                shutil.copytree(source / name, folder / name)
        for name in {file.split("/")[0] for file in results}:
            origin = source / ("vae" if name.startswith("vae_") else name) / "config.json"
            shutil.copyfile(origin, folder / name / "config.json")
        shutil.copyfile(source / INDEX, folder / INDEX)
    return results


def prove_networks(folder: Path, networks: Mapping[str, Any]) -> float:
    """One picture from text to pixels through all files and through the model: the largest difference of a stage."""
    worst = 0.0
    handed_on: dict[str, np.ndarray] = {}
    for part in parts_of(networks):
        has_batch = {name for name, axes in part.axes.items() if axes.get(0) == "batch"}
        example = {name: tensor[:1] if name in has_batch else tensor for name, tensor in part.example.items()}
        arrays = {name: handed_on.get(f"{part.name}.{name}", tensor.numpy()) for name, tensor in example.items()}
        actual = Session(folder / part.name / "model.onnx").run(arrays)
        with torch.no_grad():
            wanted = part.network(**{name: torch.from_numpy(np.asarray(array)) for name, array in arrays.items()})
        where = f"{part.name}/model.onnx, in a batch of 1"
        results = (compared(f"{name} of {part.name}", wanted[name], actual[name], where) for name in actual)
        worst = max(worst, *results)
        handed_on |= _handed_on(part.name, actual, networks)
    return worst


def _handed_on(name: str, actual: Mapping[str, np.ndarray], networks: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """What the next parts get: a text's states, and the latent picture."""
    width = networks["unet"].config.cross_attention_dim if "unet" in networks else None
    if name == "text_encoder" and actual["last_hidden_state"].shape[-1] == width:
        return {"unet.encoder_hidden_states": actual["last_hidden_state"]}
    drawn = next(iter(actual.values())) if name in DENOISERS else np.empty(0)
    is_picture = drawn.ndim == 4 and drawn.shape[1] == networks["vae"].config.latent_channels
    return {"vae_decoder.latent_sample": drawn} if is_picture else {}
