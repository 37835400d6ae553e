"""Pictures in, classes, masks or pictures out."""

from __future__ import annotations

import importlib
from typing import Any

import torch

from tests.libraries.case import Case

_BATCH = (2, 3, 1)
_ANY = {"b": _BATCH, "h": (64, 96, 128), "w": (96, 64, 160)}
_BATCH_ONLY = {"b": _BATCH}


def _new(path: str, *args: Any, **config: Any) -> Any:
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)(*args, **config)


def _picture(size: int = 64, channels: int = 3) -> Any:
    return lambda b, h=size, w=size: (torch.randn(b, channels, h, w),)


def _torchvision(name: str, sizes: Any = _ANY, example: Any = None, **config: Any) -> Case:
    def make() -> Any:
        options = (
            {"weights": None, "weights_backbone": None}
            if name.partition(".")[0] == "segmentation"
            else {"weights": None}
        )
        return _new(f"torchvision.models.{name}", **options, **config)

    return Case(f"torchvision/{name.rpartition('.')[2]}", make, example or _picture(), sizes)


def _smp(name: str, encoder: str = "resnet18", sizes: Any = _ANY, **config: Any) -> Case:
    make = lambda: _new(f"segmentation_models_pytorch.{name}", encoder, encoder_weights=None, classes=3, **config)  # noqa: E731
    return Case(f"segmentation-models-pytorch/{name} {encoder}", make, _picture(), sizes)


def _timm(name: str, sizes: Any, size: int = 64, **config: Any) -> Case:
    return Case(
        f"timm/{name}", lambda: _new("timm.create_model", name, pretrained=False, **config), _picture(size), sizes
    )


def _vit_pytorch(path: str, sizes: Any = _BATCH_ONLY, size: int = 64, **config: Any) -> Case:
    return Case(f"vit-pytorch/{path}", lambda: _new(f"vit_pytorch.{path}", **config), _picture(size), sizes)


