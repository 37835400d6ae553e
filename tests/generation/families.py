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

MORE_SIZES: dict[str, Any] = {
    "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4,
    "encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "ffn_dim": 48, "dim_ff": 48, "dim_head": 8, "d_kv": 8, "d_ff": 48,
    "num_layers": 2, "num_decoder_layers": 2, "num_heads": 4, "src_vocab_size": VOCABULARY,
    "tgt_vocab_size": VOCABULARY,
    "q_lora_rank": 16, "kv_lora_rank": 8, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 8,
    "qk_head_dim": 16, "index_topk": 16, "index_head_dim": 16, "index_n_heads": 2, "n_routed_experts": 4, "n_group": 1,
    "topk_group": 1, "vocab_size_per_layer_input": VOCABULARY, "hidden_size_per_layer_input": 8, "zero_expert_num": 2,
    "encoder_num_hidden_layers": 2, "decoder_num_hidden_layers": 2, "encoder_num_attention_heads": 4,
    "decoder_num_attention_heads": 4, "max_target_positions": 64, "num_encoder_attention_heads": 4,
    "num_decoder_attention_heads": 4, "expert_capacity": 64, "shape_vocab_size": 31, "pronunciation_vocab_size": 31,
    "decoder_start_token_id": 3, "is_decoder": True, "rotary_dim": 8, "attn_layer_period": 2, "attn_layer_offset": 1,
    "expert_layer_period": 2, "expert_layer_offset": 1, "mamba_n_heads": 8, "mamba_d_head": 8, "d_inner": 48,
    "d_head": 8, "mamba_d_state": 8, "layer_group_size": 2,
}  # fmt: skip
"""Those of rarer configurations, and of encoder-decoders. Sparse attention chooses among more tokens than it keeps."""

HYBRID = {"layer_types": ["linear_attention", "full_attention"]}
ROTATED_BY_AXES = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 1, 1]}
LAYERS = ("full_attention", "sliding_attention")
ROTATED_BY_LAYER = {"rope_parameters": {kind: {"rope_type": "default", "rope_theta": 1e4} for kind in LAYERS}}
MULTIPLE_AXES = {"text_config": {"rope_parameters": ROTATED_BY_AXES}}
INDEXER = {"indexer_n_heads": 2, "indexer_kv_heads": 1, "indexer_head_dim": 8, "indexer_budget": 64,
           "indexer_compress_ratio": 4}  # fmt: skip
