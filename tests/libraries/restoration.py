"""Pictures once more: restoration and larger pictures, texts, poses, streets, volumes, sounds, rotations."""

from __future__ import annotations

from typing import Any

import torch

from tests.libraries.case import Case, Sizes
from tests.libraries.more_pictures import _ANY, _BATCH, _case, _grey, _one
from tests.libraries.pictures import _new

_ONLY_BATCH: Sizes = {"b": _BATCH}
_SMALL: Sizes = {"b": _BATCH, "h": (16, 24, 32), "w": (24, 16, 20)}
_MIDDLE: Sizes = {"b": _BATCH, "h": (32, 48, 64), "w": (48, 32, 40)}
_EVEN: Sizes = {"b": _BATCH, "h": (32, 48, 64), "w": (48, 32, 64)}
_STREET: Sizes = {"b": _BATCH, "h": (128, 192, 256), "w": (192, 128, 128)}
_TEXT: Sizes = {"b": _BATCH, "w": (128, 96, 160)}
_SET: Sizes = {"b": _BATCH, "n": (20, 13, 32)}
_SOUND: Sizes = {"b": _BATCH, "n": (4000, 5000, 8192)}


def _wide(b: int, h: int, w: int) -> Any:
    return (torch.randn(b, 16, h, w),)


def _set(b: int, n: int) -> Any:
    return (torch.randn(b, n, 32),)


def _spandrel(path: str, sizes: Sizes, **config: Any) -> Case:
    """Of an architecture's own module, with its smallest configuration."""
    return _case(f"spandrel/{path.rpartition('.')[2]}", f"spandrel.architectures.{path}", _one, sizes, **config)


def _doctr(name: str, kind: str, example: Any, sizes: Sizes) -> Case:
    return _case(f"doctr/{name}", f"doctr.models.{kind}.{name}", example, sizes, pretrained=False,
                 pretrained_backbone=False, exportable=True)  # fmt: skip


def _pytorchcv(name: str, sizes: Sizes, **config: Any) -> Case:
    def example(b: int, h: int = 224, w: int = 224) -> Any:
        return (torch.rand(b, 3, h, w),)

    def make() -> Any:
        return _new("pytorchcv.model_provider.get_model", name, pretrained=False, **config)

    return Case(f"pytorchcv/{name}", make, example, sizes)


class _Rotations(torch.nn.Module):
    """Of quaternions and of matrices that are nearly rotations."""

    def forward(self, quaternions: torch.Tensor, matrices: torch.Tensor) -> Any:
        import roma

        rotations = roma.unitquat_to_rotmat(quaternions / quaternions.norm(dim=-1, keepdim=True))
        return rotations, roma.special_procrustes(matrices), roma.rotmat_to_rotvec(rotations)


