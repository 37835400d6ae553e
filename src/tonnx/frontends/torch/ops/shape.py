"""Shape operators."""
from __future__ import annotations
import onnx_ir as ir
from tonnx.build import Builder, Size
from tonnx.frontends.torch.rules import lower

@lower("aten.view", "aten.reshape", "aten._unsafe_view")
def view(op: Builder, x: ir.Value, size=None, shape=None):
    return op.reshape(x, size if size is not None else shape)

@lower("aten.sym_size.int")
def sym_size(op: Builder, x: ir.Value, dim: int) -> Size:
    return op.size(x, dim)

@lower("aten.pixel_shuffle")
def pixel_shuffle(op: Builder, x: ir.Value, upscale_factor: int) -> ir.Value:
    return op.DepthToSpace(x, blocksize=upscale_factor, mode="CRD")
