"""Sizes at which it is looked whether a model goes another way than in the example."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import chain, islice, permutations
from typing import Any

import sympy

from tonnx.frontends.torch.call.signature import ModelCall

LARGEST = 4096  # a size at which the model is run to see whether it goes another way; or that of the example
_TIMES = 8  # times that
ELEMENTS = 1 << 20  # of the inputs that are grown by so much; or 16 by 16 times those of the example


def otherwise(
    expression: Any, names: list[str], flips: Callable[[dict[str, int]], bool], call: ModelCall, any_size: bool
) -> Iterator[dict[str, int]]:
    """Sizes near the example's at which a condition is not what it was.

    One that differs; one that is a multiple or half, for a model that takes no others; and all of them so.
    """
    example, allowed, thresholds = example_sizes(call), allowed_sizes(call), _thresholds(expression)
    near = [{**example, name: n} for name in names for n in _near(example[name], thresholds)]
    inside = (sizes for sizes in near if beyond_the_edge(flips, sizes, names))
    multiples = ({**example, name: int(k * example[name])} for k in (2, 3, 4, 0.5) for name in names)
    proportional = ({name: int(k * n) for name, n in example.items()} for k in (2, 0.5))
    far = (sizes for name in names for sizes in _far(example, name, flips, call)) if any_size else ()
    together = _together(example, names, expression, call) if any_size else ()
    given: list[dict[str, int]] = []
    for candidates in (chain(inside, near) if any_size else (), multiples, proportional, far, together):
        if candidates in (far, together) and given:
            return
        chosen = (sizes for sizes in candidates if allowed(sizes) and flips(sizes) and sizes not in given)
        for sizes in islice(chosen, 1):
            given.append(sizes)
            yield sizes


def beyond_the_edge(flips: Callable[[dict[str, int]], bool], sizes: dict[str, int], names: list[str]) -> bool:
    """Whether a condition is otherwise there and all around: at the edge both sides often do the same (no padding)."""
    around = ({**sizes, name: sizes[name] + step} for name in names for step in (-1, 1))
    return all(sizes[name] > 1 for name in names) and flips(sizes) and all(map(flips, around))


def _far(
    example: dict[str, int], name: str, flips: Callable[[dict[str, int]], bool], call: ModelCall
) -> Iterator[dict[str, int]]:
    """The smallest size that decides otherwise, of those that are many times the example's, up to some elements."""
    low = _TIMES * example[name]
    for high in (2 * low, 4 * low, 8 * low):
        if elements(call, {**example, name: high}) > ELEMENTS:
            return
        if flips({**example, name: high}):
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (low, middle) if flips({**example, name: middle}) else (middle, high)
            yield {**example, name: high}
            return
        low = high


def _together(example: dict[str, int], names: list[str], expression: Any, call: ModelCall) -> Iterator[dict[str, int]]:
    """Sizes that no single dimension comes to, of an equation of several: ``h * w == 16``, or ``(h // 4) * w == 48``.

    Squares first: pictures are made so, and ``h == w`` may be asked next.
    """
    if len(names) < 2 or not expression.has(sympy.Eq, sympy.Ne):
        return
    for n in range(2, LARGEST):
        sizes = {**example, **dict.fromkeys(names, n)}
        if elements(call, sizes) > ELEMENTS:
            break
        yield sizes
    for product in _thresholds(expression):
        factors = [n for n in range(2, min(product, LARGEST)) if product % n == 0]
        pairs = [{**example, one: n, other: product // n} for n in factors for one, other in permutations(names, 2)]
        yield from (sizes for sizes in pairs if elements(call, sizes) <= ELEMENTS)


def _thresholds(expression: Any) -> list[int]:
    """The numbers in a condition: it may change at them, however far from the example they are."""
    return sorted({abs(int(n)) for n in expression.atoms(sympy.Integer)})


def _near(size: int, thresholds: list[int]) -> Iterator[int]:
    near = (size + 1, size - 1, size + 2, size - 2, 2 * size, size + 3, 3 * size, size // 2, 4 * size, _TIMES * size)
    far = [n + d for n in thresholds for d in (0, 1, -1)] + [n * size for n in thresholds]
    yield from (n for n in (*near, *far) if 1 < n < max(LARGEST, _TIMES * size + 1))
    yield from (1, 0)


def allowed_sizes(call: ModelCall) -> Callable[[dict[str, int]], bool]:
    """Whether sizes are within the limits that the user gave."""
    limits = {dim.name: dim.limits for leaf in call.leaves for dim in leaf.dynamic.values()}

    def allowed(sizes: dict[str, int]) -> bool:
        return all(low <= sizes[name] and (high is None or sizes[name] <= high) for name, (low, high) in limits.items())

    return allowed


def example_sizes(call: ModelCall) -> dict[str, int]:
    return {dim.name: leaf.tensor.shape[axis] for leaf in call.leaves for axis, dim in leaf.dynamic.items()}


def elements(call: ModelCall, sizes: dict[str, int]) -> int:
    shapes = [{**dict(enumerate(leaf.tensor.shape)), **{a: sizes[d.name] for a, d in leaf.dynamic.items()}}
              for leaf in call.leaves]  # fmt: skip
    return sum(math.prod(shape.values()) for shape in shapes)
