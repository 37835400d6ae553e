"""Systems of equations, roots and determinants; products of groups; functions taken to many by vmap."""

from __future__ import annotations

import torch

from tests.lowering.harness import Case, check, table

torch.manual_seed(0)
r = torch.randn
A = r(2, 4, 4) + 4 * torch.eye(4)
SPD = A @ A.mT
ENDS = torch.tensor([3, 3, 7], dtype=torch.int32)

CASES = [
    Case("inverse", torch.linalg.inv, [A], {0: [0]}, has=["Loop"], left_out="singular"),
    Case("inverse, any size", torch.inverse, [A[0]], {0: {0: "n", 1: "n"}}, opset=9, left_out="singular"),
    Case("solve", torch.linalg.solve, [A, r(2, 4, 3)], {0: {0: "n"}, 1: {0: "n"}}, left_out="singular"),
    Case("solve, a vector", torch.linalg.solve, [A[0], r(4)], left_out="singular"),
    Case("solve, right", lambda a, b: torch.linalg.solve(a, b, left=False), [A, r(2, 3, 4)], left_out="singular"),
    Case("cholesky", torch.linalg.cholesky, [SPD], left_out="not positive-definite"),
    Case("cholesky, used", lambda a, b: torch.cholesky_solve(b, torch.linalg.cholesky(a)), [SPD, r(2, 4, 1)],
         left_out="not positive-definite"),
    Case("cholesky, where it fails", lambda a: torch.linalg.cholesky_ex(a - 3 * a[..., :1, :1])[1], [SPD], opset=11),
    Case("triangular", lambda a, b: torch.linalg.solve_triangular(a, b, upper=True), [A, r(2, 4, 2)]),
    Case("determinants", lambda a: (torch.det(a), *torch.linalg.slogdet(a), torch.logdet(a @ a.mT)), [A], {0: [0]}),
    Case("beyond float32", lambda a: (*torch.linalg.slogdet(a), torch.logdet(a @ a.mT)), [3 * r(2, 60, 60)]),
    Case("a determinant of 0", lambda a: torch.linalg.slogdet(a), [torch.zeros(2, 3, 3)], opset=9),
    Case("no rows", lambda a: (*torch.linalg.slogdet(a), torch.logdet(a[0])), [torch.zeros(2, 0, 0)]),
    Case("powers", lambda a: torch.linalg.matrix_power(a, -2) + torch.linalg.matrix_power(a, 5) * 1e-4, [A],
         left_out="singular"),
    Case("exponential", torch.linalg.matrix_exp, [A / 4], atol=1e-4),
    Case("grouped", lambda x, w: torch._grouped_mm(x, w, offs=ENDS), [r(7, 16).bfloat16(), r(3, 16, 8).bfloat16()],
         opset=18, has=["MatMul"]),
    Case("eight-bit floats", lambda x, y, s: torch._scaled_mm(x, y, s, s, out_dtype=torch.float32),
         [r(16, 32).to(torch.float8_e4m3fn), r(16, 32).to(torch.float8_e4m3fn).t(), torch.tensor(0.5)], opset=19),
    Case("vmap", lambda x, y: torch.vmap(torch.dot)(x, y), [r(3, 4), r(3, 4)], {0: {0: "n"}, 1: {0: "n"}}),
    Case("vmap, twice", lambda x: torch.vmap(torch.vmap(lambda a: a.sum() * a))(x), [r(2, 3, 4)]),
]  # fmt: skip


@table(CASES)
def test_linalg(case: Case) -> None:
    check(case)
