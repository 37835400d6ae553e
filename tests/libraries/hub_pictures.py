"""transformers' networks for pictures and video."""

from __future__ import annotations

from typing import Any

import torch

from tests.libraries.case import Case, Sizes

_BATCH = (2, 3, 1)
_ANY: Sizes = {"b": _BATCH, "h": (64, 96, 128), "w": (96, 64, 160)}
_BATCH_ONLY: Sizes = {"b": _BATCH}
_PATCHES_OF_14: Sizes = {"b": _BATCH, "h": (56, 70, 84), "w": (70, 56, 98)}
_BOTH: Sizes = {"b": _BATCH, "t": (3, 2, 4)}

_LAYERS = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
_VIT = {**_LAYERS, "image_size": 64, "patch_size": 16}
_TEXT = {**_LAYERS, "vocab_size": 99, "max_position_embeddings": 20}
_STAGES = {"hidden_sizes": [8, 16, 16, 32], "depths": [1, 1, 1, 1]}
_NECK = {"neck_hidden_sizes": [8, 8, 16, 16], "fusion_hidden_size": 16}
_SWIN = {
    "image_size": 64,
    "patch_size": 4,
    "embed_dim": 16,
    "depths": [2, 1, 2, 1],
    "num_heads": [1, 2, 2, 4],
    "window_size": 4,
}
_FOUR = ["stage1", "stage2", "stage3", "stage4"]
_RESNET = {"embedding_size": 16, "hidden_sizes": [16, 32, 32, 64], "depths": [1, 1, 1, 1]}
_DETR = {
    "encoder_layers": 1,
    "decoder_layers": 2,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 32,
    "decoder_ffn_dim": 32,
    "num_queries": 7,
}
_NO_HUB = {"use_timm_backbone": False, "backbone": None, "use_pretrained_backbone": False}
_RT_DETR = {
    "encoder_hidden_dim": 32,
    "encoder_in_channels": [32, 32, 64],
    "encoder_ffn_dim": 32,
    "d_model": 32,
    "decoder_ffn_dim": 32,
    "num_queries": 10,
    "decoder_layers": 2,
    "decoder_in_channels": [32, 32, 32],
    "decoder_attention_heads": 2,
    "encoder_attention_heads": 2,
    "num_labels": 5,
}
_MASKS = {
    "encoder_feedforward_dim": 32,
    "encoder_layers": 1,
    "decoder_layers": 2,
    "num_attention_heads": 2,
    "dim_feedforward": 32,
    "num_queries": 5,
    "num_labels": 4,
    "hidden_dim": 32,
}


def _pictures(size: int = 64, channels: int = 3) -> Any:
    return lambda b, h=size, w=size: {"pixel_values": torch.randn(b, channels, h, w)}


def _video(b: int) -> Any:
    return {"pixel_values": torch.randn(b, 4, 3, 32, 32)}


def _with_text(b: int, t: int) -> Any:
    return {"input_ids": torch.randint(3, 98, (t, 7)), "pixel_values": torch.randn(b, 3, 64, 64),
            "attention_mask": torch.ones(t, 7, dtype=torch.long)}  # fmt: skip


def _configured(value: Any) -> Any:
    """Configurations inside of one are written as (class, arguments)."""
    import transformers

    if isinstance(value, tuple) and value and isinstance(value[0], str):
        return getattr(transformers, value[0])(**{name: _configured(each) for name, each in value[1].items()})
    return value


def _hub(network: str, config: str, sizes: Sizes = _ANY, example: Any = None, **arguments: Any) -> Case:
    def make() -> Any:
        import transformers

        return getattr(transformers, network)(_configured((config, arguments)))

    return Case(f"transformers/{network}", make, example or _pictures(), sizes)


def _swin(stages: list[str]) -> Any:
    return ("SwinConfig", {**_SWIN, "out_features": stages})


def _resnet(*stages: str) -> Any:
    return ("ResNetConfig", {**_RESNET, "out_features": list(stages)})


