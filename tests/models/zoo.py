"""Architectures that we did not write, with random weights: how to build each, its inputs and dynamic dimensions."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils import _pytree as pytree

from tests.models import torchvision_schemas

TIMM = """
resnet50 resnext50_32x4d densenet121 mobilenetv3_small_100 efficientnet_b0 regnety_002 convnext_tiny
vit_tiny_patch16_224 beit_base_patch16_224 swin_tiny_patch4_window7_224 cait_xxs24_224 mixer_s32_224 levit_128
edgenext_xx_small poolformerv2_s12 inception_v4 dpn68 res2net50_26w_4s mobilevit_xxs sequencer2d_s dla34
focalnet_tiny_srf davit_tiny hiera_tiny_224 mambaout_femto crossvit_tiny_240 nfnet_l0 tinynet_a xception41 halonet26t
""".split()

CNNS = """
resnet50 resnext50_32x4d densenet121 mobilenetv3_small_100 efficientnet_b0 regnety_002 inception_v4 dpn68
res2net50_26w_4s dla34 nfnet_l0 tinynet_a xception41
""".split()
"""Those made of convolutions only: they go down to opset 7."""


@dataclass
class Example:
    """A model ready for export."""

    model: torch.nn.Module
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    dynamic: dict[str, dict[int, str]] = field(default_factory=dict)


def timm_example(name: str) -> Example:
    """A timm classifier at its own input size, batch dynamic."""
    import timm

    torch.manual_seed(0)
    model = timm.create_model(name, pretrained=False).eval()
    size = model.default_cfg["input_size"]
    return Example(model, (torch.randn(1, *size),), dynamic={"x": {0: "batch"}})


def enliven(built: Example) -> None:
    """Weights under which every layer matters to the output.

    Freshly built networks have zero heads, layer scales of 1e-6 and batch statistics that let the signal die out: their
    outputs are so small that any comparison passes.
    """
    norms = [m for m in built.model.modules() if isinstance(m, torch.nn.modules.batchnorm._BatchNorm)]
    with torch.no_grad():
        for parameter in built.model.parameters():
            if parameter.numel() > 1 and parameter.min() == parameter.max():
                centre = 1.0 if parameter.max() == 1 else 0.0
                parameter.copy_(centre + 0.1 * torch.randn_like(parameter))
        for norm in norms:
            norm.momentum = None  # the plain average of what it sees
            norm.train()
        if norms:
            built.model(*[torch.cat([x, *(torch.randn_like(x) for _ in range(3))]) for x in built.args])
            for norm in norms:
                # No channel is amplified much more than the others, nor is a small difference of large numbers:
                # there, float32 itself would not be exact any more.
                floor = (0.2 * norm.running_var.mean()).maximum(0.25 * norm.running_mean.square())
                norm.running_var.copy_(norm.running_var.maximum(floor))
                spread = norm.running_var.sqrt()
                norm.running_mean.add_(0.1 * spread * torch.randn_like(spread))
                norm.eval()


def noise(built: Example) -> float:
    """How far float32 itself is from the truth on the example: what a model computes in float32 and in float64."""

    def outputs(model: torch.nn.Module, dtype: torch.dtype) -> list[torch.Tensor]:
        def as_dtype(x: Any) -> Any:
            return x.to(dtype) if isinstance(x, torch.Tensor) and x.is_floating_point() else x

        with torch.no_grad():
            result = model(*pytree.tree_map(as_dtype, built.args), **pytree.tree_map(as_dtype, built.kwargs))
        return [x.double() for x in pytree.tree_leaves(result) if isinstance(x, torch.Tensor) and x.is_floating_point()]

    single = outputs(built.model, torch.float32)
    try:
        exact = outputs(copy.deepcopy(built.model).double(), torch.float64)
    except RuntimeError:  # float32 is written into the model somewhere
        return 0.0
    return max((float((a - b).abs().max()) for a, b in zip(single, exact, strict=True)), default=0.0)


def atol(built: Example) -> float:
    """The absolute tolerance for a model: twice the noise of float32, where that is above the usual."""
    return max(1e-5, 2 * noise(built))


def _ids(*shape: int, high: int = 90) -> torch.Tensor:
    return torch.randint(3, high, shape)


def _text(model: torch.nn.Module, **more: Any) -> Example:
    kwargs = {"input_ids": _ids(2, 9), "attention_mask": torch.ones(2, 9, dtype=torch.int64), **more}
    kwargs["attention_mask"][1, 6:] = 0
    dims = {0: "batch", 1: "sequence"}
    return Example(model, (), kwargs, {"input_ids": dims, "attention_mask": dims})


def bert() -> Example:
    from transformers import BertConfig, BertModel

    config = BertConfig(
        vocab_size=99, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=37,
        max_position_embeddings=64,
    )  # fmt: skip
    return _text(BertModel(config))


def gpt2() -> Example:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(vocab_size=99, n_embd=32, n_layer=2, n_head=4, n_positions=64, use_cache=False)
    return _text(GPT2LMHeadModel(config))


def t5() -> Example:
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(
        vocab_size=99, d_model=32, d_kv=8, d_ff=37, num_layers=2, num_heads=4, decoder_start_token_id=0, use_cache=False
    )
    example = _text(T5ForConditionalGeneration(config), decoder_input_ids=_ids(2, 5))
    example.dynamic["decoder_input_ids"] = {0: "batch", 1: "target"}
    return example


def llama() -> Example:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=99, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        intermediate_size=37, max_position_embeddings=64, use_cache=False,
    )  # fmt: skip
    return _text(LlamaForCausalLM(config))


def vit() -> Example:
    from transformers import ViTConfig, ViTModel

    config = ViTConfig(
        image_size=32, patch_size=8, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=37
    )
    return Example(ViTModel(config), (), {"pixel_values": torch.randn(2, 3, 32, 32)}, {"pixel_values": {0: "batch"}})


def clip() -> Example:
    from transformers import CLIPConfig, CLIPModel

    small = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 37}
    config = CLIPConfig(
        text_config={**small, "vocab_size": 99, "max_position_embeddings": 64, "eos_token_id": 2},
        vision_config={**small, "image_size": 32, "patch_size": 8},
        projection_dim=16,
    )
    example = _text(CLIPModel(config), pixel_values=torch.randn(3, 3, 32, 32))
    example.dynamic["pixel_values"] = {0: "images"}
    return example


def whisper() -> Example:
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    config = WhisperConfig(
        vocab_size=99, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=37, decoder_ffn_dim=37,
        num_mel_bins=16, max_source_positions=30, max_target_positions=40,
        pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1, use_cache=False,
    )  # fmt: skip
    kwargs = {"input_features": torch.randn(2, 16, 60), "decoder_input_ids": _ids(2, 5)}
    dynamic = {"input_features": {0: "batch"}, "decoder_input_ids": {0: "batch", 1: "sequence"}}
    return Example(WhisperForConditionalGeneration(config), (), kwargs, dynamic)


def wav2vec2() -> Example:
    from transformers import Wav2Vec2Config, Wav2Vec2Model

    config = Wav2Vec2Config(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=37, conv_dim=(16, 16),
        conv_stride=(5, 2), conv_kernel=(10, 3), num_conv_pos_embeddings=16,
        num_conv_pos_embedding_groups=2, num_feat_extract_layers=2,
    )  # fmt: skip
    dynamic = {"input_values": {0: "batch", 1: "samples"}}
    return Example(Wav2Vec2Model(config), (), {"input_values": torch.randn(2, 400)}, dynamic)


def mamba() -> Example:
    from transformers import MambaConfig, MambaForCausalLM

    config = MambaConfig(vocab_size=99, hidden_size=32, num_hidden_layers=2, state_size=8, use_cache=False)
    return Example(
        MambaForCausalLM(config), (), {"input_ids": _ids(2, 9)}, {"input_ids": {0: "batch", 1: "sequence"}}
    )


TRANSFORMERS: dict[str, Callable[[], Example]] = {
    f.__name__: f for f in (bert, gpt2, t5, llama, vit, clip, whisper, wav2vec2, mamba)
}


def example(name: str) -> Example:
    """An example by name."""
    torchvision_schemas.declare()  # transformers looks at torchvision too
    if name in TRANSFORMERS:
        torch.manual_seed(0)
        built = TRANSFORMERS[name]()
    else:
        built = timm_example(name)
    built.model.eval()
    enliven(built)
    return built
