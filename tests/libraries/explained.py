"""Explanations by gradients, speech features, spikes, forecasts and more pictures: libraries that were tried late."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tests.libraries.case import Case
from tests.libraries.further import _By, _case, _rows
from tests.libraries.pictures import _new
from tests.libraries.sequences import _BATCH

_BY_BATCH = {"b": _BATCH}
_ROWS = {"b": (4, 3, 2)}
_FRAMES = {"b": _BATCH, "n": (10, 14, 7)}
_SOUND = {"b": _BATCH, "n": (800, 1100, 650)}
_STEPS = {"b": _BATCH, "n": (16, 24, 11)}
_PICTURES = {"b": _BATCH, "h": (64, 96, 80), "w": (64, 72, 112)}


def _picture(b: int, h: int, w: int) -> Any:
    return (torch.randn(b, 3, h, w),)


def _sound(b: int, n: int) -> Any:
    return (torch.randn(b, n),)


def _spectra(width: int) -> Any:
    return lambda b, n: (torch.rand(b, n, width) + 0.1,)


def _words(b: int, n: int) -> Any:
    return (torch.randint(0, 50, (b, n)),)


def _attributed(method: str, net: Callable[[], torch.nn.Sequential], *layer: int, **options: Any) -> Any:
    model = net()
    attribution = _new(f"captum.attr.{method}", model, *(model[place] for place in layer))

    def run(_: torch.nn.Module, x: torch.Tensor) -> Any:
        with torch.enable_grad():
            return attribution.attribute(x, target=1, **options)

    return _By(model, run)


def _dense() -> torch.nn.Sequential:
    return torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.ReLU(), torch.nn.Linear(8, 4))


def _convolved() -> torch.nn.Sequential:
    head = (torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(8, 4))
    return torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), *head)


def _spiking() -> Any:
    from spikingjelly.activation_based import functional, layer, neuron

    model = torch.nn.Sequential(layer.Linear(6, 12), neuron.LIFNode(), layer.Linear(12, 4), neuron.ParametricLIFNode())
    functional.set_step_mode(model, "m")

    def run(net: torch.nn.Module, x: torch.Tensor) -> Any:
        functional.reset_net(net)
        return net(x)

    return _By(model, run)


def _forecaster(name: str, path: str, **config: Any) -> Case:
    def past(b: int) -> Any:
        return torch.rand(b, 24), (torch.rand(b, 24) > 0.2).float()

    return _case(f"gluonts/{name}", path, past, _BY_BATCH, prediction_length=6, context_length=24, **config)


def _vocoder() -> Any:
    config = {
        "resblock": "1", "upsample_rates": [4, 2], "upsample_kernel_sizes": [8, 4], "upsample_initial_channel": 16,
        "resblock_kernel_sizes": [3], "resblock_dilation_sizes": [[1, 3, 5]], "num_mels": 8, "activation": "snakebeta",
        "snake_logscale": True, "use_bias_at_final": False, "use_tanh_at_final": False,
    }  # fmt: skip
    return _new("bigvgan.BigVGAN", _new("bigvgan.env.AttrDict", config))


_TRANSFORMER = {"d_model": 8, "nhead": 2, "dim_feedforward": 8, "dropout": 0.0, "activation": "relu"}
_SWIN = {"hidden_dim": 16, "layers": (2, 2, 2, 2), "heads": (2, 4, 4, 4), "head_dim": 8, "window_size": 2}
_RESNEST = {"radix": 2, "bottleneck_width": 16, "deep_stem": True, "stem_width": 8, "avg_down": True, "avd": True}

CASES = [
    Case("captum/Saliency", lambda: _attributed("Saliency", _dense), _rows(6), _ROWS),
    Case(
        "captum/IntegratedGradients",
        lambda: _attributed("IntegratedGradients", _dense, n_steps=5),
        _rows(6),
        _ROWS,
    ),
    Case("captum/DeepLift", lambda: _attributed("DeepLift", _dense), _rows(6), _ROWS),
    Case(
        "captum/LayerGradCam",
        lambda: _attributed("LayerGradCam", _convolved, 0),
        _picture,
        {"b": _BATCH, "h": (16, 24, 20), "w": (16, 20, 28)},
    ),
    Case(
        "spikingjelly/LIF over time",
        _spiking,
        lambda b, n: (torch.randn(n, b, 6),),
        {"b": _BATCH, "n": (5, 7, 3)},
    ),
    _case(
        "diffsptk/MelCepstralAnalysis",
        "diffsptk.MelCepstralAnalysis",
        _spectra(33),
        _FRAMES,
        fft_length=64,
        cep_order=8,
        alpha=0.3,
        n_iter=2,
    ),
    _case(
        "diffsptk/PLP",
        "diffsptk.PLP",
        _spectra(65),
        _FRAMES,
        fft_length=128,
        plp_order=6,
        n_channel=12,
        sample_rate=8000,
    ),
    _case("diffsptk/PQMF", "diffsptk.PQMF", _sound, _SOUND, 4, 31),
    _case("diffsptk/MDCT", "diffsptk.MDCT", _sound, _SOUND, 64),
    _case("diffsptk/IIR", "diffsptk.IIR", _sound, _SOUND, [1.0, 0.3], [1.0, -0.5], ir_length=30),
    _forecaster(
        "PatchTST",
        "gluonts.torch.model.patch_tst.module.PatchTSTModel",
        patch_len=6,
        stride=3,
        padding_patch="end",
        num_feat_dynamic_real=0,
        norm_first=False,
        num_encoder_layers=1,
        scaling="mean",
        **_TRANSFORMER,
    ),
    _forecaster("DLinear", "gluonts.torch.model.d_linear.module.DLinearModel", hidden_dimension=8, kernel_size=5),
    Case("bigvgan/BigVGAN", _vocoder, lambda b, n: (torch.randn(b, 8, n),), _STEPS),
    _case("torchsr/EDSR", "torchsr.models.edsr.EDSR", _picture, _PICTURES, 2, 8, 2, 0.1),
    _case("torchsr/NinaSR", "torchsr.models.ninasr.NinaSR", _picture, _PICTURES, 2, 16, 2),
    _case("geffnet/tf_mixnet_s", "geffnet.create_model", _picture, _PICTURES, "tf_mixnet_s", num_classes=7),
    Case(
        "resnest/ResNeSt",
        lambda: _new(
            "resnest.torch.resnest.ResNet",
            __import__("resnest.torch.resnest", fromlist=["Bottleneck"]).Bottleneck,
            [1, 1, 1, 1],
            num_classes=7,
            **_RESNEST,
        ),
        _picture,
        _PICTURES,
    ),
    _case("antialiased-cnns/resnet18", "antialiased_cnns.resnet18", _picture, _PICTURES, num_classes=7),
    Case(
        "swin-transformer-pytorch/Swin",
        lambda: _new(
            "swin_transformer_pytorch.SwinTransformer", downscaling_factors=(4, 2, 2, 2), num_classes=5, **_SWIN
        ),
        lambda b, h: _picture(b, h, h),
        {"b": _BATCH, "h": (64, 128, 192)},
    ),
    _case(
        "video-diffusion-pytorch/Unet3D",
        "video_diffusion_pytorch.Unet3D",
        lambda b, f, h: (torch.randn(b, 3, f, h, h), torch.randint(0, 99, (b,))),
        {"b": _BATCH, "f": (4, 6, 5), "h": (16, 32, 24)},
        dim=16,
        dim_mults=(1, 2),
        attn_heads=2,
        attn_dim_head=8,
    ),
    _case(
        "make-a-video-pytorch/SpaceTimeUnet",
        "make_a_video_pytorch.SpaceTimeUnet",
        lambda b, f, h: (torch.randn(b, 3, f, h, h), torch.rand(b)),
        {"b": _BATCH, "f": (8, 16, 8), "h": (16, 16, 32)},
        dim=16,
        dim_mult=(1, 2),
        resnet_block_depths=(1, 1),
        temporal_compression=(False, True),
        self_attns=(False, True),
        attn_heads=2,
        attn_dim_head=8,
    ),
    _case(
        "recurrent-memory-transformer-pytorch/LM",
        "recurrent_memory_transformer_pytorch.RecurrentMemoryTransformer",
        _words,
        {"b": _BATCH, "n": (16, 12, 9)},
        num_tokens=50,
        dim=16,
        depth=2,
        dim_head=8,
        heads=2,
        num_memory_tokens=4,
        seq_len=16,
        causal=True,
    ),
    _case(
        "h-transformer-1d/HTransformer1D",
        "h_transformer_1d.HTransformer1D",
        _words,
        {"b": _BATCH, "n": (32, 64, 20)},
        num_tokens=50,
        dim=16,
        depth=2,
        max_seq_len=64,
        heads=2,
        dim_head=8,
        block_size=4,
        causal=True,
    ),
]
