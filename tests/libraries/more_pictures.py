"""Pictures again, by smaller libraries: measures, compression, texts, faces, medicine, the earth, optical flow."""

from __future__ import annotations

from typing import Any

import torch

from tests.libraries.case import Case, Sizes
from tests.libraries.pictures import _new

_BATCH = (2, 3, 1)
_ANY: Sizes = {"b": _BATCH, "h": (64, 96, 128), "w": (96, 64, 160)}
_LARGE: Sizes = {"b": _BATCH, "h": (192, 200, 256), "w": (200, 192, 180)}
_UNEVEN: Sizes = {"b": _BATCH, "h": (64, 50, 33), "w": (48, 64, 37)}
_EVEN: Sizes = {"b": _BATCH, "h": (64, 48, 32), "w": (48, 64, 40)}
_CUBE: Sizes = {"b": _BATCH, "d": (16, 24, 32), "h": (16, 32, 24)}
_LINE: Sizes = {"b": _BATCH, "w": (100, 64, 148)}
_FLOW: Sizes = {"b": _BATCH, "h": (128, 192, 256), "w": (192, 128, 128)}


def _one(b: int, h: int, w: int) -> Any:
    return (torch.rand(b, 3, h, w),)


def _grey(b: int, h: int, w: int) -> Any:
    return (torch.randn(b, 1, h, w),)


def _two(b: int, h: int, w: int) -> Any:
    return (torch.rand(b, 3, h, w), torch.rand(b, 3, h, w))


def _before_and_after(b: int, h: int, w: int) -> Any:
    return (torch.randn(b, 2, 3, h, w),)


def _cube(b: int, d: int, h: int) -> Any:
    return (torch.randn(b, 1, d, h, 16),)


def _line(b: int, w: int) -> Any:
    return (torch.randn(b, 1, 32, w),)


def _case(name: str, path: str, example: Any, sizes: Sizes, *args: Any, **config: Any) -> Case:
    return Case(name, lambda: _new(path, *args, **config), example, sizes)


class _Reader(torch.nn.Module):
    """easyocr's readers take a text that they do not look at."""

    def __init__(self, net: torch.nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: torch.Tensor) -> Any:
        return self.net(x, torch.zeros(1, 1, dtype=torch.long))


class _Flow(torch.nn.Module):
    """The flow alone of what ptlflow's networks return."""

    def __init__(self, name: str) -> None:
        super().__init__()
        import ptlflow

        self.net = ptlflow.get_model(name)

    def forward(self, inputs: Any) -> Any:
        return self.net(inputs)["flows"]


def _easyocr(name: str, path: str) -> Case:
    return Case(name, lambda: _Reader(_new(path, 1, 32, 16, 20)), _line, _LINE)


def _ptlflow(name: str) -> Case:
    return Case(f"ptlflow/{name}", lambda: _Flow(name), lambda b, h, w: ({"images": torch.rand(b, 2, 3, h, w)},), _FLOW)


_STAGES = (1, 3, (4, 8, 16))
_PLAIN = "dynamic_network_architectures.architectures.unet.PlainConvUNet"
_RESIDUAL = "dynamic_network_architectures.architectures.unet.ResidualEncoderUNet"