class _OpenClip(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        import open_clip

        self.model = open_clip.CLIP(
            32,
            {"layers": 2, "width": 32, "head_width": 16, "patch_size": 8, "image_size": 32},
            {"context_length": 16, "vocab_size": 99, "width": 32, "heads": 2, "layers": 2},
        )

    def forward(self, image: torch.Tensor, text: torch.Tensor) -> Any:
        return self.model(image, text)


class _Sam(torch.nn.Module):
    """The mask decoder, as it is published for ONNX, and the picture's encoder."""

    def __init__(self) -> None:
        super().__init__()
        from segment_anything.modeling import ImageEncoderViT

        self.encoder = ImageEncoderViT(
            img_size=64,
            patch_size=8,
            embed_dim=32,
            depth=2,
            num_heads=2,
            out_chans=16,
            use_rel_pos=True,
            window_size=5,
            global_attn_indexes=(1,),
        )

    def forward(self, image: torch.Tensor) -> Any:
        return self.encoder(image)


def _sam_decoder() -> Any:
    from segment_anything.modeling import MaskDecoder, PromptEncoder, TwoWayTransformer

    class Decoder(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.prompts = PromptEncoder(32, (8, 8), (64, 64), 16)
            self.decoder = MaskDecoder(transformer_dim=32, transformer=TwoWayTransformer(2, 32, 2, 64))

        def forward(self, features: torch.Tensor, points: torch.Tensor, labels: torch.Tensor) -> Any:
            sparse, dense = self.prompts(points=(points, labels), boxes=None, masks=None)
            return self.decoder(features, self.prompts.get_dense_pe(), sparse, dense, True)

    return Decoder()


CASES = [
    _torchvision("resnet18"),
    _torchvision("mobilenet_v3_small"),
    _torchvision("googlenet", {"b": _BATCH, "h": (96, 128, 64), "w": (96, 64, 160)}, init_weights=False),
    _torchvision("swin_v2_t", {"b": _BATCH, "h": (64, 96, 72), "w": (96, 64, 104)}),
    _torchvision("vit_b_16", _BATCH_ONLY, image_size=64),
    _torchvision("maxvit_t", _BATCH_ONLY, _picture(224)),
    _torchvision("segmentation.deeplabv3_mobilenet_v3_large"),
    _torchvision("segmentation.fcn_resnet50"),
    _torchvision("segmentation.lraspp_mobilenet_v3_large"),
    _torchvision(
        "optical_flow.raft_small",
        {"b": _BATCH, "h": (128, 136, 160), "w": (136, 128, 144)},
        lambda b, h, w: (torch.randn(b, 3, h, w), torch.randn(b, 3, h, w)),
    ),
    Case("torchvision/MViT", lambda: _mvit(), lambda b: (torch.randn(b, 3, 4, 64, 64),), _BATCH_ONLY),
    _torchvision("video.r3d_18", _ANY, lambda b, h, w: (torch.randn(b, 3, 8, h, w),)),
    _torchvision(
        "video.swin3d_t",
        {"b": _BATCH, "h": (64, 96, 72), "w": (96, 64, 104)},
        lambda b, h, w: (torch.randn(b, 3, 8, h, w),),
    ),
    _smp("Unet"),
    _smp("UnetPlusPlus"),
    _smp("FPN"),
    _smp("PSPNet"),
    _smp("Linknet"),
    _smp("MAnet"),
    _smp("PAN", sizes={"b": _BATCH, "h": (128, 160, 192), "w": (160, 128, 256)}),
    _smp("DeepLabV3Plus"),
    _smp("Segformer", "mit_b0"),
    _smp("UPerNet", "tu-convnext_atto"),
    _smp("DPT", "tu-vit_tiny_patch16_224", _BATCH_ONLY, dynamic_img_size=True),
    _timm("convnext_atto", _ANY),
    _timm("efficientvit_b0", _ANY),
    _timm("vit_tiny_patch16_224", _ANY, dynamic_img_size=True),
    _timm("swin_tiny_patch4_window7_224", _BATCH_ONLY, 224),
    _timm("mobilevitv2_050", _ANY),
    _timm("maxvit_rmlp_pico_rw_256", _BATCH_ONLY, 256),
    _timm("xcit_nano_12_p16_224", _ANY),
    _timm("volo_d1_224", _BATCH_ONLY, 224),
    _timm("coat_lite_tiny", _BATCH_ONLY, 224),
    _timm("twins_svt_small", _ANY),
    _timm("eva02_tiny_patch14_224", _BATCH_ONLY, 224),
    _timm("naflexvit_base_patch16_gap", _ANY, embed_dim=96, depth=2, num_heads=3),
    _timm("fastvit_t8", _ANY),
    _timm("repvit_m0_9", _ANY),
    _timm("pvt_v2_b0", _ANY),
    _timm("nest_tiny", _BATCH_ONLY, 224),
    _vit_pytorch("ViT", image_size=64, patch_size=16, num_classes=9, dim=32, depth=2, heads=2, mlp_dim=64),
    _vit_pytorch(
        "simple_vit.SimpleViT", image_size=64, patch_size=16, num_classes=9, dim=32, depth=2, heads=2, mlp_dim=64
    ),
    _vit_pytorch(
        "cct.CCT",
        img_size=64,
        embedding_dim=32,
        n_conv_layers=2,
        num_layers=2,
        num_heads=2,
        mlp_ratio=2.0,
        num_classes=9,
        positional_embedding="learnable",
    ),
    _vit_pytorch(
        "t2t.T2TViT", image_size=64, dim=32, depth=2, heads=2, mlp_dim=64, num_classes=9, t2t_layers=((7, 4), (3, 2))
    ),
    _vit_pytorch(
        "max_vit.MaxViT",
        size=64,
        num_classes=9,
        dim=16,
        dim_conv_stem=16,
        dim_head=8,
        depth=(1, 1),
        window_size=4,
        mbconv_expansion_rate=2,
        dropout=0.0,
    ),
    _vit_pytorch(
        "cross_vit.CrossViT",
        image_size=64,
        num_classes=9,
        depth=1,
        sm_dim=32,
        lg_dim=32,
        sm_patch_size=8,
        sm_enc_depth=1,
        sm_enc_heads=2,
        sm_enc_mlp_dim=32,
        lg_patch_size=16,
        lg_enc_depth=1,
        lg_enc_heads=2,
        lg_enc_mlp_dim=32,
        cross_attn_depth=1,
        cross_attn_heads=2,
    ),
    _vit_pytorch(
        "cait.CaiT", image_size=64, patch_size=16, num_classes=9, dim=32, depth=2, cls_depth=1, heads=2, mlp_dim=64
    ),
    _vit_pytorch(
        "regionvit.RegionViT", num_classes=9, dim=(16, 16, 32, 32), depth=(1, 1, 1, 1), window_size=2, size=64
    ),
    _vit_pytorch(
        "mobile_vit.MobileViT",
        image_size=(64, 64),
        dims=[32, 32, 32],
        channels=[16, 16, 24, 24, 32, 32, 48, 48, 56, 56, 64],
        num_classes=9,
    ),
    Case(
        "open_clip/CLIP",
        _OpenClip,
        lambda b, t: (torch.randn(b, 3, 32, 32), torch.randint(1, 98, (t, 16))),
        {"b": _BATCH, "t": (3, 2, 4)},
    ),
    Case("segment_anything/ImageEncoderViT", _Sam, _picture(), _BATCH_ONLY),
    Case(
        "segment_anything/MaskDecoder",
        _sam_decoder,
        lambda n: (torch.randn(1, 32, 8, 8), torch.rand(1, n, 2) * 64, torch.randint(0, 2, (1, n)).float()),
        {"n": (3, 2, 5)},
    ),
    Case(
        "kornia/HardNet",
        lambda: _new("kornia.feature.HardNet", False),
        lambda b: (torch.rand(b, 1, 32, 32),),
        _BATCH_ONLY,
    ),
    Case(
        "kornia/HyNet", lambda: _new("kornia.feature.HyNet", False), lambda b: (torch.rand(b, 1, 32, 32),), _BATCH_ONLY
    ),
    Case(
        "kornia/SOLD2 backbone",
        lambda: _new("kornia.feature.DenseSIFTDescriptor"),
        lambda b, h, w: (torch.rand(b, 1, h, w),),
        {"b": _BATCH, "h": (32, 48, 40), "w": (40, 32, 56)},
    ),
    Case("kornia/GaussianBlur2d", lambda: _new("kornia.filters.GaussianBlur2d", (5, 5), (1.5, 1.5)), _picture(), _ANY),
    Case("kornia/ScalePyramid", lambda: _new("kornia.geometry.transform.PyrDown"), _picture(), _ANY),
    Case("kornia/RgbToLab", lambda: _new("kornia.color.RgbToLab"), lambda b, h, w: (torch.rand(b, 3, h, w),), _ANY),
    Case("kornia/Canny", lambda: _new("kornia.filters.Canny"), lambda b, h, w: (torch.rand(b, 3, h, w),), _ANY),
    Case(
        "kornia/TinyViT",
        lambda: _new(
            "kornia.contrib.TinyViT",
            img_size=64,
            embed_dims=[16, 32, 32, 32],
            num_heads=[1, 2, 2, 2],
            depths=[1, 1, 1, 1],
            window_sizes=[4, 4, 4, 2],
        ),
        _picture(),
        _BATCH_ONLY,
    ),
    Case(
        "kornia/DISK",
        lambda: _new("kornia.feature.disk._unets.Unet", in_features=3, size=3, down=[8, 16, 16], up=[16, 9]),
        _picture(),
        _ANY,
    ),
    Case(
        "facenet-pytorch/InceptionResnetV1",
        lambda: _new("facenet_pytorch.InceptionResnetV1", pretrained=None),
        _picture(96),
        {"b": _BATCH, "h": (96, 128, 160), "w": (96, 112, 128)},
    ),
    Case("facenet-pytorch/PNet", lambda: _new("facenet_pytorch.models.mtcnn.PNet", pretrained=False), _picture(), _ANY),
    Case(
        "super-image/EdsrModel",
        lambda: _new("super_image.EdsrModel", _new("super_image.EdsrConfig", scale=2, n_resblocks=2, n_feats=16)),
        lambda b, h, w: (torch.rand(b, 3, h, w),),
        _ANY,
    ),
    Case(
        "super-image/PanModel",
        lambda: _new("super_image.PanModel", _new("super_image.PanConfig", scale=2, nf=8, unf=8, nb=2)),
        lambda b, h, w: (torch.rand(b, 3, h, w),),
        {"b": _BATCH, "h": (32, 48, 40), "w": (40, 24, 56)},
    ),
    Case(
        "lightly/BarlowTwinsProjectionHead",
        lambda: _new("lightly.models.modules.BarlowTwinsProjectionHead", 32, 64, 16),
        lambda b: (torch.randn(b, 32),),
        {"b": (4, 3, 2)},
    ),
    Case(
        "lightly/MaskedVisionTransformerTIMM",
        lambda: _new(
            "lightly.models.modules.MaskedVisionTransformerTIMM",
            _new("timm.create_model", "vit_tiny_patch16_224", img_size=64),
        ),
        _picture(),
        _BATCH_ONLY,
    ),
    Case("efficientnet_pytorch/EfficientNet", lambda: _efficientnet(), _picture(), _ANY),
    Case(
        "spandrel/SwinIR",
        lambda: _new(
            "spandrel.architectures.SwinIR.SwinIR",
            img_size=16,
            window_size=4,
            depths=[2],
            embed_dim=12,
            num_heads=[2],
            upscale=2,
            upsampler="pixelshuffledirect",
        ),
        lambda b, h, w: (torch.rand(b, 3, h, w),),
        {"b": _BATCH, "h": (16, 24, 20), "w": (24, 16, 12)},
    ),
    Case(
        "spandrel/RRDBNet",
        lambda: _new("spandrel.architectures.ESRGAN.ESRGAN", num_filters=16, num_blocks=2, scale=2),
        lambda b, h, w: (torch.rand(b, 3, h, w),),
        _ANY,
    ),
    Case(
        "spandrel/DAT",
        lambda: _new(
            "spandrel.architectures.DAT.DAT",
            img_size=16,
            split_size=[2, 4],
            depth=[2],
            embed_dim=32,
            num_heads=[2],
            upscale=2,
            expansion_factor=2.0,
            resi_connection="1conv",
        ),
        lambda b, h, w: (torch.rand(b, 3, h, w),),
        {"b": _BATCH, "h": (16, 24, 32), "w": (24, 16, 20)},
    ),
    Case(
        "spandrel/NAFNet",
        lambda: _new(
            "spandrel.architectures.NAFNet.NAFNet",
            width=8,
            middle_blk_num=1,
            enc_blk_nums=[1, 1],
            dec_blk_nums=[1, 1],
        ),
        lambda b, h, w: (torch.rand(b, 3, h, w),),
        {"b": _BATCH, "h": (64, 97, 128), "w": (96, 62, 160)},
    ),
]


def _efficientnet() -> Any:
    import efficientnet_pytorch

    return efficientnet_pytorch.EfficientNet.from_name("efficientnet-b0")


def _mvit() -> Any:
    from torchvision.models.video.mvit import MSBlockConfig, MViT

    blocks = [
        MSBlockConfig(1, 16, 32, (3, 3, 3), (3, 3, 3), (1, 1, 1), (1, 4, 4)),
        MSBlockConfig(2, 32, 32, (3, 3, 3), (3, 3, 3), (1, 2, 2), (1, 2, 2)),
    ]
    return MViT(
        (64, 64),
        4,
        blocks,
        residual_pool=True,
        residual_with_cls_embed=True,
        rel_pos_embed=True,
        proj_after_attn=True,
        num_classes=5,
    )
