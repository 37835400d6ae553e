"""A folder of diffusers becomes the files that optimum's pipelines look for; what is not whole is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("diffusers")
pytest.importorskip("transformers")

import tests.generation.families  # noqa: F401  # isort: skip (first: transformers imports torchvision)

import diffusers
import torch
import transformers

from tonnx.errors import TonnxError, VerificationFailed
from tonnx.packages import diffusion
from tonnx.packages.export import export_package


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("diffusion") / "source"
    torch.manual_seed(0)
    blocks = {"block_out_channels": (8,), "norm_num_groups": 4, "layers_per_block": 1}
    networks: dict[str, tuple[str, Any]] = {
        "unet": ("diffusers", diffusers.UNet2DConditionModel(
            **blocks, sample_size=8, cross_attention_dim=16, attention_head_dim=4,
            down_block_types=("CrossAttnDownBlock2D",), up_block_types=("CrossAttnUpBlock2D",),
        )),
        "vae": ("diffusers", diffusers.AutoencoderKL(**blocks, latent_channels=4)),
        "text_encoder": ("transformers", transformers.CLIPTextModel(transformers.CLIPTextConfig(
            vocab_size=97, hidden_size=16, intermediate_size=24, num_hidden_layers=1, num_attention_heads=2,
            max_position_embeddings=6,
        ))),
    }  # fmt: skip
    save(networks, folder)
    return folder


def save(networks: dict[str, tuple[str, Any]], folder: Path) -> None:
    for name, (_, network) in networks.items():
        network.save_pretrained(folder / name)
    diffusers.DDIMScheduler().save_pretrained(folder / "scheduler")
    index = {name: [library, type(network).__name__] for name, (library, network) in networks.items()}
    (folder / "model_index.json").write_text(json.dumps({"_class_name": "Any", **index}), encoding="utf-8")


def transformer(kind: str) -> Any:
    sizes = {"num_layers": 1, "num_attention_heads": 2, "joint_attention_dim": 16, "pooled_projection_dim": 16}
    if kind == "SD3Transformer2DModel":
        sizes |= {"sample_size": 8, "attention_head_dim": 8, "caption_projection_dim": 16, "in_channels": 4}
        return diffusers.SD3Transformer2DModel(**sizes, out_channels=4, patch_size=1)
    if kind == "FluxTransformer2DModel":
        sizes |= {"num_single_layers": 1, "attention_head_dim": 16, "in_channels": 4}
        return diffusers.FluxTransformer2DModel(**sizes, axes_dims_rope=(4, 4, 8), guidance_embeds=True)
    text = {"caption_channels": 16, "cross_attention_dim": 16, "norm_type": "ada_norm_single"}
    return diffusers.PixArtTransformer2DModel(
        **text, sample_size=8, num_layers=1, attention_head_dim=8, num_attention_heads=2, num_embeds_ada_norm=1000
    )


@pytest.mark.models
@pytest.mark.parametrize(
    ("kind", "inputs"),
    [
        ("SD3Transformer2DModel", {"hidden_states", "encoder_hidden_states", "pooled_projections", "timestep"}),
        ("FluxTransformer2DModel", {"hidden_states", "encoder_hidden_states", "pooled_projections", "timestep",
                                    "img_ids", "txt_ids", "guidance"}),
        ("PixArtTransformer2DModel", {"hidden_states", "encoder_hidden_states", "encoder_attention_mask", "timestep"}),
    ],
)  # fmt: skip
def test_a_transformer_in_the_place_of_a_unet(kind: str, inputs: set[str], tmp_path: Path) -> None:
    """What it takes is what its signature names; T5 reads texts of any length."""
    torch.manual_seed(0)
    sizes = {"d_model": 16, "d_kv": 8, "d_ff": 24, "num_layers": 1, "num_heads": 2, "vocab_size": 97}
    blocks = {"block_out_channels": (8,), "norm_num_groups": 4, "layers_per_block": 1}
    networks = {
        "transformer": ("diffusers", transformer(kind)),
        "vae": ("diffusers", diffusers.AutoencoderKL(**blocks, latent_channels=4)),
        "text_encoder": ("transformers", transformers.T5EncoderModel(transformers.T5Config(**sizes))),
    }
    save(networks, tmp_path / "source")
    result = export_package(tmp_path / "source", tmp_path / "out", verify="quick")
    shapes = {str(v.name): str(v.shape) for v in result.exports["transformer/model.onnx"].model.graph.inputs}
    assert shapes.keys() == inputs and "sequence" in shapes["encoder_hidden_states"]
    (read,) = result.exports["text_encoder/model.onnx"].model.graph.inputs
    assert "sequence" in str(read.shape)
    manifest = json.loads((tmp_path / "out" / "tonnx_package.json").read_text(encoding="utf-8"))
    assert manifest["file"] == "transformer/model.onnx"


@pytest.mark.models
def test_from_text_to_picture(source: Path, tmp_path: Path) -> None:
    result = export_package(source, tmp_path / "out", verify="quick")
    assert result.task == "text-to-image" and "from text to picture" in str(result)
    files = sorted(str(path.relative_to(tmp_path / "out")) for path in (tmp_path / "out").rglob("*.onnx"))
    assert files == [f"{name}/model.onnx" for name in ("text_encoder", "unet", "vae_decoder", "vae_encoder")]
    assert (tmp_path / "out" / "scheduler" / "scheduler_config.json").is_file()
    networks = diffusion.load_networks(source)
    with torch.no_grad():
        networks["vae"].decoder.conv_out.weight.mul_(1.5)
    with pytest.raises(VerificationFailed, match="sample of vae_decoder"):
        diffusion.prove_networks(tmp_path / "out", networks)


@pytest.mark.parametrize(
    ("index", "asked", "message"),
    [
        ({"unet": [None, None]}, {}, "a unet or a transformer, and a vae are needed"),
        ({"unet": ["diffusers", "UNetOfTomorrow"]}, {}, "not installed"),
        ({"unet": ["code", "Net"]}, {}, "not installed"),
        ({"text_encoder_2": ["transformers", "CLIPTextModel"]}, {}, "does not load"),
        ({}, {"task": "text-generation"}, "does not fit"),
        ({}, {"to": "int8"}, "copied as floats"),
    ],
)
def test_what_is_not_whole_is_refused(
    index: dict[str, Any], asked: dict[str, Any], message: str, source: Path, tmp_path: Path
) -> None:
    (tmp_path / "source").mkdir()
    for path in source.iterdir():
        if path.is_dir():
            (tmp_path / "source" / path.name).symlink_to(path)
    content = json.loads((source / "model_index.json").read_text(encoding="utf-8"))
    (tmp_path / "source" / "model_index.json").write_text(json.dumps({**content, **index}), encoding="utf-8")
    with pytest.raises(TonnxError, match=message):
        export_package(tmp_path / "source", tmp_path / "out", **asked)
    assert [path.name for path in tmp_path.iterdir()] == ["source"]
