"""Tensors from nothing: filled, counted, triangular, random."""

import torch

from tests.lowering.harness import Case, check, table

X = torch.randn(2, 3, generator=torch.Generator().manual_seed(1))
SQUARE = torch.randn(2, 4, 4, generator=torch.Generator().manual_seed(1))

CASES = [
    *(
        Case(
            f"windows of {n}",
            lambda x, n=n: (
                *(make(n, p) for p in (True, False) for make in (torch.hann_window, torch.blackman_window)),
                *(make(n, p) for p in (True, False) for make in (torch.bartlett_window, torch.hamming_window)),
                torch.hamming_window(n, True, 0.5, 0.4) * x[0, 0],
                torch.kaiser_window(n, False, 5.0),
                torch.kaiser_window(n, dtype=torch.float64),
            ),
            [X],
        )
        for n in (0, 1, 5)
    ),
    Case(
        "zeros, ones, full",
        lambda x: (
            torch.zeros(2, 3),
            torch.ones(4, dtype=torch.int32) + x.sum().int(),
            torch.full((2,), 7) * x.shape[0],
        ),
        [X],
    ),
    Case(
        "dynamic sizes",
        lambda x: (
            torch.zeros(x.shape[0], 2),
            torch.ones(x.shape[1], x.shape[0], dtype=torch.int64),
            torch.full((x.shape[0] * 2,), 2.5),
        ),
        [X],
        dynamic="all",
    ),
    Case("full of a size", lambda x: torch.full((x.shape[0],), x.shape[1]), [X], dynamic="all"),
    Case("full of bools", lambda x: torch.full(x.shape, True), [X], dynamic="all"),
    Case(
        "like another",
        lambda x: (torch.zeros_like(x), torch.ones_like(x, dtype=torch.bool), torch.full_like(x, 3, dtype=torch.int8)),
        [X],
        dynamic="all",
    ),
    Case("like a half", lambda x: (torch.ones_like(x), torch.full_like(x, 0.5)), [X.bfloat16()], dynamic="all"),
    Case(
        "new",
        lambda x: (
            x.new_zeros(x.shape[0]),
            x.new_ones(2, dtype=torch.int64) * x.shape[1],
            x.new_full((x.shape[1], 1), 2),
        ),
        [X],
        dynamic="all",
    ),
    Case(
        "empty, then filled",
        lambda x: (torch.empty(x.shape[0], 3).fill_(2) + x, torch.empty_like(x).zero_() + x),
        [X],
        dynamic={0: [0]},
    ),
    Case("large ones are not stored", lambda x: x + torch.zeros(512, 512), [torch.ones(1)], has=["ConstantOfShape"]),
    Case(
        "scalar tensors",
        lambda x: (torch.tensor(3.5) * x, torch.scalar_tensor(x.shape[0], dtype=torch.float32)),
        [X],
        dynamic="all",
    ),
    Case(
        "arange of a size",
        lambda x: (torch.arange(x.shape[1]), torch.arange(1, x.shape[1] + 1, 2)),
        [X],
        dynamic="all",
        has=["Range"],
    ),
    Case("arange in a float dtype", lambda x: torch.arange(x.shape[0], dtype=torch.float32) / 2, [X], dynamic="all"),
    Case("arange downwards", lambda x: torch.arange(x.shape[1], 0, -1), [X], dynamic="all"),
    Case(
        "fixed aranges",
        lambda x: (torch.arange(5) + x.sum().int(), torch.arange(0, 1, 0.1) + x.sum(), torch.arange(5, 1, -2) + 0),
        [X],
    ),
    Case("arange cut to integers", lambda x: torch.arange(0.5, -8.1, -4.0, dtype=torch.long) + x.long(), [X[0, 0]]),
    Case(
        "arange stepped without fractions",
        lambda x: [torch.arange(0.5, 5, 1.9, dtype=d) + x.to(d) for d in (torch.int32, torch.int64, torch.uint8)],
        [X[0, 0]],
    ),
    Case("arange by a fraction of a size", lambda x: torch.arange(0, x.shape[1], 0.25), [X], dynamic="all"),
    Case(
        "linspace",
        lambda x: (
            torch.linspace(-1, 1, 7) + x.sum(),
            torch.linspace(0, 10, 1),
            torch.linspace(0, 9.7, 4, dtype=torch.int64),
        ),
        [X],
    ),
    Case(
        "linspace between tensors", lambda x: (torch.linspace(x[0, 0], x[1, 1], 5), torch.linspace(0, x.sum(), 4)), [X]
    ),
    Case("logspace", lambda x: (torch.logspace(0, 2, 5) + x.sum(), torch.logspace(0, 3, 4, base=2)), [X]),
    Case("eye", lambda x: (torch.eye(3) + x[:1], torch.eye(2, 3, dtype=torch.int64)), [X], dynamic={0: [0]}),
    Case(
        "eye of a size",
        lambda x: (torch.eye(x.shape[1]), torch.eye(x.shape[0], x.shape[1], dtype=torch.bool)),
        [X],
        dynamic="all",
    ),
    Case(
        "tril and triu",
        lambda x: (x.tril(), x.triu(1), x.tril(-1), x.triu(-2)),
        [SQUARE],
        dynamic={0: [0]},
        has=["Trilu"],
    ),
    Case(
        "triangles of other dtypes",
        lambda x: tuple(x.to(d).tril() for d in (torch.bool, torch.int8, torch.int64, torch.float16)),
        [SQUARE],
    ),
    Case("a causal mask", lambda x: torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril(), [X], dynamic="all"),
    Case("a diagonal that is a size", lambda x, y: x.triu(y.shape[0]), [SQUARE, torch.ones(2)], dynamic={1: [0]}),
    Case(
        "triangle indices",
        lambda x: (torch.tril_indices(3, 4) + x.shape[0], torch.triu_indices(4, 4, 1)),
        [X],
        dynamic="all",
    ),
    Case(
        "fill",
        lambda x, v: (x.clone().fill_(3), x.clone().fill_(v), torch.fill(x, 2.0)),
        [X, torch.tensor(4.0)],
        dynamic={0: [0, 1]},
    ),
]


