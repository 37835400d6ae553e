"""Convolutions and linear layers."""
from __future__ import annotations
import onnx_ir as ir
from tonnx.build import Builder
from tonnx.frontends.torch.rules import lower

@lower("aten.conv2d")
def conv2d(op, x, weight, bias=None, stride=[1], padding=[0], dilation=[1], groups=1):
    return op.Conv(x, weight, bias, strides=stride, pads=[*padding,*padding], dilations=dilation, group=groups)
