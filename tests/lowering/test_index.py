"""Indexing: slices, gathers, advanced indexing, masks, and the scatters that write the same ways."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from tests.lowering.harness import Case, check, table


def r(*shape: int) -> torch.Tensor:
    return torch.arange(1, 1 + int(torch.Size(shape).numel()), dtype=torch.float32).reshape(shape) / 7


def i(*shape: int) -> torch.Tensor:
    return torch.arange(int(torch.Size(shape).numel())).reshape(shape)


def t(*values: object) -> torch.Tensor:
    return torch.tensor(values)


ALL = "all"
aten = torch.ops.aten
MASK = torch.tensor([[True, False, True], [False, False, True]])

SLICES = [
    Case("select", lambda x: (x[0], x[:, -1], x.select(2, 1), x[1, -2, 3]), [r(2, 3, 4)], {0: [0, 1]},
         left_out="out of bounds"),
    Case("slice", lambda x: (x[1:], x[:, :-1], x[..., 1:3], x[:, ::2], x[-2:, 5:], x[:, 1:100]), [r(3, 4, 5)]),
    Case("slice_dynamic", lambda x: (x[1:], x[:, :-1], x[..., ::2], x[-2:]), [r(4, 5, 6)], ALL),
    Case("slice_dynamic_step", lambda x: (x[:, :: len(x)], x[:, 1 :: x.shape[2] - 2]), [r(4, 5, 6)], {0: [0, 1]}),
    Case("slice_by_size", lambda x, y: (x[: y.shape[0]], x[y.shape[0] - 1 :]), [r(9, 2), r(3)], {1: [0]}),
    Case("slice_nothing", lambda x: x[0:] + 1, [r(3)], ALL, has_not=["Slice"]),
    Case("slice_bool", lambda x: x[:, 1:], [MASK]),
    Case("narrow", lambda x: (x.narrow(0, 1, 2), x.narrow(-1, -3, 2)), [r(4, 5)], {0: [1]}),
]

GATHERS = [
    Case("embedding", lambda x: F.embedding(x, r(5, 3), padding_idx=0), [t(1, 0, 4)], ALL),
    Case("embedding_int32", lambda x: F.embedding(x, r(5, 3)), [torch.tensor([[1, 4]], dtype=torch.int32)], ALL),
    Case("index_select", lambda x, n: (x.index_select(0, n), x.index_select(-1, n)), [r(3, 4, 3), t(2, 0, 0)], ALL,
         left_out="index out of range"),
    Case(
        "index_select_scalars",
        lambda x, v, n: (x.index_select(0, n), v.index_select(0, n)),
        [torch.tensor(1.0), r(1), torch.tensor(0)],
    ),
    Case("gather", lambda x, n: (x.gather(1, n), x.gather(-2, n)), [r(3, 4), torch.tensor([[0, 2], [1, 0]])], {0: [1]},
         left_out="out of bounds"),
    Case("gather_scalar", lambda x, v, n: (x.gather(0, n), v.gather(0, n)), [torch.tensor(1.0), r(1), torch.tensor(0)]),
    Case("gather_vector", lambda x, n: x.gather(0, n), [r(4), t(3, 1)], ALL, left_out="out of bounds"),
    Case("take", lambda x, n: x.take(n), [r(3, 4), torch.tensor([[0, -1], [5, 11]])]),
    Case(
        "take_along_dim", lambda x, n: (x.take_along_dim(n, 1), x.take_along_dim(n)), [r(3, 4), torch.tensor([[0, 2]])]
    ),
    Case("sorted_back", lambda x: x.take_along_dim(x.argsort(1), 1), [torch.rand(3, 5)], "all"),
    Case("places_to_the_first", lambda x: x[:, torch.arange(x.shape[1] - 1, -1, -1)], [r(3, 5)], "all"),
    Case("places_from_the_end", lambda x: x[torch.arange(-2, 2)], [r(3, 5)], {0: [1]}),
]

ADVANCED = [
    Case(
        "one_index",
        lambda x, n: (x[n], x[:, n], x[..., n]),
        [r(3, 4, 3), torch.tensor([[0, -1], [2, 1]])],
        {0: [0]},
        has_not=["GatherND"],
        left_out="out of bounds",
    ),
    Case("scalar_index", lambda x, n: (x[n], x[:, n]), [r(3, 4), torch.tensor(-1)], ALL),
    Case(
        "two_indices",
        lambda x, a, b: x[a, b],
        [r(3, 4, 5), t(0, 2, -1), t(1, 3, -4)],
        {0: [2], 1: {0: "n"}, 2: {0: "n"}},
    ),
    Case("two_behind", lambda x, a, b: x[:, a, b], [r(2, 3, 4), t(0, 2), t(1, 3)], {0: [0]}),
    Case("gap", lambda x, a, b: (x[a, :, b], x[:, a, :, b]), [r(3, 4, 3, 5), t(0, 2), t(1, 2)], {0: [1]},
         left_out="out of bounds"),
    Case("none_gap", lambda x, a, b: x[a, None, b], [r(3, 4, 5), t(0, 2), t(1, 3)]),
    Case("broadcast", lambda x, a, b: (x[:, a, b], x[:, a[:, 0], b]), [r(2, 3, 4), t([0], [2]), t(1, 3)], {0: [0]}),
    Case(
        "outer",
        lambda x, a, b: x[:, :, a[:, None], b],
        [r(2, 3, 4, 5), t(0, 2, 1), t(1, -1)],
        {0: [0]},
        has_not=["GatherND", "Transpose"],
    ),
    Case(
        "rows_and_positions",
        lambda x, n: x[torch.arange(x.shape[0]), n],
        [r(3, 4, 2), t(1, 3, 0)],
        {0: {0: "n", 2: "c"}, 1: {0: "n"}},
    ),
    Case("three", lambda x, a: x[a, a, a], [r(3, 3, 3), t([0, 1], [2, -1])]),
    Case("mask_full", lambda x, m: x[m], [r(2, 3), MASK], {0: {0: "n", 1: "m"}, 1: {0: "n", 1: "m"}}),
    Case("mask_rows", lambda x: x[x[:, 0] > 0.5], [r(4, 3)], ALL),
    Case("mask_behind", lambda x, m: (x[:, m], x[:, :, m[0]]), [r(4, 2, 3), MASK], {0: [0]}),
    Case("mask_leading", lambda x, m: x[m], [r(2, 3, 4), MASK], {0: [2]}),
    Case("mask_and_index", lambda x, m, n: x[m, :, n], [r(3, 2, 4), t(True, False, True), t(3)]),
    Case("mask_and_select", lambda x, m: x[m, 1], [r(3, 2), t(True, False, True)]),
    Case("mask_none_true", lambda x: x[x > 100], [r(3, 2)], ALL),
    Case("mask_half_and_bfloat16", lambda x, y, m: (x[m], y[m]), [r(2, 3).half(), r(2, 3).bfloat16(), MASK]),
    Case(
        "indices out of range behind a mask",
        lambda x, i: torch.ops.aten._unsafe_masked_index(x, (i < 4)[:, None], [i], 7.0),
        [r(4, 3), torch.tensor([0, 9, 3, 2])],
        {0: [0]},
    ),
    Case("masked_select of other names", lambda x, m: x.masked_select(m > 0), [r(4, 3), r(4, 3)], ALL,
         left_out="must match the size"),
    Case("masked_select", lambda x, m: (x.masked_select(m), m.masked_select(m)), [r(4, 2, 3), MASK], {0: [0]}),
    Case("nonzero", lambda x, m: (x.nonzero(), m.nonzero(), torch.argwhere(m)), [i(2, 3), MASK], {0: [0]}),
    Case(
        "nonzero_kinds",
        lambda x, y, z: (x.nonzero(), y.nonzero(), z.nonzero()),
        [r(2, 3).double(), i(4).to(torch.int8), torch.tensor(3)],
    ),
    Case("nonzero_tuple", lambda x: torch.nonzero(x, as_tuple=True), [i(2, 3)], ALL),
    Case(
        "nonzero_static",
        lambda x: (torch.nonzero_static(x, size=4), torch.nonzero_static(x, size=7, fill_value=9)),
        [i(2, 3)],
        ALL,
    ),
]

INDEX_PUT = [
    Case(
        "put_index",
        lambda x, n, v: torch.index_put(x, [n], v),
        [r(3, 4), t(2, 0), r(2, 4) * 9],
        {0: {1: "c"}, 2: {1: "c"}},
    ),
    Case(
        "put_broadcast",
        lambda x, n, v: torch.index_put(x, [n], v),
        [r(3, 4), t(2, -3), torch.tensor(9.0)],
        {0: [0, 1]},
        left_out="out of bounds",
    ),
    Case("put_behind", lambda x, n, v: aten.index_put(x, [None, n], v), [r(3, 4, 2), t(2, 0), r(2, 2) * 9], {0: [0]}),
    Case("put_masked", lambda x, n, v: aten._unsafe_masked_index_put_accumulate(x, n > -9, [n], v),
         [r(3), t(2, -40, -1, 2, 90), r(5) * 9]),
    Case("put_two", lambda x, n, v: torch.index_put(x, [n, n + 1], v), [r(3, 4), t(2, 0), r(2) * 9]),
    Case("put_gap", lambda x, n, v: aten.index_put(x, [n, None, n], v), [r(3, 4, 3), t(2, 0), r(2, 4) * 9]),
    Case("put_accumulate", lambda x, n, v: torch.index_put(x, [n], v, accumulate=True), [r(3, 4), t(2, 0, 2), r(3, 4)]),
    Case(
        "put_accumulate_half",
        lambda x, n, v: torch.index_put(x, [n], v, accumulate=True),
        [r(3).half(), t(2, 0, 2), r(3).half()],
    ),
    Case(
        "put_mask",
        lambda x, m: torch.index_put(x, [m], torch.tensor(0.5)),
        [r(2, 3, 2), MASK],
        {0: [2]},
        has_not=["ScatterND"],
    ),
    Case(
        "put_mask_row",
        lambda x, m, v: aten.index_put(x, [None, m], v),
        [r(4, 2, 3, 2), MASK, r(2)],
        {0: [0]},
        has_not=["ScatterND"],
    ),
    Case("put_mask_values", lambda x, m, v: torch.index_put(x, [m], v), [r(2, 3), MASK, r(3) * 9]),
    Case("put_mask_one", lambda x, m, v: torch.index_put(x, [m], v), [r(2, 3), MASK, r(1) * 9], has_not=["ScatterND"]),
    Case("put_mask_accumulate", lambda x, m, v: torch.index_put(x, [m], v, accumulate=True), [r(2, 3), MASK, r(3) * 9]),
    Case("put_bool", lambda x, n: torch.index_put(x, [n], torch.tensor(True)), [MASK, t(1)]),
    Case("put_int", lambda x, n, v: torch.index_put(x, [n], v, accumulate=True), [i(3, 4), t(2, 2), i(2, 4)]),
]

N = torch.tensor([[0, 2, 1], [1, 0, 2]])

SCATTERS = [
    Case("scatter", lambda x, n, v: (x.scatter(0, n, v), x.scatter(1, n, v)), [r(3, 4), N, r(2, 3) * 9], {0: [1]}),
    Case("scatter_larger_source", lambda x, n, v: x.scatter(1, n, v), [r(3, 4), N, r(5, 6) * 9]),
    Case("scatter_value", lambda x, n: (x.scatter(1, n, 2.5), x.scatter(-2, n, -1)), [r(3, 4), N], {1: [0]}),
    Case("scatter_scalar", lambda x, n: x.scatter(0, n, 2.5), [torch.tensor(1.0), torch.tensor(0)]),
    Case(
        "scatter_old_reduce",
        lambda x, n, v: (x.scatter(1, n, v, reduce="add"), x.scatter(1, n, 2.0, reduce="multiply")),
        [r(3, 4), N, r(2, 3)],
    ),
    Case("scatter_add", lambda x, n, v: x.scatter_add(0, n, v), [r(3, 4), N, r(2, 3)], {0: [1]}),
    Case(
        "scatter_add_kinds",
        lambda x, y, n: (x.scatter_add(0, n, x), y.scatter_add(0, n, y)),
        [i(3), r(3).half(), t(0, 0, 2)],
    ),
    Case(
        "one_hot",
        lambda x: (F.one_hot(x, 4), F.one_hot(x, 3).float()),
        [torch.tensor([[0, 2], [1, 1]])],
        ALL,
        has=["OneHot"],
    ),
    Case("one_hot, classes counted", lambda x: F.one_hot(x), [torch.tensor([[0, 2], [1, 1]])], ALL),
    Case("combinations", lambda x: (torch.combinations(x), torch.combinations(x, 3, True), torch.combinations(x, 1)),
         [r(4)], ALL),
    Case("combinations, old", torch.combinations, [i(4)], opset=9),
    Case("bincount", lambda x, w: (x.bincount(), x.bincount(minlength=9), x.bincount(w)), [t(1, 4, 1), r(3)]),
    Case(
        "repeat_interleave", lambda x, n: (x.repeat_interleave(n, 0), torch.repeat_interleave(n)), [r(3, 2), t(2, 0, 3)]
    ),
    Case("repeat_interleave_one", lambda x, n: x.repeat_interleave(n, 1), [r(3, 2), t(2)], {0: [0]}),
    Case("repeat_interleave_flat", lambda x, n: x.repeat_interleave(n), [r(2, 2), t(2, 0, 3, 1)]),
    *[
        Case(
            f"scatter_reduce_{how}",
            lambda x, n, v, h=how: (x.scatter_reduce(1, n, v, h), x.scatter_reduce(1, n, v, h, include_self=False)),
            [r(3, 4), torch.tensor([[0, 0, 1], [1, 3, 3]]), r(2, 3) - 0.5],
        )
        for how in ("sum", "prod", "mean", "amax", "amin")
    ],
    Case(
        "scatter_reduce_int",
        lambda x, n: (x.scatter_reduce(0, n, x - 5, "mean"), x.scatter_reduce(0, n, x, "amax", include_self=False)),
        [i(4) - 3, t(1, 1, 1, 2)],
    ),
    Case(
        "index_copy", lambda x, n, v: (x.index_copy(0, n, v), x.index_copy(1, n, v.T)), [r(3, 3), t(2, 0), r(2, 3) * 9]
    ),
    Case(
        "index_add",
        lambda x, n, v: (x.index_add(0, n, v), x.index_add(1, n, v.T, alpha=2)),
        [r(3, 3), t(2, 2), r(2, 3)],
    ),
    Case(
        "index_fill",
        lambda x, n: (x.index_fill(0, n, 2.0), x.index_fill(1, n, torch.tensor(-1.0))),
        [r(3, 3), t(2, -3)],
        {0: [0, 1]},
        left_out="out of bounds",
    ),
    Case(
        "index_reduce",
        lambda x, n, v: (
            x.index_reduce(0, n, v, "prod"),
            x.index_reduce(0, n, v, "amax", include_self=False),
            x.index_reduce(1, n, v.T, "mean"),
        ),
        [r(3, 3), t(2, 2), r(2, 3)],
    ),
    Case("put_flat", lambda x, n, v: (x.put(n, v), x.put(n, v, accumulate=True)), [r(3, 4), t(2, 5), r(2)], {0: [0]},
         left_out="out of range"),
]

MASKS = [
    Case(
        "masked_fill",
        lambda x, m: (x.masked_fill(m, -9.0), x.masked_fill(m, torch.tensor(4))),
        [r(4, 2, 3), MASK],
        {0: [0]},
    ),
    Case(
        "masked_fill_inf",
        lambda x, m: x.masked_fill(m, float("-inf")).softmax(-1),
        [r(2, 3), ~MASK & t(True, True, False)],
    ),
    Case(
        "masked_fill_kinds",
        lambda x, y, m: (x.masked_fill(m, 3), y.masked_fill(m, False)),
        [i(2, 3).to(torch.int16), ~MASK, MASK],
    ),
    Case("masked_scatter", lambda x, m, v: x.masked_scatter(m, v), [r(4, 2, 3), MASK, r(5, 4)]),
    Case("slice_scatter, float64", lambda x: x.slice_scatter(torch.ones(2, 2).double(), 1, 0, 4, 2),
         [r(2, 4).double()]),
    Case(
        "slice_scatter",
        lambda x, v: (x.slice_scatter(v, 1, 1, 3), x.slice_scatter(v, 1, 0, 4, 2), x.slice_scatter(v, 1, -2)),
        [r(3, 4), r(3, 2) * 9],
        {0: {0: "n"}, 1: {0: "n"}},
    ),
    Case(
        "slice_scatter_dynamic",
        lambda x: (
            x.slice_scatter(x[1:] * 9, 0, 1),
            x.slice_scatter(x[::2] * 9, 0, 0, None, 2),
            x.slice_scatter(x[:-1] + 1, 0, 0, -1),
        ),
        [r(5, 2)],
        ALL,
    ),
    Case(
        "select_scatter",
        lambda x, v: (x.select_scatter(v, 0, 1), x.select_scatter(v, 0, -1)),
        [r(3, 4), r(4) * 9],
        {0: [0]},
        left_out="out of range",
    ),
    Case(
        "diagonal_scatter",
        lambda x, v: (x.diagonal_scatter(v), x.diagonal_scatter(v[1:], -1), x.diagonal_scatter(v, 1)),
        [r(3, 4), r(3) * 9],
    ),
    Case("diagonal_scatter_dynamic", lambda x: x.diagonal_scatter(x.diagonal(0, 1, 2) * 9, 0, 1, 2), [r(2, 3, 4)], ALL),
]


@table([*SLICES, *GATHERS, *ADVANCED, *INDEX_PUT, *SCATTERS, *MASKS])
def test_index(case: Case) -> None:
    check(case)