CASES = [
    _case("compressai/FactorizedPrior", "compressai.models.FactorizedPrior", _one, _ANY, 8, 12),
    _case("pytorch_wavelets/DWTForward", "pytorch_wavelets.DWTForward", _one, _UNEVEN, J=2, wave="db3",
          mode="symmetric"),
    _case("pytorch_wavelets/DTCWTForward", "pytorch_wavelets.DTCWTForward", _one, _EVEN, J=2),
    _case("pytorch_wavelets/ScatLayer", "pytorch_wavelets.ScatLayer", _one, _EVEN),
    _case("pyiqa/SSIM", "pyiqa.archs.ssim_arch.SSIM", _two, _ANY, test_y_channel=True, color_space="yiq"),
    _case("pyiqa/GMSD", "pyiqa.archs.gmsd_arch.GMSD", _two, _ANY),
    _case("pyiqa/NLPD", "pyiqa.archs.nlpd_arch.NLPD", _two, _ANY),
    _case("pyiqa/VIF", "pyiqa.archs.vif_arch.VIF", _two, _ANY),
    _case("pyiqa/VSI", "pyiqa.archs.vsi_arch.VSI", _two, _ANY),
    _case("piq/MultiScaleSSIMLoss", "piq.MultiScaleSSIMLoss", _two, _LARGE),
    _case("piq/VIFLoss", "piq.VIFLoss", _two, _ANY),
    _case("piq/FSIMLoss", "piq.FSIMLoss", _two, _ANY),
    _case("piq/MDSILoss", "piq.MDSILoss", _two, _ANY),
    _case("piq/HaarPSILoss", "piq.HaarPSILoss", _two, _ANY),
    _case("piq/TVLoss", "piq.TVLoss", _one, _ANY),
    _case("lpips/LPIPS", "lpips.LPIPS", _two, _ANY, pretrained=False, pnet_rand=True, net="alex", verbose=False),
    _case("pytorch_msssim/MS_SSIM", "pytorch_msssim.MS_SSIM", _two, _LARGE, data_range=1.0),
    _easyocr("easyocr/recognition VGG", "easyocr.model.vgg_model.Model"),
    _easyocr("easyocr/recognition ResNet", "easyocr.model.model.Model"),
    _case("easyocr/CRAFT", "easyocr.craft.CRAFT", _one, _ANY, pretrained=False),
    _case("sixdrepnet/SixDRepNet", "sixdrepnet.model.SixDRepNet", _one, _ANY, "RepVGG-A0", "", False, pretrained=False),
    _case("face_alignment/S3FD", "face_alignment.detection.sfd.net_s3fd.s3fd", _one,
          {"b": _BATCH, "h": (128, 192, 160), "w": (160, 128, 192)}),
    _case("facexlib/BiSeNet", "facexlib.parsing.bisenet.BiSeNet", _one, _ANY, 5),
    _case("facexlib/FAN", "facexlib.alignment.awing_arch.FAN", lambda b: (torch.randn(b, 3, 256, 256),), {"b": _BATCH},
          num_modules=1, num_landmarks=10, gray_scale=False),
    _case("dynamic_network_architectures/ResidualEncoderUNet", _RESIDUAL, _cube, _CUBE, *_STAGES, torch.nn.Conv3d, 3,
          (1, 2, 2), (1, 1, 1), 2, (1, 1), True, torch.nn.InstanceNorm3d, {"affine": True},
          nonlin=torch.nn.LeakyReLU, deep_supervision=True),
    _case("dynamic_network_architectures/PlainConvUNet", _PLAIN, _grey, _ANY, *_STAGES, torch.nn.Conv2d, 3, (1, 2, 2),
          (1, 1, 1), 2, (1, 1), True, torch.nn.InstanceNorm2d, {"affine": True}, nonlin=torch.nn.LeakyReLU),
    _case("pytorch3dunet/ResidualUNetSE3D", "pytorch3dunet.unet3d.model.ResidualUNetSE3D", _cube, _CUBE, 1, 2,
          f_maps=8, num_levels=3, num_groups=4),
    _case("pytorch3dunet/UNet2D", "pytorch3dunet.unet3d.model.UNet2D", _grey, _ANY, 1, 2, f_maps=8, num_levels=3,
          num_groups=4),
    _case("torchxrayvision/DenseNet", "torchxrayvision.models.DenseNet", _grey, _ANY, weights=None),
    _case("fastmri/Unet", "fastmri.models.Unet", _grey, {"b": _BATCH, "h": (64, 50, 48), "w": (48, 64, 60)}, 1, 1,
          chans=8, num_pool_layers=2),
    _case("fastmri/VarNet", "fastmri.models.VarNet",
          lambda b, h: (torch.randn(b, 3, h, 32, 2),
                        (torch.arange(32) % 2 == 0).view(1, 1, 1, 32, 1).repeat(b, 1, 1, 1, 1)),
          {"b": _BATCH, "h": (32, 48, 40)}, num_cascades=2, sens_chans=4, sens_pools=2, chans=4, pools=2),
    _case("deepinv/DnCNN", "deepinv.models.DnCNN", _one, _ANY, pretrained=None, depth=4, nf=8),
    _case("deepinv/DRUNet", "deepinv.models.DRUNet", lambda b, h, w: (torch.rand(b, 3, h, w), torch.full((b,), 0.1)),
          {"b": _BATCH, "h": (64, 72, 50), "w": (64, 40, 45)}, pretrained=None, nc=[8, 8, 16, 16], nb=1),
    _case("deepinv/Restormer", "deepinv.models.Restormer", _one, _ANY, pretrained=None, dim=8,
          num_blocks=[1, 1, 1, 1], num_refinement_blocks=1, heads=[1, 1, 2, 2]),
    _case("deepinv/MedianFilter", "deepinv.models.MedianFilter", _one, _ANY),
    _case("torchgeo/FarSeg", "torchgeo.models.FarSeg", _one, _ANY, backbone="resnet18", classes=4,
          backbone_pretrained=False),
    _case("torchgeo/ChangeStarFarSeg", "torchgeo.models.ChangeStarFarSeg", _before_and_after, _ANY,
          backbone="resnet18", classes=2, backbone_pretrained=False),
    _case("torchgeo/FCSiamDiff", "torchgeo.models.FCSiamDiff", _before_and_after, _ANY, encoder_name="resnet18",
          encoder_weights=None, in_channels=3, classes=2),
    _case("torchgeo/RCF", "torchgeo.models.RCF", _one, _ANY, in_channels=3, features=8),
    *map(_ptlflow, ("raft_small", "pwcnet", "liteflownet3", "gma", "flownets", "fastflownet", "irr_pwc", "neuflow2",
                    "rapidflow_it1", "sea_raft_s")),
]  # fmt: skip