class _Cosines(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> Any:
        import torch_dct

        return torch_dct.dct(x), torch_dct.idct(x, norm="ortho")


CASES = [
    _spandrel("CRAFT.__arch.CRAFT.CRAFT", _SMALL, window_size=16, embed_dim=24, depths=[2], num_heads=[2], upscale=2),
    _spandrel("DITN.__arch.DITN_Real.DITN_Real", _SMALL, dim=16, ITL_blocks=1, SAL_blocks=1, upscale=2),
    _spandrel("FDAT.__arch.fdat.FDAT", _SMALL, embed_dim=16, num_groups=1, depth_per_group=2, num_heads=2, scale=2,
              mid_dim=16),
    _spandrel("HAT.__arch.HAT.HAT", _SMALL, img_size=16, embed_dim=16, depths=(2,), num_heads=(2,), window_size=8,
              upscale=2, squeeze_factor=4),
    _spandrel("GRL.__arch.grl.GRL", _SMALL, img_size=32, embed_dim=16, depths=[2], num_heads_window=[2],
              num_heads_stripe=[2], window_size=8, stripe_size=[8, 8], upscale=2, upsampler="pixelshuffledirect"),
    _spandrel("HVICIDNet.__arch.cidnet.CIDNet", _MIDDLE, channels=[8, 8, 16, 16], heads=[1, 2, 2, 4]),
    _spandrel("KBNet.__arch.kbnet_s.KBNet_s", _MIDDLE, width=8, middle_blk_num=1, enc_blk_nums=[1, 1],
              dec_blk_nums=[1, 1]),
    _spandrel("MixDehazeNet.__arch.MixDehazeNet.MixDehazeNet", _ANY, embed_dims=[8, 16, 24, 16, 8],
              depths=[1, 1, 1, 1, 1]),
    _spandrel("OmniSR.__arch.OmniSR.OmniSR", _SMALL, num_feat=16, up_scale=2),
    _spandrel("RetinexFormer.__arch.retinexformer_arch.RetinexFormer", _MIDDLE, n_feat=8, stage=1,
              num_blocks=[1, 1, 1]),
    _spandrel("SAFMN.__arch.safmn.SAFMN", _MIDDLE, dim=16, n_blocks=2, upscaling_factor=2),
    _spandrel("SPAN.__arch.span.SPAN", _SMALL, num_in_ch=3, num_out_ch=3, feature_channels=16, upscale=2),
    _spandrel("RGT.__arch.rgt.RGT", _SMALL, img_size=16, embed_dim=16, depth=[2], num_heads=[2], upscale=2),
    _spandrel("FFTformer.__arch.fftformer_arch.FFTformer", {"b": _BATCH, "h": (32, 64, 96), "w": (64, 32, 64)}, dim=8,
              num_blocks=[1, 1, 1], num_refinement_blocks=1),
    _spandrel("RealCUGAN.__arch.upcunet_v3.UpCunet2x", _MIDDLE),
    _spandrel("MoSR.__arch.mosr_arch.MoSR", _SMALL, n_block=2, dim=16, upscale=2),
    _spandrel("PLKSR.__arch.PLKSR.PLKSR", _SMALL, n_blocks=2, dim=16, upscaling_factor=2),
    _case("dinov2/DinoVisionTransformer", "dinov2.models.vision_transformer.DinoVisionTransformer", _one,
          {"b": _BATCH, "h": (56, 70, 84), "w": (70, 56, 98)}, img_size=56, patch_size=14, embed_dim=32, depth=2,
          num_heads=2, init_values=1.0),
    _doctr("linknet_resnet18", "detection", _one, _STREET), _doctr("fast_tiny", "detection", _one, _STREET),
    _doctr("crnn_mobilenet_v3_small", "recognition", lambda b, w: (torch.rand(b, 3, 32, w),), _TEXT),
    _doctr("vitstr_small", "recognition", lambda b: (torch.rand(b, 3, 32, 128),), _ONLY_BATCH),
    _doctr("viptr_tiny", "recognition", lambda b: (torch.rand(b, 3, 32, 128),), _ONLY_BATCH),
    _case("timesformer-pytorch/TimeSformer", "timesformer_pytorch.TimeSformer",
          lambda b, t: (torch.randn(b, t, 3, 32, 32),), {"b": _BATCH, "t": (4, 3, 2)}, dim=32, image_size=32,
          patch_size=8, num_frames=4, num_classes=5, depth=1, heads=2, dim_head=16),
    _case("siren-pytorch/SirenNet", "siren_pytorch.SirenNet", lambda n: (torch.rand(n, 2),), {"n": (20, 13, 32)},
          dim_in=2, dim_hidden=32, dim_out=3, num_layers=3),
    _case("x-unet/XUnet", "x_unet.XUnet", _one, _EVEN, dim=16, channels=3, dim_mults=(1, 2),
          nested_unet_depths=(3, 2), num_blocks_per_stage=(1, 1), num_self_attn_per_stage=(0, 1),
          consolidate_upsample_fmaps=True),
    _case("uformer-pytorch/Uformer", "uformer_pytorch.Uformer", _one,
          {"b": _BATCH, "h": (32, 64, 96), "w": (64, 32, 64)}, dim=16, stages=2, num_blocks=1, window_size=8,
          dim_head=8, heads=2, ff_mult=2),
    _case("halonet-pytorch/HaloAttention", "halonet_pytorch.HaloAttention", _wide,
          {"b": _BATCH, "h": (16, 24, 32), "w": (24, 16, 8)}, dim=16, block_size=8, halo_size=4, dim_head=8, heads=2),
    _case("axial-attention/AxialImageTransformer", "axial_attention.AxialImageTransformer", _wide, _SMALL, dim=16,
          depth=2, reversible=False, axial_pos_emb_shape=None),
    _case("lambda-networks/LambdaLayer", "lambda_networks.LambdaLayer", _wide, _SMALL, dim=16, dim_out=16, r=7,
          dim_k=8, heads=2, dim_u=2),
    _case("isab-pytorch/ISAB", "isab_pytorch.ISAB", _set, _SET, dim=32, heads=2, num_latents=6),
    _case("monai-generative/PatchDiscriminator", "generative.networks.nets.PatchDiscriminator", _grey, _ANY,
          spatial_dims=2, num_channels=8, in_channels=1, num_layers_d=2),
    _case("monai-generative/DiffusionModelUNet", "generative.networks.nets.DiffusionModelUNet",
          lambda b, h, w: (torch.randn(b, 1, h, w), torch.randint(0, 99, (b,))), _EVEN, spatial_dims=2, in_channels=1,
          out_channels=1, num_channels=(8, 16), num_res_blocks=1, attention_levels=(False, True), norm_num_groups=4,
          num_head_channels=8),
    _case("torchseg/UnetPlusPlus", "torchseg.UnetPlusPlus", _one, _ANY, "resnet18", encoder_weights=None,
          encoder_depth=3, decoder_channels=(32, 16, 8), classes=2),
    _pytorchcv("shufflenetv2_wd2", _ONLY_BATCH), _pytorchcv("igcv3_wd4", _ONLY_BATCH),
    _pytorchcv("fdmobilenet_wd4", _ONLY_BATCH), _pytorchcv("seresnet10", _ONLY_BATCH),
    *(_pytorchcv(name, _STREET, in_size=(128, 192), fixed_size=False)
      for name in ("lednet_cityscapes", "cgnet_cityscapes", "dabnet_cityscapes", "fastscnn_cityscapes")),
    _pytorchcv("lwopenpose2d_mobilenet_cmupan_coco", _STREET),
    _case("timm_3d/resnet18", "timm_3d.create_model", lambda b, d, h: (torch.randn(b, 3, d, h, 32),),
          {"b": _BATCH, "d": (32, 48, 64), "h": (48, 32, 32)}, "resnet18", pretrained=False, num_classes=3),
    _case("segmentation_models_pytorch_3d/Unet", "segmentation_models_pytorch_3d.Unet",
          lambda b, d: (torch.randn(b, 3, d, 32, 32),), {"b": _BATCH, "d": (32, 64, 96)}, encoder_name="resnet18",
          encoder_weights=None, decoder_channels=(16, 8, 8, 8, 8)),
    Case("torch_dct/dct", _Cosines, lambda b, n: (torch.randn(b, n),), {"b": _BATCH, "n": (16, 24, 32)}),
    _case("auraloss/MultiResolutionSTFTLoss", "auraloss.freq.MultiResolutionSTFTLoss",
          lambda b, n: (torch.randn(b, 1, n), torch.randn(b, 1, n)), _SOUND, fft_sizes=[256, 512],
          hop_sizes=[64, 128], win_lengths=[256, 512]),
    Case("roma/rotations", _Rotations, lambda b: (torch.randn(b, 4), torch.randn(b, 3, 3)), _ONLY_BATCH),
]  # fmt: skip