OWN_SIZES: dict[str, dict[str, Any]] = {
    "mamba2": {"num_heads": 8, "n_groups": 1},
    "gpt_neo": {"attention_types": [[["global", "local"], 1]]},
    "dots1": {"num_key_value_heads": 4, "n_shared_experts": 1, "n_routed_experts": 4, "num_experts_per_tok": 2},
    "granitemoehybrid": {"layer_types": ["mamba", "attention"]},
    "bamba": {"attn_layer_indices": [1]},
    "falcon_h1": {"mamba_d_ssm": 64},
    "gemma3n_text": {"num_kv_shared_layers": 0, "laurel_rank": 4},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"]},
    "lfm3": {"layer_types": ["conv", "full_attention"]},
    "qwen4_exp_text": {**HYBRID, **INDEXER}, "qwen4_exp": {"text_config": {**HYBRID, **INDEXER}},
    "kimi_linear": {**HYBRID, "linear_head_dim": 8, "linear_num_heads": 4},
    "zamba2": {"layers_block_type": ["mamba", "hybrid"]},
    "reformer": {"axial_pos_embds": False, "attn_layers": ["local", "local"], "attention_head_size": 8},
    "qwen3_next": HYBRID, "qwen3_5_text": HYBRID, "qwen3_5_moe_text": HYBRID,
    "qwen3_5": {"text_config": HYBRID}, "qwen3_5_moe": {"text_config": HYBRID},
    **dict.fromkeys(("qwen2_vl", "qwen2_5_vl", "glm4v", "glm46v", "glmga", "hunyuan_vl", "glm_ocr"), MULTIPLE_AXES),
    "glm4v_moe": {"text_config": {"rope_parameters": ROTATED_BY_AXES | {"partial_rotary_factor": 1.0}}},
    "aria": {"projector_patch_to_query_dict": {"49": 4}, "vision_config": {"patch_size": 70, "image_size": 490}},
    "kimi_k25": {"projection_hidden_size": 32},
    "paddleocr_vl": MULTIPLE_AXES,
    "lfm3_vl": {"text_config": {"layer_types": ["conv", "full_attention"]}},
    **{name: {"text_config": HYBRID} for name in ("minicpm_ocr", "minicpmv4_6", "minicpmv4_7")},
    "qwen2_5_omni_thinker": {"vision_start_token_id": 92, "vision_end_token_id": 93, **MULTIPLE_AXES},
    "inkling_mm_model": {"vision_config": {"text_hidden_size": 32}},
    "gemma4": {"vision_config": {
        "model_type": "gemma4_vision", "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 4, "head_dim": 8, "patch_size": 8, "pooling_kernel_size": 2,
    }},
    "gemma4_unified": {"vision_config": {
        "model_type": "gemma4_unified_vision", "patch_size": 8, "pooling_kernel_size": 1, "mm_embed_dim": 32,
        "mm_posemb_size": 64, "output_proj_dims": 32,
    }},
    "mllama": {
        "vision_config": {"intermediate_layers_indices": [0], "vision_output_dim": 64},
        "text_config": {"cross_attention_layers": [1]},
    },
    "recurrent_gemma": {"block_types": ["recurrent", "attention"]},
    "zaya": {"num_experts_per_tok": 1},
    "xlstm": {"hidden_size": 128},  # a state's sizes are made multiples of 64, those of queries are not
    "xmod": {"default_language": "en_XX"},
    "dbrx": {
        "d_model": 32, "n_heads": 4, "n_layers": 2,
        "attn_config": {"kv_n_heads": 2, "rope_theta": 1e4, "clip_qkv": 8},
        "ffn_config": {"hidden_size": 32, "ffn_hidden_size": 48, "ffn_act_fn": {"name": "silu"}},
    },
    "cohere_compass_text": ROTATED_BY_LAYER,
    "cohere_compass": {"text_config": ROTATED_BY_LAYER},
    "zamba": {"num_hidden_layers": 3, "layers_block_type": ["hybrid", "linear_attention", "hybrid"]},
    "moonshine_streaming": {"num_key_value_heads": 4, "encoder_config": {"num_key_value_heads": 4}},
    "ernie4_5_vl_moe": {"text_config": {
        "moe_intermediate_size": [24, 24], "moe_num_experts": 4, "moe_k": 2, "rope_parameters": ROTATED_BY_AXES,
    }},
    "inkling2": {"vision_config": {"text_hidden_size": 32, "projection_hidden_dim": 32}},
    "granite_docling": {"vision_config": {"image_size": 32, "scale_factor": 2}},
}
"""What fits one family only."""

DERIVED = {"mamba": ("intermediate_size",), **dict.fromkeys(("falcon", "deepseek_v2", "mistral4"), ("head_dim",)),
           **dict.fromkeys(("moshi", "qwen3_vl_moe"), ("sliding_window",))}  # fmt: skip
"""Sizes that a family computes of others, or that its masks do not know: these have a window in their cache alone."""


def tiny_config(family: str, **other: Any) -> Any:
    """A configuration of a family with sizes that are small, those of its parts as well."""
    import transformers

    usual, own = transformers.AutoConfig.for_model(family), OWN_SIZES.get(family, {})
    sizes = _sizes(usual, SIZES | other, {*DERIVED.get(family, ()), *own})
    for name, size in own.items():
        sizes[name] = {**sizes.get(name, {}), **size} if isinstance(size, dict) else size
    return transformers.AutoConfig.for_model(family, **sizes)


def _sizes(config: Any, sizes: dict[str, Any], derived: set[str]) -> dict[str, Any]:
    own = {*config.to_dict(), *getattr(config, "attribute_map", {})} - derived
    chosen = {name: size for name, size in sizes.items() if name in own}
    if "kv_lora_rank" in chosen:  # keys and values of every head are made of one small vector
        chosen["num_key_value_heads"] = chosen["num_attention_heads"]
    for name in getattr(config, "sub_configs", {}):
        part = getattr(config, name, None)
        if part is not None and hasattr(part, "to_dict"):
            chosen[name] = {"model_type": part.model_type, **_sizes(part, sizes, derived)}
    return chosen


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
