"""Sorting, the k largest, medians, distinct values, search, histograms."""

import torch

from tests.lowering.harness import Case, check, table

NAN = float("nan")


def real(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1))


def distinct(*shape: int) -> torch.Tensor:
    """Whole numbers without ties: among equals, torch does not say whose index it gives."""
    count = int(torch.tensor(shape).prod())
    return torch.randperm(count, generator=torch.Generator().manual_seed(2)).reshape(shape)


X, SCALAR = real(3, 4, 5), torch.tensor(2.5)
TIES = torch.tensor([[2, 1, 2, 1, 1], [3, 3, 3, 0, 0]])
GAPS = torch.tensor([[1.0, NAN, 2.0, 7.0], [NAN, NAN, NAN, NAN], [3.0, 4.0, 5.0, 6.0]])
EDGES = torch.tensor([-1.0, 0.0, 0.5, 2.0])

CASES = [
    Case("topk", lambda x: (*x.topk(2), *x.topk(3, dim=1, largest=False)), [X], dynamic={0: [0]}, has=["TopK"]),
    Case("topk of a dynamic axis", lambda x: tuple(x.topk(2, dim=0)), [real(6, 3)], dynamic="all",
         left_out="k out of range"),
    Case(
        "topk of as many as another size",
        lambda x, y: tuple(x.topk(y.shape[0])),
        [real(2, 9), real(4)],
        dynamic={1: [0]},
    ),
    Case(
        "topk of ints and halves", lambda x, y: (*x.topk(2), *x.short().topk(2), *y.half().topk(1)), [distinct(3, 4), X]
    ),
    Case("sort", lambda x: (*x.sort(), *x.sort(0, descending=True)), [X], dynamic="all"),
    Case("stable sort", lambda x: (*x.sort(stable=True), *x.sort(dim=0, descending=True, stable=True)), [TIES]),
    Case("sort of bools", lambda x: tuple(x.sort(stable=True)), [TIES > 1]),
    Case("sort of a scalar", lambda x: (*x.sort(), *x.topk(1), *x.kthvalue(1)), [SCALAR]),
    Case("sort of nothing", lambda x: tuple(x.sort(0)), [torch.zeros(0, 3)]),
    Case("argsort and msort", lambda x: (x.argsort(1), x.argsort(descending=True), x.msort()), [X], dynamic="all"),
    Case("kthvalue", lambda x: (*x.kthvalue(2), *x.kthvalue(1, 0, keepdim=True)), [X], dynamic="all",
         left_out="k out of range"),
    Case("median", lambda x: (x.median(), *x.median(1), *x.median(-1, keepdim=True)), [X], dynamic="all"),
    Case("median of ints", lambda x: (x.median(), *x.median(0)), [distinct(4, 5)]),
    Case("nanmedian", lambda x: (x.nanmedian(), x.nanmedian(1).values, x.nanmedian(0, keepdim=True).values), [GAPS]),
    Case("mode of a vector", lambda x: x.mode(0), [torch.tensor([3.0, 1.0, 3.0, 2.0])], dynamic={0: [0]}, opset=11),
    Case("mode", lambda x: x.mode(1).values, [TIES], dynamic={0: [0]}),
    Case(
        "quantile",
        lambda x: (x.quantile(0.3), x.quantile(0.75, 1), x.quantile(0.5, 0, keepdim=True)),
        [X],
        dynamic="all",
    ),
    Case(
        "quantiles",
        lambda x, q: (x.quantile(q, 1), x.quantile(q, -1, keepdim=True), x.quantile(q)),
        [X, torch.tensor([0.0, 0.4, 1.0])],
        dynamic={0: [0]},
    ),
    Case(
        "quantile between two",
        lambda x: tuple(x.quantile(0.4, 1, interpolation=i) for i in ("lower", "higher", "midpoint", "nearest")),
        [X],
    ),
    Case(
        "nanquantile",
        lambda x, q: (x.nanquantile(0.5, 1), x.nanquantile(q, 0, keepdim=True)),
        [GAPS, torch.tensor([0.2, 0.9])],
        left_out="q values must be in the range",
    ),
    Case("unique", lambda x: torch.unique(x, return_inverse=True, return_counts=True), [TIES]),
    Case("unique values only", lambda x: torch.unique(x), [TIES.float()], dynamic={0: [0]}),
    Case("unique rows", lambda x: torch.unique(x, dim=0, return_inverse=True, return_counts=True), [TIES[[0, 1, 0]]]),
    Case("unique of small ints and bools", lambda x: (torch.unique(x.int()), torch.unique(x > 1)), [TIES]),
    Case(
        "unique_consecutive",
        lambda x: torch.unique_consecutive(x, return_inverse=True, return_counts=True),
        [TIES],
        dynamic={0: [0]},
    ),
    Case(
        "unique_consecutive rows",
        lambda x: torch.unique_consecutive(x, return_inverse=True, return_counts=True, dim=0),
        [TIES[[0, 0, 1, 0]]],
    ),
    Case(
        "bucketize",
        lambda x, b: (torch.bucketize(x, b), torch.bucketize(x, b, right=True, out_int32=True)),
        [real(3, 4).round(decimals=0), EDGES],
        dynamic={0: [0, 1]},
    ),
    Case("bucketize a number", lambda b: torch.bucketize(0.5, b), [EDGES]),
    Case(
        "searchsorted",
        lambda s, x: (torch.searchsorted(s, x), torch.searchsorted(s, x, side="right")),
        [X.sort().values, real(3, 4, 2)],
        dynamic={1: [2]},
    ),
    Case(
        "searchsorted with a sorter",
        lambda s, x: torch.searchsorted(s, x, sorter=s.argsort()),
        [real(5), real(3)],
    ),
    Case("searched, of any order", lambda s, x: (torch.searchsorted(s, x), torch.bucketize(x, s, right=True)),
         [X.flatten(), real(3, 4)], dynamic="all", opset=11),
    Case("searched, rows of any order", lambda s, x: torch.searchsorted(s, x, sorter=s.argsort(descending=True)),
         [real(2, 9), real(2, 3)], dynamic={0: [1], 1: [1]}),
    Case("everything is before nan", lambda x: (torch.bucketize(x, EDGES), torch.bucketize(x, EDGES, right=True)),
         [torch.tensor([float("nan"), 0.0])]),
    Case("histc", lambda x: (torch.histc(x, 5, -1, 1), torch.histc(x, 4)), [X], dynamic="all"),
]


@table(CASES)
def test_sort(case: Case) -> None:
    check(case)
