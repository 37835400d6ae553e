"""Operators of our own, ``torch.ops.tonnx.*``: each is registered once in the process, when it is first needed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tonnx.frontends.patching import locked, uninterrupted

_registered: dict[str, Any] = {}
_libraries: list[Any] = []  # unloading a library would take its operators along


def operator(schema: str, fake: Callable[..., Any], kernel: Callable[..., Any] | None = None) -> Any:
    """The operator of a schema. ``fake`` says the shapes of its results; without ``kernel`` it cannot be run."""
    name = schema.partition("(")[0]
    if name not in _registered:
        with locked():
            if name not in _registered:
                uninterrupted(lambda: _register(name, schema, fake, kernel))
    return _registered[name]


def _register(name: str, schema: str, fake: Callable[..., Any], kernel: Callable[..., Any] | None) -> None:
    library = torch.library.Library("tonnx", "FRAGMENT")
    library.define(schema)
    if kernel is not None:
        library.impl(name, kernel, "CompositeExplicitAutograd")
    torch.library.register_fake(f"tonnx::{name}", fake, lib=library)
    _libraries.append(library)
    _registered[name] = getattr(torch.ops.tonnx, name).default
