"""Shape operators, and tensors taken apart and put together."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from tests.lowering.harness import Case, check, table
from tonnx.errors import TonnxError


def r(*shape: int) -> torch.Tensor:
    return torch.arange(1, 1 + int(torch.Size(shape).numel()), dtype=torch.float32).reshape(shape) / 7


def i(*shape: int) -> torch.Tensor:
    return torch.arange(int(torch.Size(shape).numel())).reshape(shape)


def swapped_halves(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    first, second = x.chunk(2)
    return second, first


ALL = "all"

RESHAPES = [
    Case("view", lambda x: x.view(2, 12), [r(2, 3, 4)]),
    Case(
        "view_dynamic_is_constant",
        lambda x: x.view(x.shape[0], -1),
        [r(2, 3, 4)],
        {0: [0]},
        has_not=["Concat", "Shape"],
    ),
    Case(
        "view_two_dynamic", lambda x: x.view(x.shape[0], x.shape[1] * 4), [r(2, 3, 4)], {0: [0, 1]}, has_not=["Concat"]
    ),
    Case(
        "heads",
        lambda x: x.view(x.shape[0], x.shape[1], 2, 4).transpose(1, 2),
        [r(2, 3, 8)],
        {0: [0, 1]},
        has_not=["Concat"],
    ),
    Case("reshape_swapped_dynamic", lambda x: x.reshape(x.shape[1], x.shape[0], 4), [r(2, 3, 4)], {0: [0, 1]}),
    Case("reshape_empty", lambda x: x.reshape(4, 0, 5), [r(0, 4)]),
    Case("reshape_scalar", lambda x: (x.reshape(()), x.reshape(1, 1)), [r(1)]),
    Case("reshape_noncontiguous", lambda x: x.t().reshape(-1), [r(3, 4)], ALL),
    Case("view_as", lambda x, y: (x.view_as(y), x.reshape_as(y)), [r(2, 6), r(3, 4)]),
    Case("view_dtype", lambda x: x.view(torch.int32) + 1, [r(2, 3)], opset=26),
    Case("flatten", lambda x: (x.flatten(), x.flatten(1), x.flatten(0, 1), x.flatten(-2)), [r(2, 3, 4)], ALL),
    Case("flatten_scalar", lambda x: x.flatten(), [torch.tensor(3.0)]),
    Case("unflatten", lambda x: (x.unflatten(1, (2, -1)), x.unflatten(-1, (2, 2))), [r(2, 6, 4)], {0: [0]}),
    Case("unflatten_two_dynamic", lambda x: x.unflatten(2, (2, -1)), [r(2, 6, 4)], {0: [0, 1]}),
    Case("squeeze", lambda x: (x.squeeze(1), x.squeeze(-1), x.squeeze((1, 3))), [r(2, 1, 3, 1)], {0: [0, 2]}),
    Case("squeeze_all", lambda x: (x.squeeze(), x.squeeze(0)), [r(2, 1, 3, 1)]),
    Case("squeeze_scalar", lambda x: (x.squeeze(), x.squeeze(0), x.squeeze(-1)), [torch.tensor(1.5)]),
    Case("unsqueeze", lambda x: (x.unsqueeze(0), x.unsqueeze(-1), x[:, None, :, None]), [r(2, 3)], ALL),
    Case("unsqueeze_scalar", lambda x: (x.unsqueeze(0), x.unsqueeze(-1)), [torch.tensor(1)]),
    Case(
        "atleast",
        lambda x, y: (*torch.atleast_1d(x, y), *torch.atleast_2d(x, y), *torch.atleast_3d(x, y)),
        [torch.tensor(2.0), r(4)],
        {1: [0]},
    ),
    Case(
        "sizes_as_values",
        lambda x: (x * x.shape[0], x.numel() + x.sum() * 0, x.new_full((1,), x.shape[-1])),
        [r(2, 3)],
        ALL,
    ),
]

AXES = [
    Case("permute", lambda x: (x.permute(2, 0, 1), x.permute(-1, 0, -2)), [r(2, 3, 4)], ALL),
    Case(
        "transpose",
        lambda x: (x.transpose(0, -1), x.mT, x.swapaxes(0, 1), x.swapdims(1, 2), x.adjoint()),
        [r(2, 3, 4)],
        ALL,
    ),
    Case("t", lambda x, v: (x.t(), x.T, v.t(), x.mH), [r(2, 3), r(4)], ALL),
    Case("transpose_scalar", lambda x: x.transpose(0, -1), [torch.tensor(2.0)]),
    Case("movedim", lambda x: (x.movedim(0, 2), x.movedim((0, 1), (-1, 0)), x.moveaxis(-1, 1)), [r(2, 3, 4)], ALL),
    Case("identity_permutation", lambda x: x.permute(0, 1, 2) + 1, [r(2, 3, 4)], has_not=["Transpose"]),
    Case("bool_permute", lambda x: x.permute(1, 0), [r(2, 3) > 1], ALL),
    Case("flip", lambda x: (x.flip(0), x.flip(-1, 0), x.fliplr(), x.flipud()), [r(3, 4)], ALL, has_not=["Gather"]),
    Case("flip_none_and_empty", lambda x, y: (x.flip(()), y.flip(0)), [r(2), r(0, 3)]),
    Case("roll", lambda x: (x.roll(1, 0), x.roll((-1, 5), (1, 2)), x.roll(3), x.roll(0, 1)), [r(2, 3, 4)]),
    Case("roll_dynamic", lambda x: (x.roll(2, 0), x.roll((-1, -4), (0, 1)), x.roll(5)), [r(2, 3)], ALL),
    Case("rot90", lambda x: (x.rot90(), x.rot90(2, (1, 2)), x.rot90(-1, (2, 0)), x.rot90(4)), [r(2, 3, 4)], ALL),
]

REPEATS = [
    Case("expand", lambda x: (x.expand(-1, 3, 4), x.expand(5, -1, -1, 4)), [r(2, 3, 1)], {0: [0]}),
    Case("expand_from_size", lambda x, y: x.expand(y.shape[0], y.shape[1], -1), [r(1, 1, 4), r(2, 3)], {1: [0, 1]}),
    Case("expand_as to sizes of other names", lambda x, y: x.expand_as(y), [r(2, 3), r(2, 3)], ALL,
         left_out="must match the existing size"),
    Case("expand_nothing", lambda x: x.expand(2, 3) + 1, [r(2, 3)], has_not=["Expand"]),
    Case("expand_scalar", lambda x: (x.expand(2, 3), x.expand(())), [torch.tensor(2)]),
    Case("expand_bool", lambda x: x.expand(2, 3), [torch.tensor([[True], [False]])]),
    Case("expand_as", lambda x, y: x.expand_as(y), [r(3, 1), r(2, 3, 4)], {1: [0, 2]}),
    Case("broadcast_to", lambda x: x.broadcast_to(4, 2, 3), [r(1, 3)]),
    Case("broadcast_tensors", lambda x, y: torch.broadcast_tensors(x, y), [r(3, 1), r(2, 1, 4)], {0: [0], 1: [0, 2]}),
    Case("repeat", lambda x: (x.repeat(2, 3), x.repeat(2, 1, 1), x.repeat(1, 1)), [r(2, 3)], ALL),
    Case("repeat_dynamic", lambda x, y: x.repeat(y.shape[0], 1, 1), [r(1, 3), r(2)], {1: [0]}),
    Case("repeat_zero", lambda x: x.repeat(0, 2), [r(2, 3)]),
    Case("tile", lambda x: (x.tile(2), x.tile((2, 1, 2))), [r(2, 3)], ALL),
    Case(
        "repeat_interleave",
        lambda x: (x.repeat_interleave(2), x.repeat_interleave(3, 1), x.repeat_interleave(2, -1)),
        [r(2, 3, 4)],
        ALL,
    ),
    Case(
        "meshgrid",
        lambda x, y: (*torch.meshgrid(x, y, indexing="ij"), *torch.meshgrid(x, y, indexing="xy")),
        [r(3), r(2)],
        ALL,
    ),
    Case(
        "meshgrid_three",
        lambda x, y, z: torch.meshgrid(x, y, z, indexing="xy"),
        [r(3), r(2), torch.tensor(1.0)],
        {0: [0]},
    ),
    Case("cartesian_prod", lambda x, y: torch.cartesian_prod(x, y), [r(3), r(2)], ALL),
    Case("bfloat16", lambda x: (x.expand(2, 3).repeat(1, 2), x.repeat_interleave(2, 1)), [r(2, 1).bfloat16()]),
]

PARTS = [
    Case(
        "cat",
        lambda x, y: (torch.cat([x, y], 1), torch.cat([x, x], -2), torch.concat([y, y, y])),
        [r(2, 3), r(2, 4)],
        {0: {0: "n", 1: "a"}, 1: {0: "n"}},
    ),
    Case("cat_promotes", lambda x, y: torch.cat([x, y]), [r(2), i(3)], ALL),
    Case("cat_skips_empty", lambda x, y: torch.cat([x, y], 1), [torch.zeros(0), r(2, 3)]),
    Case("cat_one", lambda x: torch.cat([x]) + 1, [r(2, 3)], has_not=["Concat"]),
    Case("cat_bool_and_half", lambda x, y: (torch.cat([x, x]), torch.cat([y, y])), [r(2) > 0.2, r(2).half()]),
    Case(
        "stack",
        lambda x, y: (torch.stack([x, y]), torch.stack([x, y], -1), torch.stack([x, y], 1)),
        [r(2, 3), r(2, 3)],
        {0: {0: "n"}, 1: {0: "n"}},
    ),
    Case(
        "stack_scalars",
        lambda x, y: (torch.stack([x, y]), torch.hstack([x, y]), torch.vstack([x, y])),
        [torch.tensor(1.0), torch.tensor(2.0)],
    ),
    Case(
        "stacks",
        lambda x: (torch.hstack([x, x]), torch.vstack([x, x]), torch.dstack([x, x]), torch.column_stack([x, x[:, 0]])),
        [r(2, 3)],
        ALL,
    ),
    Case("split", lambda x: (x.split(2, 1), x.split([1, 4], -2), x.split(5, 1)), [r(2, 5, 3)], {0: [0, 2]}),
    Case("split_dynamic_axis", lambda x: x.split([1, x.shape[0] - 1]), [r(5, 3)], {0: [0]}),
    Case("chunk", lambda x: (x.chunk(2, 1), x.chunk(4, 1), x.chunk(3, -1)), [r(2, 6, 3)], {0: [0]}),
    Case("chunk_fewer", lambda x: x.chunk(4), [r(5)]),
    Case("chunk_dynamic_axis", swapped_halves, [r(4, 3)], {0: [0]}, left_out="not enough values to unpack"),
    Case(
        "tensor_split", lambda x: (x.tensor_split(3), x.tensor_split([1, 4], 0), x.hsplit(2), x.vsplit([2])), [r(7, 4)]
    ),
    Case("tensor_split_dynamic", lambda x: x.tensor_split([1, 2], 0), [r(7, 4)], ALL),
    Case("tensor_split_by_a_tensor", lambda x, places: x.tensor_split(places), [r(7, 4), torch.tensor([1, 4])]),
    Case("tensor_split_by_a_constant", lambda x: x.tensor_split(torch.tensor(3)), [r(7, 4)]),
    Case("dsplit", lambda x: (x.dsplit(2), x.dsplit([1])), [r(1, 2, 4)], {0: [0]}),
    Case("unbind", lambda x: (x.unbind(), x.unbind(-1)), [r(3, 4, 2)], {0: [1]}),
    Case(
        "qkv",
        lambda x: x.reshape(x.shape[0], x.shape[1], 3, 2, 4).permute(2, 0, 3, 1, 4).unbind(0),
        [r(2, 3, 24)],
        {0: [0, 1]},
    ),
    Case("block_diag", lambda x, y, z: torch.block_diag(x, y, z), [r(2, 3), r(4), torch.tensor(2)], {0: [0, 1]}),
    Case("kron", lambda x, y: torch.kron(x, y), [r(2, 3), r(4)], "all"),
]

DIAGONALS = [
    Case(
        "diagonal",
        lambda x: (x.diagonal(), x.diagonal(1), x.diagonal(-2), x.diagonal(0, 1, 2), x.diagonal(1, -1, 0)),
        [r(3, 4, 5)],
    ),
    Case("diagonal_dynamic", lambda x: (x.diagonal(), x.diagonal(-1, 1, 2), x.diagonal(1, 2, 0)), [r(3, 4, 5)], ALL),
    Case("diagonal_outside", lambda x: x.diagonal(7), [r(3, 4)]),
    Case("diag", lambda x, v: (x.diag(), x.diag(1), v.diag(), v.diag(-2), torch.diagflat(x)), [r(3, 4), r(3)]),
    Case("diag_embed", lambda x: (x.diag_embed(), x.diag_embed(1), x.diag_embed(-1, 0, 2)), [r(2, 3)], ALL),
    Case("diag_embed_bool", lambda x: x.diag_embed(), [r(2, 3) > 0.5]),
]

BLOCKS = [
    Case("pixel_shuffle", lambda x: F.pixel_shuffle(x, 2), [r(2, 8, 3, 4)], {0: [0, 2, 3]}, has=["DepthToSpace"]),
    Case(
        "pixel_shuffle_ranks",
        lambda x, y: (F.pixel_shuffle(x, 2), F.pixel_shuffle(y, 3)),
        [r(8, 3, 4), r(2, 2, 9, 1, 2)],
    ),
    Case(
        "pixel_shuffle_int",
        lambda x, y: (F.pixel_shuffle(x, 2), F.pixel_shuffle(y, 2)),
        [i(1, 8, 3, 4), i(2, 4, 2, 2).int()],
        {0: [0, 2, 3]},
    ),
    Case("pixel_unshuffle", lambda x: F.pixel_unshuffle(x, 2), [r(2, 3, 4, 6)], {0: [0]}),
    Case(
        "pixel_unshuffle_dynamic",
        lambda x: F.pixel_unshuffle(F.pixel_shuffle(x, 2), 2),
        [r(2, 8, 3, 4)],
        {0: [0, 2, 3]},
    ),
    Case(
        "pixel_unshuffle_others",
        lambda x, y: (F.pixel_unshuffle(x, 2), F.pixel_unshuffle(y, 2)),
        [i(2, 3, 4, 6), r(2, 2, 1, 4, 4)],
    ),
    Case(
        "channel_shuffle",
        lambda x, y: (F.channel_shuffle(x, 2), F.channel_shuffle(y, 3)),
        [r(2, 6, 3, 4), r(1, 6, 5)],
        {0: [0, 2, 3]},
    ),
    Case("unfold", lambda x: (x.unfold(1, 3, 2), x.unfold(-1, 2, 1), x.unfold(0, 2, 2)), [r(2, 7, 4)]),
    Case("unfold_dynamic", lambda x: x.unfold(1, 3, 2).sum(-1), [r(2, 8)], ALL),
    Case(
        "as_strided_scatter",
        lambda x, y: (torch.as_strided_scatter(x, y, (2, 3), (1, 4), 1), x.as_strided_scatter(y[0, 0], (), ())),
        [torch.randn(3, 4), torch.randn(2, 3)],
        opset=11,
    ),
    Case(
        "as_strided",
        lambda x: (x.as_strided((2, 3), (1, 2)), x.as_strided((2, 2), (4, 1), 1), x.as_strided((), ())),
        [r(3, 4)],
    ),
    Case(
        "as_strided_permuted",
        lambda x, y: (
            x.permute(2, 0, 1).as_strided((3, 2), (1, 4)),
            torch.as_strided_scatter(x.permute(1, 2, 0), y, (2, 3), (12, 1)),
        ),
        [torch.randn(2, 3, 4), torch.randn(2, 3)],
    ),
    Case("item", lambda x, y: (x * y.item(), x + y.item()), [r(3), torch.tensor([[2.5]])]),
]


@table([*RESHAPES, *AXES, *REPEATS, *PARTS, *DIAGONALS, *BLOCKS])
def test_shape(case: Case) -> None:
    check(case)


def test_as_strided_of_a_part_is_refused() -> None:
    with pytest.raises(TonnxError, match="as_strided"):
        check(Case("as_strided", lambda x: x[1:].as_strided((2, 2), (1, 1)), [r(3, 4)]))
