"""Volumes: networks for medicine, for video and for physics."""

from __future__ import annotations

from typing import Any

import torch

from tests.libraries.case import Case
from tests.libraries.pictures import _new

_BATCH = (2, 3, 1)
_CUBE = {"b": _BATCH, "d": (32, 64, 32), "h": (32, 32, 64), "w": (64, 32, 32)}
_PLANE = {"b": _BATCH, "h": (64, 96, 128), "w": (96, 64, 160)}


def _cube(b: int, d: int, h: int, w: int) -> Any:
    return (torch.randn(b, 1, d, h, w),)


def _plane(b: int, h: int = 64, w: int = 64) -> Any:
    return (torch.randn(b, 1, h, w),)


def _monai(name: str, example: Any, sizes: Any, *args: Any, **config: Any) -> Case:
    flat = " 2-D" if example is _plane else ""
    return Case(f"monai/{name}{flat}", lambda: _new(f"monai.networks.nets.{name}", *args, **config), example, sizes)


def _monai_fixed(b: int) -> Any:
    return (torch.randn(b, 1, 32, 32, 32),)


_UNET = {
    "spatial_dims": 3,
    "in_channels": 1,
    "out_channels": 2,
    "channels": (8, 16, 32),
    "strides": (2, 2),
    "num_res_units": 1,
}


class _Reconstruction(torch.nn.Module):
    """What an autoencoder makes of its mean; its forward draws from around it."""

    def __init__(self, net: torch.nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: torch.Tensor) -> Any:
        return self.net.reconstruct(x)


CASES = [
    _monai("UNet", _cube, _CUBE, **_UNET),
    _monai("UNet", _plane, _PLANE, **{**_UNET, "spatial_dims": 2}),
    _monai(
        "SegResNet",
        _cube,
        _CUBE,
        spatial_dims=3,
        init_filters=8,
        in_channels=1,
        out_channels=2,
        blocks_down=(1, 1, 1),
        blocks_up=(1, 1),
    ),
    _monai(
        "SegResNetDS",
        _plane,
        _PLANE,
        spatial_dims=2,
        init_filters=8,
        in_channels=1,
        out_channels=2,
        blocks_down=(1, 1, 1),
    ),
    _monai(
        "SwinUNETR",
        _cube,
        _CUBE,
        in_channels=1,
        out_channels=2,
        feature_size=12,
        depths=(2, 1, 1, 1),
        num_heads=(2, 2, 2, 2),
        window_size=4,
    ),
    _monai(
        "SwinUNETR",
        _plane,
        _PLANE,
        in_channels=1,
        out_channels=2,
        feature_size=12,
        spatial_dims=2,
        depths=(2, 1, 1, 1),
        num_heads=(2, 2, 2, 2),
        window_size=4,
    ),
    _monai(
        "UNETR",
        _monai_fixed,
        {"b": _BATCH},
        in_channels=1,
        out_channels=2,
        img_size=(32, 32, 32),
        feature_size=8,
        hidden_size=32,
        mlp_dim=32,
        num_heads=4,
    ),
    _monai(
        "DynUNet",
        _cube,
        _CUBE,
        3,
        1,
        2,
        kernel_size=[3, 3, 3],
        strides=[1, 2, 2],
        upsample_kernel_size=[2, 2],
        filters=[8, 16, 32],
    ),
    _monai(
        "AttentionUnet", _cube, _CUBE, spatial_dims=3, in_channels=1, out_channels=2, channels=(8, 16), strides=(2,)
    ),
    _monai("VNet", _cube, _CUBE, spatial_dims=3, in_channels=1, out_channels=2),
    _monai(
        "BasicUNetPlusPlus",
        _plane,
        _PLANE,
        spatial_dims=2,
        in_channels=1,
        out_channels=2,
        features=(8, 8, 16, 16, 32, 8),
    ),
    _monai("DenseNet121", _plane, _PLANE, spatial_dims=2, in_channels=1, out_channels=2),
    _monai("HighResNet", _plane, _PLANE, spatial_dims=2, in_channels=1, out_channels=2),
    _monai("MedNeXt", _plane, _PLANE, spatial_dims=2, in_channels=1, out_channels=2, init_filters=8),
    Case(
        "monai/AutoencoderKL 2-D",
        lambda: _Reconstruction(
            _new(
                "monai.networks.nets.AutoencoderKL",
                spatial_dims=2,
                in_channels=1,
                out_channels=1,
                channels=(8, 16),
                latent_channels=3,
                norm_num_groups=4,
                num_res_blocks=(1, 1),
                attention_levels=(False, False),
            )
        ),
        _plane,
        _PLANE,
    ),
    _monai(
        "VQVAE",
        _plane,
        _PLANE,
        spatial_dims=2,
        in_channels=1,
        out_channels=1,
        channels=(8, 16),
        num_res_channels=8,
        num_res_layers=1,
        num_embeddings=16,
        embedding_dim=8,
        downsample_parameters=((2, 4, 1, 1),) * 2,
        upsample_parameters=((2, 4, 1, 1, 0),) * 2,
    ),
    _monai("FlexibleUNet", _plane, _PLANE, in_channels=1, out_channels=2, spatial_dims=2, backbone="efficientnet-b0"),
    Case(
        "pytorchvideo/SlowR50",
        lambda: _new(
            "pytorchvideo.models.resnet.create_resnet",
            model_depth=50,
            stem_dim_out=8,
            model_num_class=5,
            head_pool_kernel_size=(4, 2, 2),
        ),
        lambda b, h: (torch.randn(b, 3, 4, h, 64),),
        {"b": _BATCH, "h": (64, 96, 128)},
    ),
    Case(
        "pytorchvideo/X3D",
        lambda: _new("pytorchvideo.models.x3d.create_x3d", input_clip_length=4, input_crop_size=64, model_num_class=5),
        lambda b: (torch.randn(b, 3, 4, 64, 64),),
        {"b": _BATCH},
    ),
    Case(
        "pytorchvideo/MViT",
        lambda: _new(
            "pytorchvideo.models.vision_transformers.create_multiscale_vision_transformers",
            spatial_size=64,
            temporal_size=4,
            depth=2,
            head_num_classes=5,
            patch_embed_dim=16,
            num_heads=1,
            conv_patch_embed_kernel=(3, 7, 7),
        ),
        lambda b: (torch.randn(b, 3, 4, 64, 64),),
        {"b": _BATCH},
    ),
    Case(
        "neuraloperator/FNO",
        lambda: _new(
            "neuralop.models.FNO", n_modes=(8, 8), in_channels=1, out_channels=1, hidden_channels=8, n_layers=2
        ),
        _plane,
        {"b": _BATCH, "h": (32, 48, 64), "w": (32, 48, 40)},
    ),
]
