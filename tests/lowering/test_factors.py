"""QR, LU, eigenvalues and singular values, and what is made of them."""

from __future__ import annotations

import pytest
import torch

from tests.lowering.harness import Case, check, table

torch.manual_seed(0)
r, la = torch.randn, torch.linalg
TALL, FLAT, SQUARE = r(2, 6, 4), r(2, 4, 6), r(2, 5, 5)
DEFICIENT = r(7, 2) @ r(2, 5)
SYMMETRIC = SQUARE + SQUARE.mT
N = {0: {0: "n", 1: "n"}}


def product(a: torch.Tensor, full: bool = False) -> tuple[torch.Tensor, ...]:
    """What the signs of singular vectors do not change."""
    u, s, v = la.svd(a, full_matrices=full)
    count = s.shape[-1]
    return s, u[..., :count] * s[..., None, :] @ v[..., :count, :], u.mT @ u, v @ v.mT


def by_eigenvectors(a: torch.Tensor) -> tuple[torch.Tensor, ...]:
    values, vectors = la.eigh(a)
    return values, vectors * values[..., None, :] @ vectors.mT, vectors.mT @ vectors


CASES = [
    Case("qr", lambda a, b: (*la.qr(a, mode="complete"), la.qr(b, mode="r")[1]), [TALL, FLAT]),
    Case("qr, any size", la.qr, [SQUARE[0]], N, opset=11),
    Case("qr, columns of zeros", la.qr, [torch.eye(4, 3) * torch.tensor([2.0, 0.0, -1.0])]),
    Case("reflections", lambda a, c: (*torch.geqrf(a), torch.ormqr(*torch.geqrf(a), c),
                                      torch.ormqr(*torch.geqrf(a), c.mT, left=False, transpose=True),
                                      la.householder_product(*torch.geqrf(a))), [TALL, r(2, 6, 3)]),
    Case("lu", lambda a, b: (*la.lu(a), *la.lu(b), *la.lu_factor(a)), [TALL, FLAT], left_out="is zero"),
    Case("lu, any size", la.lu, [SQUARE[0]], N, opset=11),
    Case("of nothing", lambda a: (*la.lu(a), *la.lu(a, pivot=False), *la.qr(a), *la.svd(a)), [torch.empty(0, 4, 3)]),
    Case("pinverse, any size", torch.pinverse, [TALL], {0: [0, 1]}),
    Case("lu, used", lambda a, b: (la.lu_solve(*la.lu_factor(a), b), torch.lu_solve(b, *la.lu_factor(a))),
         [SQUARE, r(2, 5, 3)], left_out="is zero"),
    Case("lu, transposed", lambda a, b: la.lu_solve(*la.lu_factor(a), b, left=False, adjoint=True),
         [SQUARE, r(2, 3, 5)], left_out="is zero"),
    Case("tensorsolve", la.tensorsolve, [r(2, 3, 6), r(2, 3)], left_out="singular"),
    Case("svd, tall", product, [TALL], {0: [0]}),
    Case("svd, flat, full", lambda a: product(a, full=True), [FLAT], opset=11),
    Case("svd, any size", lambda a: product(a)[:2], [SQUARE[0]], N),
    Case("svd, deficient", product, [DEFICIENT]),
    Case("svd, float64", lambda a: product(a.double()), [TALL]),
    Case("nuclear norm, large", lambda a: la.matrix_norm(a, "nuc"), [r(40, 40)]),
    Case("eigh", by_eigenvectors, [SYMMETRIC], {0: [0]}),
    Case("eigh, upper", lambda a: la.eigvalsh(a, UPLO="U"), [SQUARE], opset=11),
    Case("eigh, large", by_eigenvectors, [r(40, 40)]),
    Case("pinv", lambda a, b: (la.pinv(a), torch.pinverse(b), la.pinv(a @ a.mT, hermitian=True)), [TALL, FLAT]),
    Case("pinv, deficient", lambda a: (la.pinv(a), la.pinv(a, atol=1.0), la.matrix_rank(a)), [DEFICIENT]),
    Case("cond", lambda a: (la.cond(a), la.cond(a, -2)), [SQUARE]),
    Case("lstsq", lambda a, b: la.lstsq(a, b).solution, [TALL, r(2, 6, 3)]),
    Case("lstsq, all of it", lambda a, b: la.lstsq(a, b, driver="gels")[:2], [TALL, r(2, 6, 3)]),
    Case("lstsq, flat", lambda a, b: la.lstsq(a, b).solution, [FLAT[0], r(4)]),
]  # fmt: skip


@table(CASES)
@pytest.mark.filterwarnings("ignore")
def test_factors(case: Case) -> None:
    check(case)
