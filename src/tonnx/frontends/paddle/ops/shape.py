"""Shapes: the elements stay as they are, only their arrangement changes."""

from __future__ import annotations

import onnx_ir as ir

from tonnx.errors import UnsupportedArgument
from tonnx.frontends.paddle.lower.bind import holding, known_sizes, sizes_of
from tonnx.frontends.paddle.lower.rules import Ints, Sizes, Value, Values, direct, lower
from tonnx.frontends.paddle.read.graph import Op
from tonnx.ir import facts
from tonnx.ir.build import Builder, Size
from tonnx.lowering import sizes
from tonnx.lowering.ops import index as torch_index
from tonnx.lowering.ops import parts as torch_parts
from tonnx.lowering.ops import shape as like_torch
from tonnx.lowering.values import axis_of, is_integer

direct("is_empty(x)", lambda op, x: op.Equal(numel(op, x), 0))
direct("transpose(x, *, perm: Ints)", like_torch.permute)
direct("flatten(x, *, start_axis: int = 1, stop_axis: int = 1)", like_torch.flatten)


@lower("shape", "shape64")
def shape(op: Builder, input: Value) -> ir.Value:
    return _vector(op, op.sizes(input))


def _vector(op: Builder, own: list[Size]) -> ir.Value:
    return holding(op.vector(own), own)


for name in ("shape", "shape64"):  # of pairs, without what they are made of
    direct(f"{name}@complex(input)", lambda op, input: _vector(op, op.sizes(input)[:-1]))


@lower("numel")
def numel(op: Builder, x: Value) -> ir.Value:
    return op.scalar(op.product(op.sizes(x)))


@lower("reshape", "view_shape")
def reshape(op: Builder, x: Value, shape: Sizes, *, dims: Ints = ()) -> ir.Value:
    """0 keeps a size, -1 is what remains."""
    target = list(shape) if len(shape) else list(dims)
    own = [*op.sizes(x), *[0] * len(target)]
    return op.reshape(x, [own[i] if isinstance(s, int) and s == 0 else s for i, s in enumerate(target)])


@lower("flatten_at")
def flatten_at(op: Builder, x: Value, *, axis: int = 1) -> ir.Value:
    """Two axes: what comes before ``axis``, and the rest."""
    own = op.sizes(x)
    return op.reshape(x, [op.product(own[:axis]), op.product(own[axis:])])


@lower("squeeze")
def squeeze(op: Builder, x: Value, axis: Ints = ()) -> ir.Value:
    assert x.shape is not None
    rank = op.rank(x)
    # A size that is not known counts as 1 if its axis is named, as it does for Paddle.
    candidates = sorted({a % rank for a in axis}) if len(axis) else [i for i in range(rank) if x.shape[i] == 1]
    axes = [a for a in candidates if not isinstance(x.shape[a], int) or x.shape[a] == 1] if rank else []
    return holding(op.Squeeze(x, axes), facts.PADDLE_SIZES.get(x)) if axes else x


@lower("unsqueeze")
def unsqueeze(op: Builder, x: Value, axis: Ints) -> ir.Value:
    # One after the other, as Paddle does it: each axis counts those that are new already.
    rank, places = op.rank(x), list[int]()
    for a in axis:
        place = a % (rank + len(places) + 1)
        places = [p + (p >= place) for p in places]
        places.append(place)
    if not places:
        return x
    return holding(op.Unsqueeze(x, sorted(places)), facts.PADDLE_SIZES.get(x))


@lower("concat")
def concat(op: Builder, x: Values, axis: int = 0) -> ir.Value:
    joined = torch_parts.cat(op, list(x), axis)
    are_known = all(part.const_value is not None or part in facts.PADDLE_SIZES for part in x)
    if op.rank(joined) != 1 or not are_known:
        return joined
    return holding(joined, [size for part in x for size in known_sizes(part) or ()])


@lower("stack")
def stack(op: Builder, x: Values, *, axis: int = 0) -> ir.Value:
    stacked = torch_parts.stack(op, list(x), axis)
    if not is_integer(stacked.dtype) or any(op.rank(part) for part in x):
        return stacked
    return holding(stacked, [size for part in x for size in sizes_of(op, part)])  # a shape again


# Apart