@table(CASES)
def test_create(case: Case) -> None:
    check(case)


# What is random differs at every run: only the shape, the dtype and the range can be compared.
RANDOM = [
    Case(
        "rand",
        lambda x: ((torch.rand(2, 3) + x.sum().sign() < 9), (torch.rand(x.shape) >= 0).float(), torch.rand_like(x) < 1),
        [X],
        dynamic={0: [0]},
    ),
    Case(
        "randn",
        lambda x: (torch.randn(2, 3).isnan(), torch.randn_like(x).isfinite(), torch.randn(x.shape[0], 2) * 0 + 1),
        [X],
        dynamic={0: [0]},
    ),
    Case(
        "randint",
        lambda x: (torch.randint(3, (4,)) < 3, torch.randint(2, 5, x.shape) >= 2, torch.randint_like(x, 4) < 4),
        [X],
        dynamic="all",
    ),
    Case("randint up to a size", lambda x: torch.randint(0, x.shape[1], (5,)) < x.shape[1], [X], dynamic="all"),
    Case("randperm", lambda x: torch.randperm(x.shape[1]).sort().values, [X], dynamic="all"),
    Case(
        "bernoulli",
        lambda x: (torch.bernoulli(torch.zeros_like(x)), torch.bernoulli(torch.ones_like(x)), x.bernoulli(0.0)),
        [X],
        dynamic="all",
    ),
    Case(
        "normal",
        lambda x: (torch.normal(x, 0.0), torch.normal(0.0, x * 0), x.clone().normal_(2.0, 0.0)),
        [X],
        dynamic="all",
    ),
    Case(
        "uniform and exponential",
        lambda x: (x.clone().uniform_(2, 3) > 1.9, x.clone().exponential_() >= 0),
        [X],
        dynamic="all",
    ),
    Case(
        "multinomial",
        lambda x: torch.multinomial((x > 0).float(), 2).sort().values,
        [torch.tensor([[0.0, 5, 5], [3, 0, 7]])],
        left_out="invalid multinomial distribution",
    ),
    Case(
        "multinomial puts back",
        lambda x: torch.multinomial(x, 4, replacement=True),
        [torch.tensor([[0.0, 1.0], [1.0, 0.0]])],
        left_out="invalid multinomial distribution",
    ),
]


@table(RANDOM)
def test_random(case: Case) -> None:
    check(case, opset_version=min(case.opset, 21))  # ONNX Runtime 1.31 has no kernels of the version of opset 22