_RT_BACKBONE = ("RTDetrResNetConfig", {**_RESNET, "out_features": _FOUR[1:]})
_VIT_LAYERS = {key: value for key, value in _VIT.items() if key != "intermediate_size"}

CASES = [
    _hub("DPTForDepthEstimation", "DPTConfig", _BATCH_ONLY,
         **{**_VIT, **_NECK, "num_hidden_layers": 4}, backbone_out_indices=[0, 1, 2, 3], is_hybrid=False),
    _hub("DepthAnythingForDepthEstimation", "DepthAnythingConfig", _PATCHES_OF_14, _pictures(56),
         backbone_config=("Dinov2Config", {**_VIT_LAYERS, "num_hidden_layers": 4, "image_size": 56, "patch_size": 14,
                          "out_features": _FOUR, "reshape_hidden_states": False, "apply_layernorm": True}),
         reassemble_hidden_size=32, head_hidden_size=8, patch_size=14, **_NECK),
    _hub("GLPNForDepthEstimation", "GLPNConfig", num_attention_heads=[1, 1, 2, 2], decoder_hidden_size=16, **_STAGES),
    _hub("ZoeDepthForDepthEstimation", "ZoeDepthConfig", _BATCH_ONLY,
         backbone_config=("BeitConfig", {**_VIT, "num_hidden_layers": 4, "out_features": _FOUR,
                          "reshape_hidden_states": False, "use_relative_position_bias": True}),
         bottleneck_features=16, num_relative_features=8, bin_embedding_dim=16, num_attractors=[4, 2, 2, 1],
         bin_configurations=[{"n_bins": 8, "min_depth": 0.001, "max_depth": 10.0, "name": "nyu"}],
         backbone_hidden_size=32, **_NECK),
    _hub("MaskFormerForInstanceSegmentation", "MaskFormerConfig", fpn_feature_size=32, mask_feature_size=32,
         backbone_config=_swin(_FOUR), decoder_config=("DetrConfig", {**_DETR, "d_model": 32, "num_labels": 4})),
    _hub("Mask2FormerForUniversalSegmentation", "Mask2FormerConfig", backbone_config=_swin(_FOUR), feature_size=32,
         mask_feature_size=32, **_MASKS),
    _hub("SegformerForSemanticSegmentation", "SegformerConfig", num_attention_heads=[1, 1, 2, 2],
         decoder_hidden_size=16, **_STAGES),
    _hub("UperNetForSemanticSegmentation", "UperNetConfig",
         backbone_config=("ConvNextConfig", {**_STAGES, "out_features": _FOUR}), hidden_size=16, auxiliary_channels=8,
         auxiliary_in_channels=16, num_labels=4),
    _hub("BeitForSemanticSegmentation", "BeitConfig", _BATCH_ONLY, **{**_VIT, "num_hidden_layers": 4},
         out_indices=[0, 1, 2, 3], use_relative_position_bias=True),
    _hub("RTDetrV2ForObjectDetection", "RTDetrV2Config", backbone_config=_RT_BACKBONE, **_RT_DETR),
    _hub("DFineForObjectDetection", "DFineConfig", backbone_config=_RT_BACKBONE, **_RT_DETR),
    _hub("DeformableDetrForObjectDetection", "DeformableDetrConfig", backbone_config=_resnet(*_FOUR[1:]), d_model=32,
         **_DETR, **_NO_HUB),
    _hub("ConditionalDetrForObjectDetection", "ConditionalDetrConfig", backbone_config=_resnet("stage4"), d_model=32,
         **_DETR, **_NO_HUB),
    _hub("DabDetrForObjectDetection", "DabDetrConfig", backbone_config=_resnet("stage4"), hidden_size=32,
         **_DETR, **_NO_HUB),
    _hub("YolosForObjectDetection", "YolosConfig", _BATCH_ONLY, **{**_VIT, "image_size": [64, 64]},
         num_detection_tokens=5, use_mid_position_embeddings=True),
    _hub("SamModel", "SamConfig", {"b": _BATCH, "n": (2, 3, 5)},
         lambda b, n: {"pixel_values": torch.randn(b, 3, 64, 64), "input_points": torch.rand(b, 1, n, 2) * 64},
         vision_config={"hidden_size": 32, "output_channels": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
                        "image_size": 64, "patch_size": 8, "window_size": 3, "global_attn_indexes": [1], "mlp_dim": 64,
                        "num_pos_feats": 8},
         prompt_encoder_config={"hidden_size": 16, "image_size": 64, "patch_size": 8, "mask_input_channels": 4},
         mask_decoder_config={"hidden_size": 16, "mlp_dim": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
                              "iou_head_hidden_dim": 16}),
    _hub("VitPoseForPoseEstimation", "VitPoseConfig", _BATCH_ONLY,
         lambda b: {"pixel_values": torch.randn(b, 3, 64, 48)}, num_labels=5,
         backbone_config=("VitPoseBackboneConfig", {**_LAYERS, "image_size": [64, 48], "patch_size": [16, 16],
                                                    "out_indices": [2]})),
    _hub("VideoMAEForVideoClassification", "VideoMAEConfig", _BATCH_ONLY, _video, **{**_VIT, "image_size": 32},
         num_frames=4, tubelet_size=2),
    _hub("TimesformerForVideoClassification", "TimesformerConfig", _BATCH_ONLY, _video, **{**_VIT, "image_size": 32},
         num_frames=4),
    _hub("VivitForVideoClassification", "VivitConfig", _BATCH_ONLY, _video, **_LAYERS, image_size=32, num_frames=4,
         tubelet_size=[2, 16, 16]),
    _hub("VJEPA2Model", "VJEPA2Config", _BATCH_ONLY, lambda b: {"pixel_values_videos": torch.randn(b, 4, 3, 32, 32)},
         hidden_size=48, num_hidden_layers=2, num_attention_heads=2, crop_size=32, frames_per_clip=4, tubelet_size=2,
         patch_size=16, pred_hidden_size=48, pred_num_attention_heads=2, pred_num_hidden_layers=1,
         pred_num_mask_tokens=2),
    _hub("OwlViTForObjectDetection", "OwlViTConfig", {"b": _BATCH, "t": (2, 3, 1)},
         lambda b, t: _with_text(b, b * t), text_config=_TEXT, vision_config=_VIT, projection_dim=32),
    _hub("CLIPModel", "CLIPConfig", _BOTH, _with_text, text_config=_TEXT, vision_config=_VIT, projection_dim=32),
    _hub("SiglipModel", "SiglipConfig", _BOTH, _with_text, text_config=_TEXT, vision_config=_VIT),
    _hub("CLIPSegForImageSegmentation", "CLIPSegConfig", _BATCH_ONLY,
         lambda b: {"input_ids": torch.randint(3, 98, (b, 7)), "pixel_values": torch.randn(b, 3, 64, 64)},
         text_config=_TEXT, vision_config=_VIT, projection_dim=32, reduce_dim=16, extract_layers=[0, 1],
         decoder_num_attention_heads=2, decoder_intermediate_size=32),
    _hub("Dinov2WithRegistersModel", "Dinov2WithRegistersConfig", _PATCHES_OF_14, _pictures(56),
         **{**_VIT_LAYERS, "image_size": 56, "patch_size": 14}),
    _hub("DINOv3ViTModel", "DINOv3ViTConfig", **_VIT),
    _hub("DINOv3ConvNextModel", "DINOv3ConvNextConfig", **_STAGES),
    _hub("FocalNetForImageClassification", "FocalNetConfig", _BATCH_ONLY, image_size=64, embed_dim=16, depths=[1, 1],
         focal_levels=[2, 2], focal_windows=[3, 3], hidden_sizes=[16, 32]),
    _hub("HieraForImageClassification", "HieraConfig", _BATCH_ONLY, image_size=[64, 64], embed_dim=16,
         depths=[1, 1, 1, 1], num_heads=[1, 1, 2, 2], embed_dim_multiplier=2.0),
    _hub("LevitForImageClassification", "LevitConfig", _BATCH_ONLY, image_size=64, hidden_sizes=[32, 48, 64],
         num_attention_heads=[2, 3, 4], depths=[1, 1, 1], key_dim=[8, 8, 8]),
    _hub("MobileViTForSemanticSegmentation", "MobileViTConfig", hidden_sizes=[16, 24, 32],
         neck_hidden_sizes=[8, 8, 16, 16, 24, 24, 32], image_size=64),
    _hub("MobileNetV2ForSemanticSegmentation", "MobileNetV2Config", depth_multiplier=0.25),
    _hub("PoolFormerForImageClassification", "PoolFormerConfig", **_STAGES),
    _hub("SwiftFormerForImageClassification", "SwiftFormerConfig", embed_dims=[8, 16, 16, 32], depths=[1, 1, 1, 1],
         image_size=64),
    _hub("Swinv2ForImageClassification", "Swinv2Config", **_SWIN),
    _hub("VitMatteForImageMatting", "VitMatteConfig", _ANY, _pictures(channels=4), hidden_size=32,
         convstream_hidden_sizes=[8, 16, 24], fusion_hidden_sizes=[32, 16, 8, 8],
         backbone_config=("VitDetConfig", {**_VIT_LAYERS, "mlp_ratio": 2, "pretrain_image_size": 64, "num_channels": 4,
                          "out_features": ["stage2"], "window_size": 2, "window_block_indices": [0]})),
    _hub("SegGptForImageSegmentation", "SegGptConfig", _BATCH_ONLY,
         lambda b: {name: torch.randn(b, 3, 32, 32) for name in ("pixel_values", "prompt_pixel_values",
                                                                 "prompt_masks")},
         hidden_size=32, num_hidden_layers=2, num_attention_heads=2, image_size=[64, 32], patch_size=8,
         pretrain_image_size=64, decoder_hidden_size=16, intermediate_hidden_state_indices=[0, 1], merge_index=0,
         mlp_dim=64),
    _hub("ViltModel", "ViltConfig", {"b": _BATCH, "n": (6, 9, 4)},
         lambda b, n: {"input_ids": torch.randint(0, 98, (b, n)), "attention_mask": torch.ones(b, n, dtype=torch.long),
                       "token_type_ids": torch.zeros(b, n, dtype=torch.long),
                       "pixel_values": torch.randn(b, 3, 64, 64),
                       "pixel_mask": torch.ones(b, 64, 64, dtype=torch.long)},
         **{**_VIT, "vocab_size": 99, "max_position_embeddings": 32}),
    _hub("MgpstrForSceneTextRecognition", "MgpstrConfig", _BATCH_ONLY,
         lambda b: {"pixel_values": torch.randn(b, 3, 16, 64)}, image_size=[16, 64], patch_size=4, hidden_size=32,
         num_hidden_layers=2, num_attention_heads=2, max_token_length=5, num_character_labels=12, num_bpe_labels=13,
         num_wordpiece_labels=14, mlp_ratio=2.0),
    _hub("GroundingDinoForObjectDetection", "GroundingDinoConfig", _BATCH_ONLY,
         lambda b: {"pixel_values": torch.randn(b, 3, 64, 96),
                    "input_ids": torch.tensor([[1, 20, 21, 4, 22, 2]]).repeat(b, 1),
                    "token_type_ids": torch.zeros(b, 6, dtype=torch.long),
                    "attention_mask": torch.ones(b, 6, dtype=torch.long)},
         backbone_config=_swin(_FOUR[1:]), d_model=32, num_feature_levels=3, encoder_n_points=2, decoder_n_points=2,
         text_config={"model_type": "bert", **_TEXT, "max_position_embeddings": 32}, max_text_len=16,
         **{**_DETR, "num_queries": 5}, **_NO_HUB),
]  # fmt: skip
