"""All cases by name."""

from __future__ import annotations

import functools
import importlib

from tests.libraries.case import Case

MODULES = (
    *("pictures", "hub_pictures", "more_pictures", "restoration", "detection", "diffusion"),
    *("audio", "sequences", "volumes", "graphs", "further", "more_sequences", "many_fields", "explained"),
)


@functools.cache
def cases() -> dict[str, Case]:
    """In the order in which they are written; libraries are imported only when a network is built."""
    found = [case for name in MODULES for case in importlib.import_module(f"tests.libraries.{name}").CASES]
    assert len({case.name for case in found}) == len(found), "two cases have one name"
    return {case.name: case for case in found}


def case(name: str) -> Case:
    return cases()[name]
