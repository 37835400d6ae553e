"""Special functions: Bessel, Airy, gamma and its kin, the scaled error function, orthogonal polynomials."""

from __future__ import annotations

import pytest
import torch

from tests.lowering.harness import Case, check, table

sp = torch.special
inf, nan = float("inf"), float("nan")
AXIS = torch.cat([torch.tensor([0.0, -0.0, 1e-20, -1e-3, inf, nan]), torch.linspace(-30, 30, 121)])
ABOVE = torch.cat([torch.tensor([0.0, 1e-20, inf]), torch.logspace(-6, 2, 60)])
GRID = torch.tensor([0.0, 1e-3, 0.5, 1.0, 2.0, 3.3, 10.0, 40.0, 300.0, inf, -1.0, -1.5, -20.5])
DEGREES = torch.tensor([-1.0, 0.0, 1.0, 2.7, 3.0, 7.0, 12.0])
POLYNOMIALS = [name for name in dir(sp) if "_polynomial_" in name]

CASES = [
    *(
        Case(name, getattr(sp, name), [AXIS], {0: [0]}, opset=opset)
        for name, opset in {
            "bessel_j0": 18, "bessel_j1": 9, "spherical_bessel_j0": 18, "erfcx": 18, "log_ndtr": 11,
        }.items()
    ),
    *(
        Case(name, getattr(sp, name), [ABOVE], {0: [0]})
        for name in (
            "bessel_y0", "bessel_y1", "modified_bessel_k0", "modified_bessel_k1", "scaled_modified_bessel_k0",
            "scaled_modified_bessel_k1",
        )
    ),
    Case("airy", sp.airy_ai, [torch.linspace(-15, 15, 61)], {0: [0]}),
    Case("float64", lambda x: (sp.spherical_bessel_j0(x), sp.scaled_modified_bessel_k1(x), sp.erfcx(x)),
         [torch.linspace(0.1, 30, 50, dtype=torch.float64)]),
    Case("zeta", sp.zeta, [GRID[:9, None], GRID], {0: [0], 1: [0]}, opset=11),
    Case("zeta of a number", lambda x: (sp.zeta(x, 2), sp.zeta(3, x)), [GRID[:8]]),
    *(Case(f"polygamma {n}", lambda x, n=n: torch.polygamma(n, x), [AXIS[8:]], {0: [0]}) for n in (0, 1, 2, 5)),
    Case("incomplete gamma", lambda a, x: (torch.igamma(a, x), torch.igammac(a, x)), [GRID[:, None], GRID],
         {0: [0], 1: [0]}),
    Case("incomplete gamma, float64", sp.gammainc, [GRID[:8, None].double(), GRID[:8].double()]),
    Case("incomplete gamma, none", sp.gammaincc, [torch.ones(0), torch.ones(0)]),
    *(Case(name, getattr(sp, name), [torch.linspace(-1.5, 1.5, 9)[:, None], DEGREES], {0: [0], 1: [0]},
           left_out="overflow") for name in POLYNOMIALS),
    Case("a polynomial of one degree", lambda x: sp.legendre_polynomial_p(x, 5), [AXIS[60:70] / 30], opset=9),
    Case("one point, integers", lambda n: sp.chebyshev_polynomial_u(0.25, n), [torch.arange(6)]),
]  # fmt: skip


@table(CASES)
@pytest.mark.filterwarnings("ignore")
def test_special(case: Case) -> None:
    check(case)
