"""Reductions, norms, softmax and running sums."""

import torch

from tests.lowering.harness import Case, check, table

INF, NAN = float("inf"), float("nan")


def real(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1))


X = real(2, 3, 4)
I = torch.arange(24).reshape(2, 3, 4) * 5 % 13 - 6  # noqa: E741
BITS = I > 0
SCALAR = torch.tensor(1.5)
GAPS = torch.tensor([[1.0, NAN, 2.0], [NAN, NAN, NAN], [3.0, 4.0, 5.0]])

CASES = [
    Case("sum", lambda x: (x.sum(), x.sum(1), x.sum((0, -1)), x.sum(-1, keepdim=True), x.sum([])), [X], dynamic="all"),
    Case("sum of ints and bools", lambda x, b: (x.sum(), b.sum(1), x.int().sum(0), x.to(torch.uint8).sum()), [I, BITS]),
    Case("sum in another dtype", lambda x, i: (x.sum(1, dtype=torch.float64), i.sum(0, dtype=torch.float32)), [X, I]),
    Case(
        "reductions of a scalar", lambda x: (x.sum(), x.mean(0), x.amax(-1), x.prod(), x.std(unbiased=False)), [SCALAR]
    ),
    Case(
        "reductions of nothing",
        lambda x: (x.sum(0), x.prod(0), x.any(0), x.all(0), x.mean(0), x.sum(1)),
        [torch.zeros(0, 3)],
    ),
    Case("not contiguous", lambda x: x.transpose(0, 2).sum(1), [X], dynamic="all"),
    Case("mean", lambda x: (x.mean(), x.mean((1, 2), keepdim=True), x.mean(0)), [X], dynamic="all", has=["ReduceMean"]),
    Case("mean of halves and into float32", lambda x: (x.mean(1), x.mean(dtype=torch.float32)), [X.half()]),
    Case("prod", lambda x, i: (x.prod(), x.prod(1), i.prod(-1, keepdim=True)), [X, I]),
    Case("amax and amin", lambda x: (x.amax(), x.amin((0, 2)), x.amax(1, keepdim=True)), [X], dynamic="all"),
    Case("max and min of all", lambda x, i, b: (x.max(), i.min(), b.max(), i.short().max()), [X, I, BITS]),
    Case("max and min along an axis", lambda x: (*x.max(1), *x.min(-1, keepdim=True)), [X], dynamic="all"),
    Case("max of a scalar along an axis", lambda x: tuple(x.max(0)), [SCALAR]),
    Case("aminmax", lambda x: (*torch.aminmax(x), *torch.aminmax(x, dim=1)), [X]),
    Case("argmax and argmin", lambda x: (x.argmax(), x.argmin(1), x.argmax(-1, keepdim=True)), [X], dynamic="all"),
    Case("argmax over everything keeps the rank", lambda x: x.argmax(keepdim=True), [X]),
    Case(
        "argmax of ints and a scalar",
        lambda i, s: (i.argmax(1), i.short().argmin(0), s.argmax()),
        [real(3, 4).argsort(), SCALAR],
    ),
    Case(
        "any and all",
        lambda x: (x.any(), x.all(), x.any(1), x.all(-1, keepdim=True), x.any((0, 2))),
        [BITS],
        dynamic="all",
    ),
    Case("any and all of numbers", lambda x, i: (x.any(1), i.all(0), i.to(torch.uint8).any()), [X, I]),
    Case(
        "var and std",
        lambda x: (x.var(), x.std(1), x.var((0, 2), keepdim=True), x.std(0, unbiased=False)),
        [X],
        dynamic="all",
    ),
    Case(
        "var with a correction",
        lambda x: (x.var(1, correction=0), x.std(2, correction=2), x.var(0, correction=1.5)),
        [X],
    ),
    Case(
        "var_mean and std_mean",
        lambda x: (*torch.var_mean(x, 1), *torch.std_mean(x, (0, 2), keepdim=True)),
        [X],
        dynamic="all",
    ),
    Case("var of one element", lambda x: x.var(1), [real(3, 1)]),
    Case("var of halves", lambda x: x.var(1), [(X * 100).half()]),
    Case(
        "norms",
        lambda x: (x.norm(), x.norm(dim=1), x.norm(p=1, dim=(0, 2)), x.norm(p=3, dim=1, keepdim=True)),
        [X],
        dynamic="all",
    ),
    Case("vector norms", lambda x: tuple(torch.linalg.vector_norm(x, o, 1) for o in (0, 1, 2, 2.5, INF, -INF)), [X]),
    Case(
        "matrix norms",
        lambda x: (torch.linalg.matrix_norm(x), torch.linalg.matrix_norm(x, 1), torch.linalg.norm(x[0])),
        [X],
    ),
    Case("normalise", lambda x: torch.nn.functional.normalize(x, dim=1), [X], dynamic="all"),
    Case("renorm", lambda x: torch.renorm(x, 2, 0, 1.0), [X]),
    Case("logsumexp", lambda x: (x.logsumexp(1), x.logsumexp((0, 2), keepdim=True)), [X * 50], dynamic="all"),
    Case("logsumexp of infinities", lambda x: x.logsumexp(1), [torch.tensor([[-INF, -INF], [-INF, 1.0], [INF, 0.0]])]),
    Case("nansum and nanmean", lambda x: (x.nansum(), x.nansum(1), x.nanmean(1), x.nanmean()), [GAPS]),
    Case("count_nonzero", lambda x: (torch.count_nonzero(x), torch.count_nonzero(x, 1)), [I], dynamic="all"),
    Case(
        "dist and pairwise",
        lambda x, y: (torch.dist(x, y), torch.dist(x, y, 1), torch.nn.functional.pairwise_distance(x, y)),
        [X, X + 1],
    ),
    Case(
        "cdist",
        lambda x, y: (torch.cdist(x, y), torch.cdist(x, y, p=1)),
        [real(2, 3, 4), real(2, 5, 4)],
        dynamic={0: {0: "b", 1: "n"}, 1: {0: "b", 1: "m"}},
    ),
    Case("pdist", torch.pdist, [real(4, 3)], dynamic="all"),
    Case("trace", torch.trace, [real(3, 5)], dynamic="all"),
    Case(
        "softmax",
        lambda x: (x.softmax(-1), x.softmax(0), x.log_softmax(1)),
        [X],
        dynamic="all",
        has=["Softmax", "LogSoftmax"],
    ),
    Case(
        "softmax in float32",
        lambda x: (x.softmax(1, dtype=torch.float32), x.log_softmax(-1, dtype=torch.float64)),
        [X.half()],
    ),
    Case(
        "softmax of ints and of a scalar", lambda i, s: (i.softmax(1, dtype=torch.float32), s.softmax(0)), [I, SCALAR]
    ),
    Case(
        "softmax of what is masked entirely",
        lambda x: torch.ops.aten._safe_softmax(x, -1),
        [torch.tensor([[1.0, -INF], [-INF, -INF], [NAN, -INF]])],
    ),
    Case("softmin", lambda x: torch.nn.functional.softmin(x, 1), [X]),
    Case("cumsum", lambda x: (x.cumsum(0), x.cumsum(-1)), [X], dynamic="all", has=["CumSum"]),
    Case("cumsum of ints and bools", lambda i, b: (i.cumsum(1), b.cumsum(0), i.to(torch.int8).cumsum(2)), [I, BITS]),
    Case("cumsum in another dtype", lambda i: i.cumsum(1, dtype=torch.float32), [I]),
    Case("cumprod", lambda x, i: (x.cumprod(1), i.cumprod(-1)), [X, I]),
    Case("cumsum of a scalar", lambda x: (x.cumsum(0), x.cumprod(0), x.logcumsumexp(0), *x.cummax(0)), [SCALAR]),
    Case("logcumsumexp", lambda x: x.logcumsumexp(1), [X * 40], dynamic="all", has=["Scan"]),
    Case("cummax and cummin", lambda x: (*x.cummax(1), *x.cummin(-1)), [X], dynamic="all"),
    Case("cummax keeps NaN", lambda x: tuple(x.cummax(0)), [torch.tensor([1.0, 3.0, NAN, 5.0])]),
    Case("cummax of ints", lambda x: (*x.cummax(0), *x.cummin(2)), [I]),
    Case(
        "cosine similarity",
        lambda x, y: torch.nn.functional.cosine_similarity(x, y, 1),
        [X, X.flip(0)],
        dynamic={0: {0: "n"}, 1: {0: "n"}},
    ),
    Case("bfloat16", lambda x: (x.sum(1), x.mean(), x.softmax(-1), x.var(0), *x.max(1)), [X.bfloat16()]),
]


@table(CASES)
def test_reduce(case: Case) -> None:
    check(case)
