"""What rewritten functions mean where nothing is recorded: what Python does.

Another thread may run a function of the model while it is rewritten for a capture.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from typing import Any

Run = Callable[[], Any]


def joined(word: str, harmless: bool, *parts: Run) -> Any:
    value = None
    for part in parts:
        value = part()
        if bool(value) is (word == "or"):
            return value
    return value


def while_(test: Run, body: Run, **kinds: tuple[str, ...]) -> None:
    while test():
        body()


def for_(source: Iterable[Any], body: Callable[[Any], None], stopped: Run | None = None, **kinds: Any) -> None:
    for item in source:
        body(item)
        if stopped is not None and stopped():
            break


def listed(source: Iterable[Any], each: Callable[[Any], Any], wanted: Callable[[Any], Any] | None = None) -> list[Any]:
    return [each(item) for item in source if wanted is None or wanted(item)]


def spread(as_tuple: bool, *parts: Iterable[Any]) -> Any:
    whole = [item for part in parts for item in part]
    return tuple(whole) if as_tuple else whole


MEANINGS: dict[str, Callable[..., Any]] = {
    "assumed": lambda test, expected, line: bool(test),
    "branch": lambda test, one, other, kept=(): (one if test else other)(),
    "call": lambda function, *args, **kwargs: function(*args, **kwargs),
    "chosen": lambda test, one, other: one() if test else other(),
    "compared": lambda sign, a, b: getattr(operator, sign)(a, b),
    "contained": lambda item, container: item in container,
    "for_": for_,
    "items": lambda source: source,
    "joined": joined,
    "listed": listed,
    "mapped": lambda function, *args: function(*args),
    "negated": operator.not_,
    "picked": operator.getitem,
    "put": lambda target, index, value, owned: operator.setitem(target, index, value),
    "repeated": operator.mul,
    "same": operator.is_,
    "set_attribute": setattr,
    "spread": spread,
    "while_": while_,
    "yielded": iter,
}
