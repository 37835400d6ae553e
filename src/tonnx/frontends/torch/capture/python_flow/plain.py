"""What rewritten functions mean where nothing is recorded: what Python does.

Another thread may run a function of the model while it is rewritten for a capture.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from typing import Any

Run = Callable[[], Any]


def branch(test: Any, one: Run, other: Run, kept: tuple[str, ...] = ()) -> None:
    (one if test else other)()


def chosen(test: Any, one: Run, other: Run) -> Any:
    return one() if test else other()


def compared(sign: str, a: Any, b: Any) -> Any:
    return getattr(operator, sign)(a, b)


def negated(value: Any) -> bool:
    return not value


def joined(word: str, harmless: bool, *parts: Run) -> Any:
    value = None
    for part in parts:
        value = part()
        if bool(value) is (word == "or"):
            return value
    return value


def contained(item: Any, container: Any) -> bool:
    return item in container


def assumed(test: Any, expected: bool, line: int) -> bool:
    return bool(test)


def same(a: Any, b: Any) -> bool:
    return a is b


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


def yielded(values: list[Any]) -> Any:
    return iter(values)


def mapped(function: Any, *args: Any) -> Any:
    return function(*args)


def items(source: Any) -> Any:
    return source


def call(function: Any, *args: Any, **kwargs: Any) -> Any:
    return function(*args, **kwargs)


def picked(owner: Any, index: Any) -> Any:
    return owner[index]


def put(target: Any, index: Any, value: Any, owned: bool) -> None:
    target[index] = value


def spread(as_tuple: bool, *parts: Iterable[Any]) -> Any:
    whole = [item for part in parts for item in part]
    return tuple(whole) if as_tuple else whole


def set_attribute(owner: Any, name: str, value: Any) -> None:
    setattr(owner, name, value)


def repeated(one: Any, other: Any) -> Any:
    return one * other
