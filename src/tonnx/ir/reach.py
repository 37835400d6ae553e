"""What can be reached from something, one step after the other."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import TypeVar

One = TypeVar("One", bound=Hashable)


def reached(start: Iterable[One], following: Callable[[One], Iterable[One]]) -> Iterator[One]:
    """Each of ``start``, of what follows on them, and so on, once; ``following`` is asked when one has been taken."""
    left = list(dict.fromkeys(start))
    seen = set(left)
    while left:
        one = left.pop()
        yield one
        new = [other for other in dict.fromkeys(following(one)) if other not in seen]
        seen.update(new)
        left += new
