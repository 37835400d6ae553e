"""Pointwise arithmetic, functions of real numbers, comparisons, bits and casts."""

import pytest
import torch

from tests.lowering.harness import Case, check, table

INF, NAN = float("inf"), float("nan")


def real(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1))


def whole(*shape: int, low: int = -9, high: int = 10, dtype: torch.dtype = torch.int64) -> torch.Tensor:
    return torch.randint(low, high, shape, generator=torch.Generator().manual_seed(2)).to(dtype)


def by_their_number(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    rows = x.nonzero()[:, 0]
    n = rows.shape[0]
    return rows % n, rows // n, torch.fmod(rows, n), torch.div(rows, n, rounding_mode="trunc")


EDGES = torch.tensor([0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 1e-7, -1e-7, INF, -INF, NAN, 3e38])
X, Y, I, J = real(2, 3), real(2, 3), whole(2, 3), whole(2, 3, low=1)  # noqa: E741
BITS = torch.tensor([[True, False, True], [False, False, True]])
HALF = X.half()

ARITHMETIC = [
    Case("add broadcasts", lambda x, y: x + y, [X, real(3)], dynamic={0: [0]}),
    Case("add int and float number", lambda x: x + 1.5, [I], dynamic="all"),
    Case("add with alpha", lambda x, y: torch.add(x, y, alpha=2.5), [X, Y]),
    Case("add bools", lambda x, y: x + y, [BITS, ~BITS]),
    Case("add of a scalar tensor keeps float32", lambda x, y: x + y, [X, torch.tensor(2.0, dtype=torch.float64)]),
    Case("add half and int", lambda x, y: x + y, [HALF, I]),
    Case("sub and rsub", lambda x, y: (x - y, 1 - x, torch.rsub(x, y, alpha=3)), [X, Y], dynamic={0: [0], 1: [0]},
         left_out="must match the size"),
    Case("mul bools and ints", lambda b, c, i: (b * c, b * i, i * 2), [BITS, ~BITS, I]),
    Case("small integers wrap around", lambda x: (x * 7, x + 100, -x), [whole(5, low=0, high=100, dtype=torch.uint8)]),
    Case("in place", lambda x: (x + 0).mul_(2).add_(1).clamp_(min=0), [X], dynamic="all"),
    Case("a number times a size", lambda x: x * x.shape[0] + x.shape[1] / 2, [X], dynamic="all"),
    Case("true division of ints", lambda x, y: (x / y, x / 4, 1 / y), [I, J]),
    Case("division towards zero", lambda x, y: torch.div(x, y, rounding_mode="trunc"), [X, Y]),
    Case("integer division towards zero", lambda x, y: torch.div(x, y, rounding_mode="trunc"), [I, J]),
    Case("floor division", lambda x, y: (x // y, x // 0.3, x // -2, x // 4), [X, Y], has=["Floor"]),
    Case("floor division is exact", lambda x: x // 0.1, [torch.tensor([1.0, 0.3, -0.3, 7.0, INF])]),
    Case("floor division by zero", lambda x, y: x // y, [torch.tensor([1.0, -1.0, 0.0]), torch.zeros(3)]),
    Case("integer floor division", lambda x, y: (x // y, x // -3), [I, whole(2, 3, low=1)]),
    Case("floor division of int8", lambda x: x // 3, [torch.tensor([-128, -7, 7, 127], dtype=torch.int8)]),
    Case("remainder has the divisor's sign", lambda x, y: (x % y, x % -0.7, x % 0.7), [X, Y]),
    Case("integer remainder", lambda x, y: (x % y, x % -4, torch.fmod(x, 4)), [I, J]),
    Case("integers of which there are none", by_their_number, [torch.zeros(4)], {0: [0]}),
    Case("fmod has the dividend's sign", lambda x, y: torch.fmod(x, y), [X, Y]),
    Case(
        "powers", lambda x: (x**2, x**3, x**1, x**0, x.abs() ** 0.5, x**-1, x.abs() ** -0.5, 2**x), [X], dynamic="all"
    ),
    Case("integer powers", lambda x, y: (x**2, x**5, x**y, 2**y), [I, whole(2, 3, low=0, high=5)]),
    Case(
        "powers of small ints", lambda x, y: (x**3, x**y), [I.to(torch.int8), whole(2, 3, low=0, high=3).to(torch.int8)]
    ),
    Case("int to a float power", lambda x: x**0.5, [whole(4, low=0)]),
    Case("float_power", lambda x, y: (torch.float_power(x, 2), torch.float_power(y, x)), [I, whole(2, 3, low=1)]),
    Case(
        "addcmul, addcdiv, lerp",
        lambda x, y: (
            torch.addcmul(x, x, y, value=0.5),
            torch.addcdiv(x, x, y, value=2),
            torch.lerp(x, y, 0.3),
            torch.lerp(x, y, y),
        ),
        [X, Y],
        dynamic={0: {0: "n"}, 1: {0: "n"}},
    ),
    Case(
        "rounding",
        lambda x: (x.floor(), x.ceil(), x.trunc(), x.round(), x.frac(), x.round(decimals=2)),
        [EDGES[:8] * 3],
    ),
    Case("rounding of ints", lambda x: (x.floor(), x.ceil(), x.trunc(), x.round()), [I]),
    Case("halves round to even", lambda x: x.round(), [torch.tensor([0.5, 1.5, 2.5, -0.5, -1.5])]),
    Case("clamp", lambda x: (x.clamp(-0.5, 0.5), x.clamp(min=0), x.clamp(max=0.1)), [X], dynamic="all", has=["Clip"]),
    Case("clamp keeps NaN", lambda x: x.clamp(-1, 1), [EDGES]),
    Case("clamp with tensors", lambda x, y: (x.clamp(min=y), x.clamp(y, y + 1), torch.clamp_max(x, y)), [X, Y]),
    Case("clamp int by a float", lambda x: x.clamp(min=0.5), [I]),
    Case("clamp int16 and uint8", lambda x, y: (x.clamp(-2, 2), y.clamp(3, 5)), [I.short(), J.to(torch.uint8)]),
    Case(
        "maximum and minimum", lambda x, y: (torch.maximum(x, y), torch.minimum(x, y)), [X, real(3)], dynamic={0: [0]}
    ),
    Case("maximum of bools and int16", lambda x, y: (torch.maximum(x, ~x), torch.minimum(y, y + 1)), [BITS, I.short()]),
    Case(
        "fmax skips NaN", lambda x, y: (torch.fmax(x, y), torch.fmin(x, y), torch.maximum(x, y)), [EDGES, EDGES.flip(0)]
    ),
    Case("sign", lambda x, i, b: (x.sign(), i.sign(), b.sign(), x.sgn()), [EDGES[:10], I, BITS]),
    Case("abs, neg", lambda x, i: (x.abs(), -x, i.abs(), -i, +x), [X, I.to(torch.int8)]),
    Case(
        "copysign sees the sign of zero",
        lambda x, y: (torch.copysign(x, y), x.signbit()),
        [EDGES[:10], EDGES[:10].flip(0)],
    ),
    Case("heaviside", lambda x, y: torch.heaviside(x, y), [EDGES[:5], real(5)]),
    Case("nan_to_num", lambda x: (x.nan_to_num(), x.nan_to_num(1.0, 2.0, 3.0), x.nan_to_num(posinf=9.0)), [EDGES]),
    Case("nan_to_num half", lambda x: x.nan_to_num(), [EDGES[:11].half()]),
    Case("hypot, ldexp, square", lambda x, y, i: (torch.hypot(x, y), torch.ldexp(x, i), x.square()), [X, Y, I]),
    Case(
        "hypot of halves does not overflow",
        torch.hypot,
        [torch.full((3,), 300.0).half(), torch.full((3,), 300.0).half()],
    ),
    Case(
        "bfloat16", lambda x, y: (x * y + 1, x.exp(), x.sum(1), torch.where(x > 0, x, y)), [X.bfloat16(), Y.bfloat16()]
    ),
]

SPECIAL = [
    Case(
        "trigonometry", lambda x: (x.sin(), x.cos(), x.tan(), x.asin(), x.acos(), x.atan()), [X.tanh()], dynamic="all"
    ),
    Case("hyperbolic", lambda x: (x.sinh(), x.cosh(), x.tanh(), x.asinh(), x.atanh(), (x + 2).acosh()), [X.tanh()]),
    Case("functions of ints", lambda x: (x.exp(), x.sin(), x.sqrt(), x.reciprocal(), x.rsqrt(), x.sigmoid()), [J]),
    Case("functions of bools", lambda x: (x.exp(), x.cos()), [BITS]),
    Case("functions of doubles", lambda x: (x.erf(), x.tan(), x.sinh(), x.log1p()), [X.double().abs()]),
    Case("functions of halves", lambda x: (x.exp(), x.tan(), x.erfinv(), x.log1p(), x.expm1()), [(X / 4).half()]),
    Case("logarithms", lambda x: (x.log(), x.log2(), x.log10(), x.log1p()), [X.abs()], dynamic="all"),
    Case("log2 of powers of two", lambda x: x.log2().floor(), [2.0 ** torch.arange(-40, 41)]),
    Case("log10 of powers of ten", lambda x: x.log10().floor(), [10.0 ** torch.arange(-9, 11)]),
    Case(
        "log1p and expm1 of tiny numbers", lambda x: (x.log1p() / x, x.expm1() / x), [10.0 ** torch.arange(-12.0, 1.0)]
    ),
    Case("log1p at its ends", torch.log1p, [torch.tensor([-1.0, 0.0, INF, -0.5])]),
    Case("expm1 at its ends", torch.expm1, [torch.tensor([-INF, -50.0, 0.0, 80.0, INF])]),
    Case("exp2", torch.exp2, [torch.arange(-10.0, 10)], dynamic="all"),
    Case("logaddexp", lambda x, y: (torch.logaddexp(x, y), torch.logaddexp2(x, y)), [X * 50, Y * 50]),
    Case(
        "logaddexp of infinities",
        torch.logaddexp,
        [torch.tensor([-INF, -INF, INF, INF]), torch.tensor([-INF, 1.0, INF, 0.0])],
    ),
    Case(
        "xlogy",
        lambda x, y: (torch.xlogy(x, y), torch.special.xlog1py(x, y)),
        [torch.tensor([0.0, 0.0, 2.0]), torch.tensor([0.0, NAN, 3.0])],
    ),
    Case(
        "entr, logit",
        lambda x: (torch.special.entr(x), x.logit(), x.logit(eps=0.2)),
        [torch.tensor([0.0, 0.3, 0.9, 1.0])],
    ),
    Case(
        "atan2 in every quadrant",
        torch.atan2,
        [torch.tensor([1.0, 1, -1, -1, 0, 0, 0, 1, -1]), torch.tensor([1.0, -1, 1, -1, 1, -1, 0, 0, 0])],
    ),
    Case(
        "erf and its inverse",
        lambda x: (x.erf(), x.erfc(), x.erfinv(), torch.special.ndtr(x)),
        [torch.linspace(-1, 1, 41)],
    ),
    Case("sinc, deg2rad, rad2deg", lambda x, i: (x.sinc(), x.deg2rad(), x.rad2deg(), i.deg2rad()), [EDGES[:8], I]),
    Case(
        "modified Bessel functions",
        lambda x: (x.i0(), torch.special.i0e(x), torch.special.i1(x), torch.special.i1e(x)),
        [torch.tensor([-20.0, -3.75, -1.0, 0.0, 0.2, 3.0, 4.0, 60.0])],
    ),
    Case(
        "in float64",
        lambda x: (x.i0(), torch.special.i1e(x), (x / 301).erfinv(), (x.abs() + 1).lgamma()),
        [torch.tensor([-20.0, -16.0, -1.0, 0.0, 0.2, 15.9, 16.1, 60.0, 300.9999], dtype=torch.float64)],
    ),
    Case(
        "lgamma and digamma",
        lambda x: (x.lgamma(), x.digamma()),
        [torch.tensor([-2.7, -0.3, 0.1, 0.5, 1.0, 2.0, 7.3, 100.0])],
    ),
]

COMPARISON = [
    Case(
        "comparisons",
        lambda x, y: (x < y, x <= y, x > y, x >= y, x == y, x != y),
        [X, X.round()],
        dynamic={0: [0], 1: [0]},
        left_out="must match the size",
    ),
    Case("int against a float number", lambda x: (x < 0.5, x == 1.0, x >= 2), [I]),
    Case("comparisons of bools", lambda x, y: (x < y, x >= y, x == y, x != y), [BITS, BITS.flip(0)]),
    Case("comparisons of small ints", lambda x, y: (x < y, x == y, x > 3), [I.to(torch.int8), J.to(torch.uint8)]),
    Case(
        "kinds of numbers",
        lambda x: (x.isnan(), x.isinf(), x.isfinite(), x.isposinf(), x.isneginf()),
        [EDGES],
        dynamic="all",
    ),
    Case("kinds of ints", lambda x: (x.isnan(), x.isinf(), x.isfinite()), [I], dynamic="all"),
    Case("kinds of halves", lambda x: (x.isnan(), x.isinf(), x.isfinite()), [EDGES[:11].half()]),
    Case("logic", lambda x, y: (x.logical_and(y), x.logical_or(y), x.logical_xor(y), x.logical_not()), [I, X]),
    Case("bits", lambda x, y: (x & y, x | y, x ^ y, ~x, x & 3), [I, J], dynamic={0: {0: "n"}, 1: {0: "n"}}),
    Case("bits of bools", lambda x, y: (x & y, x | y, x ^ y, ~x), [BITS, BITS.flip(0)]),
    Case("shifts", lambda x, y: (x << 2, x >> 1, x << y, x >> y), [I, whole(2, 3, low=0, high=6)]),
    Case(
        "shifts of small ints",
        lambda x, y: (x >> y, x << 1),
        [I.to(torch.int8), whole(2, 3, low=0, high=6).to(torch.int8)],
    ),
    Case("where", lambda c, x, y: torch.where(c, x, y), [BITS, X, real(3)], dynamic={0: {0: "n"}, 1: {0: "n"}}),
    Case(
        "where with numbers",
        lambda c, x: (torch.where(c, x, 0.0), torch.where(c, 1, x), torch.where(c, 1.0, 2.0)),
        [BITS, X],
    ),
    Case("where promotes", lambda c, x, y: torch.where(c, x, y), [BITS, I, X]),
    Case(
        "where of bools and int16",
        lambda c, x, y: (torch.where(c, c, ~c), torch.where(c, x, y)),
        [BITS, I.short(), J.short()],
    ),
    Case(
        "isclose", lambda x, y: (torch.isclose(x, y), torch.isclose(x, y, equal_nan=True)), [EDGES, EDGES * (1 + 1e-6)]
    ),
    Case(
        "isin",
        lambda x, y: (torch.isin(x, y), torch.isin(x, y, invert=True), torch.isin(x, 3)),
        [I, whole(4)],
        dynamic="all",
    ),
]

CASTS = [
    Case(
        "to every dtype",
        lambda x: tuple(
            x.to(d)
            for d in (
                torch.float64,
                torch.float16,
                torch.bfloat16,
                torch.int64,
                torch.int32,
                torch.int16,
                torch.int8,
                torch.bool,
            )
        ),
        [X * 3],
        dynamic="all",
    ),
    Case(
        "from int and bool",
        lambda i, b: (i.float(), i.bool(), i.half(), b.float(), b.long(), b.to(torch.uint8)),
        [I, BITS],
    ),
    Case(
        "casts that are none",
        lambda x: x.to(torch.float32).clone().contiguous().detach() * 1,
        [X],
        has_not=["Cast", "Identity"],
    ),
    Case("type_as and to another tensor", lambda x, y: (x.type_as(y), x.to(y)), [I, HALF]),
    Case("copy_ casts and broadcasts", lambda x, y: x.clone().copy_(y), [X, whole(3)], dynamic={0: [0]}),
]


@table([*ARITHMETIC, *SPECIAL, *COMPARISON, *CASTS])
def test_math(case: Case) -> None:
    check(case)


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int16, torch.int32, torch.bfloat16, torch.float64])
def test_every_dtype_runs(dtype: torch.dtype) -> None:
    def model(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x + y, x * y, torch.maximum(x, y), x.clamp(1, 3), torch.where(x > y, x, y), x.abs(), x.sum(), x.amax(0)

    check(Case("dtype", model, [J.to(dtype), J.flip(0).to(dtype)], dynamic={0: {0: "n"}, 1: {0: "n"}}))
