"""Einsum as matrix products."""

from __future__ import annotations

import numpy as np
import pytest

from tests.legalise.harness import check, random

SIZES = {"a": 2, "b": 3, "c": 4, "d": 5, "e": 6, "i": 4, "j": 3, "k": 5, "h": 2, "q": 3}
EQUATIONS = [
    "ij,jk->ik",
    "ij,jk",
    "bhid,bhjd->bhij",
    "bhij,bhjd->bhid",
    "abc,cd->abd",
    "abc,dc->dab",
    "abc,abd->cd",
    "abc,abc->a",
    "abc,abc->",
    "abc,b->ac",
    "ab,cd->acbd",
    "i,j->ij",
    "i,i->i",
    "ij->ji",
    "ijk->",
    "ijk->j",
    "ii->i",
    "ii->",
    "ijj->ij",
    "a b c , c d -> a b d",
    "ab,bc,cd->ad",
    "abc,ade,bd->ce",
    "abi,bcj,ij->ac",
    "...ij,...jk->...ik",
    "...a,...a->...",
    "i...,j...->ij...",
    "abcd,abed->abce",
    "abcd,cde->abe",
    "bcd,adc->ab",
]


def _operands(equation: str) -> list[np.ndarray]:
    terms = equation.replace(" ", "").split("->")[0].split(",")
    return [random(*(SIZES[x] for x in term.replace("...", "ab"))) for term in terms]


@pytest.mark.parametrize("equation", EQUATIONS)
def test_einsum(equation: str) -> None:
    inputs = _operands(equation)
    build = lambda op, *xs: op.Einsum(*xs, equation=equation)  # noqa: E731
    expected = [np.asarray(np.einsum(equation, *inputs))]
    check(build, inputs, targets=(11, 9, 7), expected=expected, atol=1e-5)
    check(build, inputs, targets=(11, 9), expected=expected, dynamic=True, atol=1e-5)


def test_ellipsis_broadcasts() -> None:
    inputs = [random(3, 1, 4, 5), random(1, 2, 5, 6)]
    build = lambda op, a, b: op.Einsum(a, b, equation="...ij,...jk->...ik")  # noqa: E731
    check(build, inputs, targets=(11, 8))


def test_attention_is_a_bare_product() -> None:
    equation = "bhid,bhjd->bhij"
    build = lambda op, a, b: op.Einsum(a, b, equation=equation)  # noqa: E731
    made = check(build, _operands(equation), targets=(11,), dynamic=True)
    assert [n.op_type for n in made[11].graph.node] == ["Transpose", "MatMul"]
