"""Shape operators: the elements stay as they are, only their arrangement changes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx_ir as ir

from tonnx.errors import UnsupportedArgument
from tonnx.ir import facts
from tonnx.ir.build import Builder, Size, T
from tonnx.ir.infer import dims_of
from tonnx.lowering import sizes
from tonnx.lowering.rules import lower
from tonnx.lowering.values import axis_of

# Sizes of a tensor, and its numbers as sizes

sym_size = lower("aten.sym_size.int", "aten.size.int")(lambda op, x, dim: op.size(x, dim))
sym_numel = lower("aten.sym_numel", "aten.numel")(lambda op, x: op.product(op.sizes(x)))
shape_as_tensor = lower("aten._shape_as_tensor")(lambda op, x: op.vector(op.sizes(x)))


@lower("aten.item", "aten._local_scalar_dense")
def item(op: Builder, x: ir.Value) -> ir.Value:
    kind = T.BOOL if x.dtype == T.BOOL else T.INT64 if x.dtype is not None and x.dtype.is_integer() else T.DOUBLE
    return op.cast(op.reshape(x, [1]), kind)


# Reshaping

view_as = lower("aten.view_as", "aten.reshape_as")(lambda op, x, other: op.reshape(x, op.sizes(other)))
unsqueeze = lower("aten.unsqueeze", "aten.unsqueeze_copy")(lambda op, x, dim: op.Unsqueeze(x, [dim % (op.rank(x) + 1)]))
atleast_1d = lower("aten.atleast_1d.default")(lambda op, x: op.reshape(x, [1]) if op.rank(x) == 0 else x)


@lower("aten.view", "aten.view_copy", "aten._unsafe_view", "aten._reshape_alias", unused="stride")
@lower("aten.reshape", renamed="shape=size")
def reshape(op: Builder, x: ir.Value, size: Sequence[Size], result_dims: Sequence[int] | None = None) -> ir.Value:
    if result_dims is not None and any(isinstance(asked, ir.Value) for asked in size):
        # The number that the capture knows for a -1: Reshape has only one -1, and a run-time size may need it.
        size = [result_dims[i] if isinstance(asked, int) and asked == -1 else asked for i, asked in enumerate(size)]
    return op.reshape(x, size)


@lower("aten.view.dtype")
def view_dtype(op: Builder, x: ir.Value, dtype: ir.DataType) -> ir.Value:
    if x.dtype == dtype:
        return x
    if x.dtype is None or x.dtype.bitwidth != dtype.bitwidth or T.BOOL in (x.dtype, dtype):
        raise UnsupportedArgument(
            f"the bits of {x.dtype} cannot be read as {dtype}: ONNX has BitCast for equal widths only"
        )
    return op.BitCast(x, to=dtype)


@lower("aten.flatten.using_ints")
def flatten(op: Builder, x: ir.Value, start_dim: int = 0, end_dim: int = -1) -> ir.Value:
    if op.rank(x) == 0:
        return op.reshape(x, [1])
    first, last = axis_of(op, x, start_dim), axis_of(op, x, end_dim)
    return merge(op, x, first, last + 1)


def merge(op: Builder, x: ir.Value, first: int, stop: int) -> ir.Value:
    """The axes ``first`` up to ``stop`` as one; none at all make a new axis of size 1."""
    if stop - first == 1:
        return x
    own = op.sizes(x)
    merged = op.product(own[first:stop])
    return op.reshape(x, [*own[:first], merged, *own[stop:]])


@lower("aten.unflatten.int")
def unflatten(op: Builder, x: ir.Value, dim: int, sizes: Sequence[Size]) -> ir.Value:
    axis = axis_of(op, x, dim)
    own = op.sizes(x)
    parts = list(sizes)
    if -1 in parts and any(isinstance(size, ir.Value) for i, size in enumerate(own) if i != axis):
        # A run-time size elsewhere may need the one -1 that Reshape allows.
        at = parts.index(-1)
        others = op.product([*parts[:at], *parts[at + 1 :]])
        whole = own[axis]
        if isinstance(whole, int) and isinstance(others, int):
            parts[at] = whole // others
    return op.reshape(x, [*own[:axis], *parts, *own[axis + 1 :]])


@lower("aten.squeeze", "aten.squeeze_copy")
def squeeze(op: Builder, x: ir.Value, dim: int | Sequence[int] | None = None) -> ir.Value:
    rank = op.rank(x)
    candidates = range(rank) if dim is None else [dim] if isinstance(dim, int) else dim
    assert x.shape is not None
    # A dynamic dimension is never 1 for torch.export, and so stays.
    axes = sorted({d % rank for d in candidates if x.shape[d % rank] == 1}) if rank else []
    return op.Squeeze(x, axes) if axes else x


@lower("aten.atleast_2d.default")
def atleast_2d(op: Builder, x: ir.Value) -> ir.Value:
    return x if op.rank(x) >= 2 else op.Unsqueeze(atleast_1d(op, x), [0])


@lower("aten.atleast_3d.default")
def atleast_3d(op: Builder, x: ir.Value) -> ir.Value:
    return x if op.rank(x) >= 3 else op.Unsqueeze(atleast_2d(op, x), [2])


# Permuting axes

transpose_last = lower("aten.mT", "aten.mH", "aten.adjoint")(lambda op, x: transpose(op, x, -2, -1))


def transposed(op: Builder, x: ir.Value, order: Sequence[int]) -> ir.Value:
    """``x`` with its axes in ``order``; nothing is added when that is the order they have."""
    return x if list(order) == list(range(len(order))) else op.Transpose(x, perm=list(order))


@lower("aten.permute", "aten.permute_copy")
def permute(op: Builder, x: ir.Value, dims: Sequence[int]) -> ir.Value:
    return transposed(op, x, [axis_of(op, x, d) for d in dims])


@lower("aten.transpose", "aten.swapdims", "aten.transpose_copy")
@lower("aten.swapaxes", renamed="axis0=dim0 axis1=dim1")
def transpose(op: Builder, x: ir.Value, dim0: int, dim1: int) -> ir.Value:
    order = list(range(op.rank(x)))
    if order:
        order[dim0], order[dim1] = order[dim1], order[dim0]
    return transposed(op, x, order)


@lower("aten.t", "aten.numpy_T", "aten.t_copy", "aten.matrix_H")
def reverse_axes(op: Builder, x: ir.Value) -> ir.Value:
    return transposed(op, x, range(op.rank(x) - 1, -1, -1))


@lower("aten.movedim", "aten.moveaxis")
def movedim(op: Builder, x: ir.Value, source: int | Sequence[int], destination: int | Sequence[int]) -> ir.Value:
    rank = op.rank(x)
    if rank == 0:
        return x
    sources = [s % rank for s in ([source] if isinstance(source, int) else source)]
    places = [d % rank for d in ([destination] if isinstance(destination, int) else destination)]
    moved = dict(zip(places, sources, strict=True))
    rest = iter(axis for axis in range(rank) if axis not in sources)
    return transposed(op, x, [moved[i] if i in moved else next(rest) for i in range(rank)])


# Repeating

expand_as = lower("aten.expand_as")(lambda op, x, other: expand(op, x, op.sizes(other)))
tile = lower("aten.tile")(lambda op, x, dims: repeat(op, x, [*[1] * (op.rank(x) - len(dims)), *dims]))


@lower("aten.expand", "aten.broadcast_to", "aten.expand_copy", unused="implicit")
def expand(op: Builder, x: ir.Value, size: Sequence[Size]) -> ir.Value:
    new = len(size) - op.rank(x)
    assert x.shape is not None
    # Expand takes the larger of both sizes: 1 keeps what is there, and keeps the target constant.
    target: list[Size] = []
    for i, asked in enumerate(size):
        own: Any = x.shape[i - new] if i >= new else 1
        same = isinstance(asked, int) and asked in (-1, own)
        if isinstance(asked, ir.Value) and i >= new and not isinstance(own, int):
            # Sizes of different names may still be 1 and many, though torch.export takes them for equal.
            same = facts.DIM.get(asked) == own.value is not None
        target.append(1 if same else asked)
    if all(isinstance(asked, int) and asked == 1 for asked in target):
        return op.Unsqueeze(x, list(range(new))) if new else x
    return op.Expand(x, op.vector(target))


def broadcast_sizes(op: Builder, *tensors: ir.Value) -> list[Size]:
    rank = max(op.rank(tensor) for tensor in tensors)
    result: list[Size] = []
    for i in range(-rank, 0):
        aligned = [tensor for tensor in tensors if op.rank(tensor) >= -i]
        fixed = [t for t in aligned if isinstance(t.shape[i], int) and t.shape[i] != 1]  # type: ignore[index]
        dynamic = [t for t in aligned if not isinstance(t.shape[i], int)]  # type: ignore[index]
        if fixed or not dynamic:
            result.append(op.size((fixed or aligned)[0], i))
            continue
        # Two dynamic dimensions are equal for torch.export, but one of them may be 1 at run time.
        named = {t.shape[i].value: t for t in dynamic}  # type: ignore[index, union-attr]
        result.append(op.size(dynamic[0], i) if len(named) == 1 else op.Max(*(op.size(t, i) for t in named.values())))
    return result


@lower("aten.broadcast_tensors")
def broadcast_tensors(op: Builder, tensors: Sequence[ir.Value]) -> list[ir.Value]:
    size = broadcast_sizes(op, *tensors)
    return [expand(op, tensor, size) for tensor in tensors]


@lower("aten.repeat")
def repeat(op: Builder, x: ir.Value, repeats: Sequence[Size]) -> ir.Value:
    new = len(repeats) - op.rank(x)
    x = op.Unsqueeze(x, list(range(new))) if new else x
    if all(isinstance(count, int) and count == 1 for count in repeats):
        return x
    return op.Tile(x, op.vector(repeats))


@lower("aten.repeat_interleave.self_int", unused="output_size")
def repeat_interleave(op: Builder, x: ir.Value, repeats: Size, dim: int | None = None) -> ir.Value:
    if dim is None or op.rank(x) == 0:
        x, dim = op.reshape(x, [-1]), 0
    axis = axis_of(op, x, dim)
    own = op.sizes(x)
    apart = op.Unsqueeze(x, [axis + 1])
    repeated = op.Expand(apart, op.vector([*[1] * (axis + 1), repeats, *[1] * (len(own) - axis - 1)]))
    return op.reshape(repeated, [*own[:axis], op.product([own[axis], repeats]), *own[axis + 1 :]])


@lower("aten.meshgrid")
def meshgrid(op: Builder, tensors: Sequence[ir.Value], indexing: str = "ij") -> list[ir.Value]:
    lengths = [op.size(tensor, 0) if op.rank(tensor) else 1 for tensor in tensors]
    order = list(range(len(tensors)))
    if indexing == "xy" and len(order) > 1:
        order[:2] = [1, 0]
    target = [lengths[i] for i in order]
    grids = []
    for i, tensor in enumerate(tensors):
        along = [lengths[i] if i == at else 1 for at in order]
        grids.append(expand(op, op.reshape(tensor, along), target))
    return grids


# Reordering along axes

fliplr = lower("aten.fliplr")(lambda op, x: flip(op, x, [1]))
flipud = lower("aten.flipud")(lambda op, x: flip(op, x, [0]))


@lower("aten.flip")
def flip(op: Builder, x: ir.Value, dims: Sequence[int]) -> ir.Value:
    if not dims or op.rank(x) == 0:
        return x
    count = len(dims)
    axes = [axis_of(op, x, d) for d in dims]
    return op.Slice(x, [-1] * count, [-sizes.END] * count, axes, [-1] * count)


@lower("aten.roll")
def roll(op: Builder, x: ir.Value, shifts: Sequence[Size], dims: Sequence[int] = ()) -> ir.Value:
    if not dims:
        flat = op.reshape(x, [-1])
        return op.reshape(_rolled(op, flat, shifts[0], 0), op.sizes(x))
    if op.rank(x) == 0:
        return x
    for shift, dim in zip(shifts, dims, strict=True):
        x = _rolled(op, x, shift, axis_of(op, x, dim))
    return x


def _rolled(op: Builder, x: ir.Value, shift: Size, axis: int) -> ir.Value:
    size = op.size(x, axis)
    if isinstance(size, int) and size == 0:
        return x
    # At a size of 0 the remainder is undefined (and a runtime may stop), so it is taken by at least 1.
    shift = sizes.modulo(op, shift, size if isinstance(size, int) else sizes.larger(op, size, 1))
    if isinstance(shift, int) and shift == 0:
        return x
    at = sizes.subtract(op, size, shift)
    return op.Concat(sizes.cut(op, x, axis, at), sizes.cut(op, x, axis, 0, at), axis=axis, _shape=dims_of(x))


@lower("aten.rot90")
def rot90(op: Builder, x: ir.Value, k: int = 1, dims: Sequence[int] = (0, 1)) -> ir.Value:
    first, second = dims
    turns = k % 4
    if turns == 0:
        return x
    if turns == 2:
        return flip(op, x, dims)
    return transpose(op, flip(op, x, [second if turns == 1 else first]), first, second)


# Blocks of pixels and groups of channels

_DEPTH_SPACE = (T.FLOAT, T.DOUBLE, T.FLOAT16)  # what both kernels of ONNX Runtime take


def _as_images(op: Builder, x: ir.Value) -> ir.Value:
    """Four axes: all that come before the channels as one."""
    rank = op.rank(x)
    return x if rank == 4 else op.Unsqueeze(x, [0]) if rank == 3 else merge(op, x, 0, rank - 3)


@lower("aten.pixel_shuffle")
def pixel_shuffle(op: Builder, x: ir.Value, upscale_factor: int) -> ir.Value:
    factor = upscale_factor
    *batch, channels, height, width = op.sizes(x)
    wide = x.dtype if x.dtype in _DEPTH_SPACE else T.DOUBLE if x.dtype != T.INT64 else None
    channels = sizes.divide(op, channels, factor * factor)
    if wide is None:
        apart = op.reshape(x, [*batch, channels, factor, factor, height, width])
        n = len(batch)
        result = op.Transpose(apart, perm=[*range(n), n, n + 3, n + 1, n + 4, n + 2])
    else:
        images = op.cast(_as_images(op, x), wide)
        result = op.cast(op.DepthToSpace(images, blocksize=factor, mode="CRD"), x.dtype)
        if len(batch) == 1:
            return result
    return op.reshape(result, [*batch, channels, sizes.multiply(op, height, factor), sizes.multiply(op, width, factor)])


@lower("aten.pixel_unshuffle")
def pixel_unshuffle(op: Builder, x: ir.Value, downscale_factor: int) -> ir.Value:
    factor = downscale_factor
    *batch, channels, height, width = op.sizes(x)
    height, width = sizes.divide(op, height, factor), sizes.divide(op, width, factor)
    if isinstance(channels, int) and x.dtype in _DEPTH_SPACE:
        # SpaceToDepth puts the block before the channel; torch the channel before the block.
        blocks = op.SpaceToDepth(_as_images(op, x), blocksize=factor)
        order = [b * channels + c for c in range(channels) for b in range(factor * factor)]
        result = blocks if channels == 1 else op.Gather(blocks, order, axis=1)
        if len(batch) == 1:
            return result
    else:
        n = len(batch)
        apart = op.reshape(x, [*batch, channels, height, factor, width, factor])
        result = op.Transpose(apart, perm=[*range(n), n, n + 2, n + 4, n + 1, n + 3])
    return op.reshape(result, [*batch, sizes.multiply(op, channels, factor * factor), height, width])


@lower("aten.channel_shuffle", "aten.native_channel_shuffle")
def channel_shuffle(op: Builder, x: ir.Value, groups: int) -> ir.Value:
    channels = op.size(x, 1)
    if isinstance(channels, int):  # one permutation of channels, whatever comes behind them
        each = channels // groups
        return op.Gather(x, [g * each + c for c in range(each) for g in range(groups)], axis=1)
    batch, _, *rest = own = op.sizes(x)
    apart = op.reshape(x, [batch, groups, sizes.divide(op, channels, groups), *rest])
    return op.reshape(transpose(op, apart, 1, 2), own)


# Windows and memory layouts


@lower("aten.unfold", "aten.unfold_copy")
def unfold(op: Builder, x: ir.Value, dimension: int, size: int, step: int) -> ir.Value:
    if op.rank(x) == 0:
        return sizes.cut(op, op.reshape(x, [1]), 0, 0, size)
    axis = axis_of(op, x, dimension)
    stop = sizes.add(op, op.size(x, axis), 1 - size)
    starts = sizes.arange(op, stop, step=step)
    windows = op.Gather(x, op.Add(op.Unsqueeze(starts, [1]), list(range(size))), axis=axis)
    return movedim(op, windows, axis + 1, -1)


@lower("aten.as_strided", "aten.as_strided_copy")
def as_strided(
    op: Builder,
    x: ir.Value,
    size: Sequence[Size],
    stride: Sequence[Size],
    storage_offset: Size | None = None,
    memory_order: Sequence[int] | None = None,
) -> ir.Value:
    memory = _memory(op, x, memory_order)
    return op.Gather(op.reshape(memory, [-1]), _places(op, size, stride, storage_offset), axis=0)


@lower("aten.as_strided_scatter")
def as_strided_scatter(
    op: Builder,
    x: ir.Value,
    src: ir.Value,
    size: Sequence[Size],
    stride: Sequence[Size],
    storage_offset: Size | None = None,
    memory_order: Sequence[int] | None = None,
) -> ir.Value:
    memory = _memory(op, x, memory_order)
    places = op.reshape(_places(op, size, stride, storage_offset), [-1])
    written = op.ScatterElements(op.reshape(memory, [-1]), places, op.reshape(op.cast(src, x.dtype), [-1]), axis=0)
    order = list(memory_order or ())
    return op.Transpose(op.reshape(written, op.sizes(memory)), perm=[order.index(axis) for axis in range(len(order))])


def _memory(op: Builder, x: ir.Value, memory_order: Sequence[int] | None) -> ir.Value:
    """A tensor with its axes as they lie in memory."""
    if memory_order is None:
        raise UnsupportedArgument("as_strided of a part of a tensor: ONNX has no memory layouts")
    return op.Transpose(x, perm=list(memory_order))


def _places(op: Builder, size: Sequence[Size], stride: Sequence[Size], storage_offset: Size | None) -> ir.Value:
    """The position in memory of every element: a sum of one vector an axis."""
    position = op.vector([storage_offset or 0])
    for axis, (length, gap) in enumerate(zip(size, stride, strict=True)):
        along = op.Mul(sizes.arange(op, length), op.vector([gap]))
        shape = [1] * axis + [-1] + [1] * (len(size) - 1 - axis)
        position = op.Add(position, op.Reshape(along, shape))
    return position if size else op.scalar(position)