@lower("split")
def split(op: Builder, x: Value, sections: Sizes, axis: int = 0) -> list[ir.Value]:
    at = axis_of(op, x, axis)
    lengths: list[Size] = list(sections)
    if -1 in lengths:
        rest = op.size(x, at)
        for length in lengths:
            if not isinstance(length, int) or length != -1:
                rest = sizes.subtract(op, rest, length)
        lengths[lengths.index(-1)] = rest
    return torch_parts.split_with_sizes(op, x, lengths, at)


@lower("split_with_num")
def split_with_num(op: Builder, x: Value, axis: int = 0, *, num: int) -> list[ir.Value]:
    return [x] if num == 1 else list(op.Split(x, axis=axis_of(op, x, axis), num_outputs=num, _outputs=num))


@lower("split_old")
def split_old(op: Builder, x: Value, sections: Sizes = (), axis: int = 0, *, num: int = 0) -> list[ir.Value]:
    return split_with_num(op, x, axis, num=num) if num else split(op, x, sections, axis)


@lower("unbind", "unstack", unused="num")
def unbind(op: Builder, x: Value, *, axis: int = 0, node: Op) -> list[ir.Value]:
    at = axis_of(op, x, axis)
    results = next(iter(node.outputs.values()))
    count = len(results)
    if count == 1 and results[0] is not None and results[0].type.elements:
        count = len(results[0].type.elements)
    return torch_parts.unbind(op, x, at, count)


# Repeated

direct("tile(x, repeat_times: Sizes)", like_torch.tile)
direct("meshgrid(inputs: Values)", like_torch.meshgrid)
direct("expand(x, shape: Sizes)", like_torch.expand)
direct("broadcast_tensors(input: Values)", like_torch.broadcast_tensors)


@lower("expand_as")
def expand_as(op: Builder, x: Value, y: Value | None = None, *, target_shape: Ints = ()) -> ir.Value:
    return like_torch.expand(op, x, list(target_shape) if y is None else op.sizes(y))


@lower("repeat_interleave")
def repeat_interleave(
    op: Builder, x: Value, *, repeats: int = 0, repeats_tensor: Value | None = None, axis: int = 0
) -> ir.Value:
    if repeats_tensor is not None:
        return torch_index.repeat_interleave_tensor(op, x, repeats_tensor, axis)
    return like_torch.repeat_interleave(op, x, repeats, axis)


# Reordered

direct("reverse(x, axis: Ints = ())", like_torch.flip)
direct("flip(x, *, axis: Ints)", like_torch.flip)
direct("roll(x, shifts: Sizes, *, axis: Ints = ())", like_torch.roll)
direct("shuffle_channel(x, *, group: int = 1)", like_torch.channel_shuffle)
direct("tensor_unfold(input, *, axis: int, size: int, step: int)", like_torch.unfold)
direct("pixel_shuffle(x, *, upscale_factor: int = 1)", like_torch.pixel_shuffle, layout="data_format")
direct("pixel_unshuffle(x, *, downscale_factor: int = 1)", like_torch.pixel_unshuffle, layout="data_format")
direct("channel_shuffle(x, *, groups: int)", like_torch.channel_shuffle, layout="data_format")


@lower("as_strided", unused="dims stride offset")
def as_strided(op: Builder, input: Value) -> ir.Value:
    raise UnsupportedArgument("as_strided reads memory in an order of its own, and ONNX has no memory layouts")


@lower("temporal_shift", layout="data_format")
def temporal_shift(op: Builder, x: Value, *, seg_num: int, shift_ratio: float = 0.25) -> ir.Value:
    """Some channels come from the frame before, some from the frame behind, zeros at the ends."""
    frames, channels, height, width = op.sizes(x)
    (channels,) = sizes.known("temporal_shift of a number of channels", channels)
    first, second = int(channels * shift_ratio), int(channels * 2 * shift_ratio)
    clip = op.reshape(x, [sizes.divide(op, frames, seg_num), seg_num, channels, height, width])
    padded = op.Pad(clip, [0, 1, 0, 0, 0, 0, 1, 0, 0, 0])
    shifted = [
        op.Slice(padded, [start, low], [start + seg_num, high], [1, 2])
        for start, low, high in ((0, 0, first), (2, first, second), (1, second, channels))
        if low < high
    ]
    return op.reshape(op.Concat(*shifted, axis=2), op.sizes(x))
