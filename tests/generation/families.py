"""Tiny language models of any family that transformers has, with random weights under which every layer matters."""

from __future__ import annotations

from typing import Any

import torch

from tests.models import torchvision_schemas

torchvision_schemas.declare()  # transformers imports torchvision, where it is installed

FAMILIES = """
llama qwen2 qwen3 gemma2 gemma3_text phi3 gpt2 gpt_neox mistral mixtral qwen3_moe bloom falcon mamba
""".split()

VOCABULARY = 97
SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 64,
    "sliding_window": 16, "n_embd": 32,
    "n_layer": 2, "n_head": 4, "n_positions": 64, "num_experts": 4, "num_local_experts": 4, "num_experts_per_tok": 2,
    "moe_intermediate_size": 24, "state_size": 8, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
"""What configurations call their sizes; each takes those that it has. The window is shorter than what is generated."""

DERIVED = {"mamba": ("intermediate_size",), "falcon": ("head_dim",)}
"""Sizes that a family computes of others."""


def tiny_config(family: str) -> Any:
    import transformers

    usual = transformers.AutoConfig.for_model(family)
    own = {*usual.to_dict(), *getattr(usual, "attribute_map", {})} - set(DERIVED.get(family, ()))
    return transformers.AutoConfig.for_model(family, **{name: size for name, size in SIZES.items() if name in own})


def tiny_model(family: str) -> Any:
    import transformers

    torch.manual_seed(0)
    return varied(transformers.AutoModelForCausalLM.from_config(tiny_config(family)))


def varied(model: Any) -> Any:
    """A model whose greedy tokens vary: freshly made ones repeat one of them."""
    model.eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                torch.nn.init.normal_(parameter, std=0.2)
    return model


def prompts(batch: int, length: int, seed: int = 0) -> torch.Tensor:
    """Token ids that are none of the special ones."""
    return torch.randint(3, VOCABULARY, (batch, length), generator=torch.Generator().manual_seed(seed))
