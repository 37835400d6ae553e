"""Times the stages of a long operation and announces them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Progress = Callable[[str], None]


class Stages:
    """``with stages("lower"): …`` — the seconds of each stage are kept in order."""

    def __init__(self, announce: Progress | None = None) -> None:
        self.seconds: dict[str, float] = {}
        self._announce = announce

    def announce(self, stage: str) -> None:
        if self._announce:
            self._announce(stage)

    @contextmanager
    def __call__(self, stage: str) -> Iterator[None]:
        self.announce(stage)
        start = time.perf_counter()
        yield
        self.seconds[stage] = time.perf_counter() - start
