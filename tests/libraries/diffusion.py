"""Networks of diffusion models: diffusers, denoising-diffusion-pytorch."""

from __future__ import annotations

from typing import Any

import torch

from tests.libraries.case import Case

_BATCH = (2, 3, 1)
_LATENT = (16, 24, 32)


def _diffusers(kind: str, **config: Any) -> Any:
    import diffusers

    return getattr(diffusers, kind)(**config)


def _unet() -> Any:
    return _diffusers(
        "UNet2DConditionModel",
        sample_size=16,
        in_channels=4,
        out_channels=4,
        block_out_channels=(32, 64),
        layers_per_block=1,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        cross_attention_dim=32,
        attention_head_dim=8,
        norm_num_groups=8,
    )


def _unet_inputs(b: int, h: int, w: int, t: int) -> dict[str, Any]:
    return {
        "sample": torch.randn(b, 4, h, w),
        "timestep": torch.tensor(7),
        "encoder_hidden_states": torch.randn(b, t, 32),
    }


def _controlnet() -> Any:
    return _diffusers(
        "ControlNetModel",
        in_channels=4,
        block_out_channels=(32, 64),
        layers_per_block=1,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        cross_attention_dim=32,
        attention_head_dim=8,
        norm_num_groups=8,
        conditioning_embedding_out_channels=(16, 32),
    )


def _flux_inputs(b: int, n: int, t: int) -> dict[str, Any]:
    return {
        "hidden_states": torch.randn(b, n, 4),
        "encoder_hidden_states": torch.randn(b, t, 32),
        "pooled_projections": torch.randn(b, 32),
        "timestep": torch.rand(b),
        "img_ids": torch.randint(0, 9, (n, 3)).float(),
        "txt_ids": torch.zeros(t, 3),
    }


_SD = {"b": _BATCH, "h": _LATENT, "w": (24, 16, 40), "t": (7, 5, 11)}

