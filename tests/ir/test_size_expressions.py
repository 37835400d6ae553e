"""Expressions where the name of a dimension may stand."""

from __future__ import annotations

import pytest

from tonnx.ir.size_expressions import derived_sizes, is_size, size_expression

SIZES = {"past": 5, "sequence": 3, "h": 10}


@pytest.mark.parametrize(
    ("text", "canonical", "size"),
    [
        ("past + sequence", "past + sequence", 8),
        ("past+sequence", "past + sequence", 8),
        (" 2*h//3 ", "2 * h // 3", 6),
        ("(past + 1) * h", "(past + 1) * h", 60),
        ("h % 4 - 1", "h % 4 - 1", 1),
    ],
)
def test_expressions(text: str, canonical: str, size: int) -> None:
    expression = size_expression(text, SIZES)
    assert expression is not None and expression.text == canonical and expression.of(SIZES) == size


@pytest.mark.parametrize("text", ["past", "8", "seq-len", "past + target", "past ** 2", "past +", "f(past)", "a.b", ""])
def test_names_of_their_own(text: str) -> None:
    assert size_expression(text, SIZES) is None


def test_derived_sizes_and_names() -> None:
    assert set(derived_sizes(["past", "past + sequence", "sequence", "past + other"])) == {"past + sequence"}
    assert is_size("batch") and is_size("past + sequence") and not is_size("past +") and not is_size("a b")
