"""Shapes of the layers of networks: convolutions, pooling, resizing, recurrent ones."""

from __future__ import annotations

from tonnx.ir.infer.dims import UNKNOWN, Dims
from tonnx.ir.infer.table import Call, Inferred, shape_of
from tonnx.ir.infer.windows import slid


@shape_of("ConvTranspose", "ConvInteger", "QLinearConv", "DeformConv")
def _like_conv(call: Call) -> Inferred:
    dims = call.dims(0)
    return None if dims is None else [dims[0], *[UNKNOWN] * (len(dims) - 1)]


@shape_of("Conv")
def _conv(call: Call) -> Inferred:
    dims, weight = call.dims(0), call.dims(1)
    if dims is None or weight is None:
        return None if dims is None else [dims[0], *[UNKNOWN] * (len(dims) - 1)]
    return [dims[0], weight[0], *slid(dims[2:], weight[2:], call.attributes)]


@shape_of("MaxPool", "AveragePool", "LpPool")
def _pool(call: Call) -> Inferred:
    dims = call.dims(0)
    if dims is None:
        return None
    shape = [*dims[:2], *slid(dims[2:], call.attributes.get("kernel_shape"), call.attributes)]
    return [shape] * call.outputs


@shape_of("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
def _global_pool(call: Call) -> Inferred:
    dims = call.dims(0)
    return None if dims is None else [*dims[:2], *[1] * (len(dims) - 2)]


@shape_of("Resize", "GridSample", "Upsample")
def _resize(call: Call) -> Inferred:
    dims = call.dims(0)
    return None if dims is None else [*dims[:2], *[UNKNOWN] * (len(dims) - 2)]


@shape_of("DepthToSpace")
def _depth_to_space(call: Call) -> Inferred:
    dims, size = call.dims(0), call.attributes.get("blocksize", 1)
    return None if dims is None else [dims[0], *_scaled(dims[1:2], 1, size * size), *_scaled(dims[2:], size, 1)]


@shape_of("SpaceToDepth")
def _space_to_depth(call: Call) -> Inferred:
    dims, size = call.dims(0), call.attributes.get("blocksize", 1)
    return None if dims is None else [dims[0], *_scaled(dims[1:2], size * size, 1), *_scaled(dims[2:], 1, size)]


def _scaled(dims: Dims, factor: int, divisor: int) -> Dims:
    return [d * factor // divisor if isinstance(d, int) else UNKNOWN for d in dims]


@shape_of("LSTM", "GRU", "RNN")
def _recurrent(call: Call) -> Inferred:
    dims = call.dims(0)
    if dims is None:
        return None
    directions = 2 if call.attributes.get("direction") == "bidirectional" else 1
    hidden = call.attributes.get("hidden_size", UNKNOWN)
    if call.attributes.get("layout", 0):
        batch_first: Dims = [dims[0], directions, hidden]
        return [[dims[0], dims[1], directions, hidden], batch_first, batch_first]
    state: Dims = [directions, dims[1], hidden]
    return [[dims[0], directions, dims[1], hidden], state, state]


@shape_of("SequenceLength", "OptionalHasElement")
def _scalar(call: Call) -> Inferred:
    return []