CASES = [
    Case("diffusers/UNet2DConditionModel", _unet, _unet_inputs, _SD),
    Case(
        "diffusers/UNet2DModel",
        lambda: _diffusers(
            "UNet2DModel",
            sample_size=16,
            in_channels=3,
            out_channels=3,
            block_out_channels=(32, 64),
            layers_per_block=1,
            down_block_types=("DownBlock2D", "AttnDownBlock2D"),
            up_block_types=("AttnUpBlock2D", "UpBlock2D"),
            norm_num_groups=8,
            attention_head_dim=8,
        ),
        lambda b, h, w: (torch.randn(b, 3, h, w), torch.tensor(5)),
        {"b": _BATCH, "h": _LATENT, "w": (24, 16, 40)},
    ),
    Case(
        "diffusers/AutoencoderKL decode",
        lambda: _method(
            _diffusers(
                "AutoencoderKL",
                block_out_channels=(16, 32),
                norm_num_groups=8,
                latent_channels=4,
                down_block_types=("DownEncoderBlock2D",) * 2,
                up_block_types=("UpDecoderBlock2D",) * 2,
            ),
            "decode",
        ),
        lambda b, h, w: (torch.randn(b, 4, h, w),),
        {"b": _BATCH, "h": (8, 9, 16), "w": (12, 8, 7)},
    ),
    Case(
        "diffusers/AutoencoderKL",
        lambda: _diffusers(
            "AutoencoderKL",
            block_out_channels=(16, 32),
            norm_num_groups=8,
            latent_channels=4,
            down_block_types=("DownEncoderBlock2D",) * 2,
            up_block_types=("UpDecoderBlock2D",) * 2,
        ),
        lambda b, h, w: (torch.randn(b, 3, h, w),),
        {"b": _BATCH, "h": (32, 48, 16), "w": (48, 32, 64)},
    ),
    Case(
        "diffusers/AutoencoderTiny",
        lambda: _diffusers(
            "AutoencoderTiny",
            encoder_block_out_channels=(16, 16),
            decoder_block_out_channels=(16, 16),
            num_encoder_blocks=(1, 1),
            num_decoder_blocks=(1, 1),
        ),
        lambda b, h, w: (torch.rand(b, 3, h, w),),
        {"b": _BATCH, "h": (32, 48, 16), "w": (48, 32, 64)},
    ),
    Case(
        "diffusers/VQModel",
        lambda: _diffusers(
            "VQModel",
            block_out_channels=(16, 32),
            norm_num_groups=8,
            latent_channels=3,
            num_vq_embeddings=32,
            down_block_types=("DownEncoderBlock2D",) * 2,
            up_block_types=("UpDecoderBlock2D",) * 2,
        ),
        lambda b, h, w: (torch.randn(b, 3, h, w),),
        {"b": _BATCH, "h": (32, 48, 16), "w": (48, 32, 64)},
    ),
    Case(
        "diffusers/ControlNetModel",
        _controlnet,
        lambda b, h, w, t: {**_unet_inputs(b, h, w, t), "controlnet_cond": torch.rand(b, 3, 2 * h, 2 * w)},
        _SD,
    ),
    Case(
        "diffusers/SD3Transformer2DModel",
        lambda: _diffusers(
            "SD3Transformer2DModel",
            sample_size=32,
            patch_size=2,
            in_channels=4,
            num_layers=2,
            attention_head_dim=8,
            num_attention_heads=4,
            caption_projection_dim=32,
            joint_attention_dim=32,
            pooled_projection_dim=64,
            out_channels=4,
            pos_embed_max_size=96,
        ),
        lambda b, h, w, t: {
            "hidden_states": torch.randn(b, 4, h, w),
            "encoder_hidden_states": torch.randn(b, t, 32),
            "pooled_projections": torch.randn(b, 64),
            "timestep": torch.rand(b) * 100,
        },
        _SD,
    ),
    Case(
        "diffusers/FluxTransformer2DModel",
        lambda: _diffusers(
            "FluxTransformer2DModel",
            patch_size=1,
            in_channels=4,
            num_layers=1,
            num_single_layers=1,
            attention_head_dim=16,
            num_attention_heads=2,
            joint_attention_dim=32,
            pooled_projection_dim=32,
            axes_dims_rope=[4, 4, 8],
        ),
        _flux_inputs,
        {"b": _BATCH, "n": (16, 12, 20), "t": (7, 5, 11)},
    ),
    Case(
        "diffusers/PixArtTransformer2DModel",
        lambda: _diffusers(
            "PixArtTransformer2DModel",
            sample_size=16,
            num_layers=1,
            patch_size=2,
            attention_head_dim=8,
            num_attention_heads=2,
            in_channels=4,
            cross_attention_dim=16,
            out_channels=8,
            caption_channels=32,
            norm_type="ada_norm_single",
        ),
        lambda b, h, w, t: {
            "hidden_states": torch.randn(b, 4, h, w),
            "encoder_hidden_states": torch.randn(b, t, 32),
            "timestep": torch.randint(0, 999, (b,)),
            "added_cond_kwargs": {"aspect_ratio": None, "resolution": None},
        },
        _SD,
    ),
    Case(
        "diffusers/DiTTransformer2DModel",
        lambda: _diffusers(
            "DiTTransformer2DModel",
            sample_size=16,
            num_layers=2,
            patch_size=2,
            attention_head_dim=8,
            num_attention_heads=2,
            in_channels=4,
            out_channels=8,
            num_embeds_ada_norm=10,
        ),
        lambda b, h, w: {
            "hidden_states": torch.randn(b, 4, h, w),
            "timestep": torch.randint(0, 999, (b,)),
            "class_labels": torch.randint(0, 9, (b,)),
        },
        {"b": _BATCH, "h": _LATENT, "w": (16, 24, 32)},
    ),
    Case(
        "diffusers/UNetSpatioTemporalConditionModel",
        lambda: _diffusers(
            "UNetSpatioTemporalConditionModel",
            sample_size=16,
            in_channels=8,
            out_channels=4,
            block_out_channels=(32, 64),
            layers_per_block=1,
            num_attention_heads=(2, 2),
            down_block_types=("CrossAttnDownBlockSpatioTemporal", "DownBlockSpatioTemporal"),
            up_block_types=("UpBlockSpatioTemporal", "CrossAttnUpBlockSpatioTemporal"),
            cross_attention_dim=32,
            addition_time_embed_dim=32,
            projection_class_embeddings_input_dim=96,
            num_frames=4,
        ),
        lambda b, f, h, w: {
            "sample": torch.randn(b, f, 8, h, w),
            "timestep": torch.tensor(7.0),
            "encoder_hidden_states": torch.randn(b, 1, 32),
            "added_time_ids": torch.rand(b, 3),
        },
        {"b": _BATCH, "f": (4, 3, 5), "h": (16, 24, 8), "w": (24, 16, 32)},
    ),
    Case(
        "diffusers/CogVideoXTransformer3DModel",
        lambda: _diffusers(
            "CogVideoXTransformer3DModel",
            num_attention_heads=2,
            attention_head_dim=16,
            in_channels=4,
            out_channels=4,
            time_embed_dim=16,
            text_embed_dim=32,
            num_layers=1,
            sample_width=16,
            sample_height=16,
            sample_frames=9,
            patch_size=2,
            max_text_seq_length=8,
        ),
        lambda b, h: {
            "hidden_states": torch.randn(b, 3, 4, h, 16),
            "encoder_hidden_states": torch.randn(b, 8, 32),
            "timestep": torch.randint(0, 999, (b,)),
        },
        {"b": _BATCH, "h": (16, 16, 16)},
    ),
    Case(
        "diffusers/LTXVideoTransformer3DModel",
        lambda: _diffusers(
            "LTXVideoTransformer3DModel",
            in_channels=8,
            out_channels=8,
            num_attention_heads=2,
            attention_head_dim=16,
            cross_attention_dim=32,
            num_layers=1,
            caption_channels=16,
        ),
        lambda b, t: {
            "hidden_states": torch.randn(b, 24, 8),
            "encoder_hidden_states": torch.randn(b, t, 16),
            "timestep": torch.randint(0, 999, (b,)).float(),
            "encoder_attention_mask": torch.ones(b, t),
            "num_frames": 2,
            "height": 3,
            "width": 4,
        },
        {"b": _BATCH, "t": (7, 5, 11)},
    ),
    Case(
        "diffusers/WanTransformer3DModel",
        lambda: _diffusers(
            "WanTransformer3DModel",
            patch_size=(1, 2, 2),
            num_attention_heads=2,
            attention_head_dim=12,
            in_channels=4,
            out_channels=4,
            text_dim=16,
            freq_dim=32,
            ffn_dim=32,
            num_layers=1,
            cross_attn_norm=True,
            qk_norm="rms_norm_across_heads",
            rope_max_seq_len=32,
        ),
        lambda b, f, h, w, t: {
            "hidden_states": torch.randn(b, 4, f, h, w),
            "timestep": torch.randint(0, 999, (b,)),
            "encoder_hidden_states": torch.randn(b, t, 16),
        },
        {"b": _BATCH, "f": (2, 3, 1), "h": (8, 12, 16), "w": (12, 8, 6), "t": (7, 5, 11)},
    ),
    Case(
        "diffusers/UNet1DModel",
        lambda: _diffusers(
            "UNet1DModel",
            block_out_channels=(32, 64),
            in_channels=2,
            out_channels=2,
            sample_size=64,
            extra_in_channels=64,
            layers_per_block=1,
            use_timestep_embedding=False,
            time_embedding_type="fourier",
            down_block_types=("DownBlock1DNoSkip", "AttnDownBlock1D"),
            mid_block_type="UNetMidBlock1D",
            up_block_types=("AttnUpBlock1D", "UpBlock1DNoSkip"),
        ),
        lambda b, n: (torch.randn(b, 2, n), torch.full((b,), 3.0)),
        {"b": _BATCH, "n": (64, 96, 128)},
    ),
    Case(
        "denoising-diffusion-pytorch/Unet",
        lambda: _imported("denoising_diffusion_pytorch", "Unet")(
            dim=16, dim_mults=(1, 2), flash_attn=False, attn_heads=2
        ),
        lambda b, h, w: (torch.randn(b, 3, h, w), torch.rand(b)),
        {"b": _BATCH, "h": _LATENT, "w": (24, 16, 40)},
    ),
    Case(
        "denoising-diffusion-pytorch/Unet1D",
        lambda: _imported("denoising_diffusion_pytorch", "Unet1D")(dim=16, dim_mults=(1, 2), channels=2, attn_heads=2),
        lambda b, n: (torch.randn(b, 2, n), torch.rand(b)),
        {"b": _BATCH, "n": (32, 48, 24)},
    ),
]


def _imported(module: str, name: str) -> Any:
    import importlib

    return getattr(importlib.import_module(module), name)


class _Method(torch.nn.Module):
    def __init__(self, model: Any, name: str) -> None:
        super().__init__()
        self.model, self.name = model, name

    def forward(self, *inputs: torch.Tensor) -> Any:
        return getattr(self.model, self.name)(*inputs)


def _method(model: Any, name: str) -> torch.nn.Module:
    return _Method(model, name)
