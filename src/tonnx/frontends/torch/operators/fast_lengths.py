"""The lengths at which a Fourier transform is fast, as SciPy chooses them: the next product of small primes."""

from __future__ import annotations

from bisect import bisect_left
from functools import cache
from typing import Any

import sympy

_LONGEST = 1 << 26
_PRIMES = (2, 3, 5, 7, 11)


class FastLength(sympy.Function):  # type: ignore[misc]
    """``FastLength(n, 5)``: the least number that is not below n and has no prime factor above 5."""

    is_integer = True
    is_positive = True

    @classmethod
    def eval(cls, least: Any, prime: Any) -> Any:
        return sympy.Integer(fast_length(int(least), int(prime))) if least.is_Integer else None


@cache
def fast_lengths(prime: int) -> list[int]:
    """All products of primes up to this one that a file may be asked for."""

    lengths = [1]
    for factor in _PRIMES[: _PRIMES.index(prime) + 1]:
        lengths = [n * factor**i for n in lengths for i in range(27) if n * factor**i <= _LONGEST]
    return sorted(lengths)


def fast_length(least: int, prime: int) -> int:
    """The first of them from ``least`` on."""
    lengths = fast_lengths(prime)
    return lengths[bisect_left(lengths, least)]
