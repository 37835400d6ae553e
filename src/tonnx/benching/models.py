"""Frameworks' own models as contenders of `tonnx.bench`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tonnx.errors import InvalidArgument

Run = Callable[[dict[str, np.ndarray]], Any]


def framework(against: Any, inputs: Sequence[str]) -> tuple[str, Callable[[int | None], Run], list[str] | None]:
    """A name, a function that prepares it for a number of threads, and how another process loads it."""
    child = None
    if isinstance(against, str):
        from tonnx.cli.load import importable, load

        child = ["model", against]
        with importable(against):
            against = load(against).model
    if _is(against, "torch", "nn", "Module"):
        return type(against).__name__, lambda threads: _torch(against, threads), child
    if _is(against, "paddle", "nn", "Layer"):
        return type(against).__name__, lambda threads: _paddle(against, threads), child
    if callable(against):
        return getattr(against, "__name__", "function"), lambda threads: lambda feeds: against(*feeds.values()), child
    raise InvalidArgument(
        f"cannot run a {type(against).__name__}", hint="give a module, a layer, or a function on arrays"
    )


def _is(model: Any, package: str, *path: str) -> bool:
    """Whether it is an instance of a class of a package that is loaded; never imports one."""
    found: Any = sys.modules.get(package)
    for name in path:
        found = getattr(found, name, None)
    return found is not None and isinstance(model, found)


def _torch(model: Any, threads: int | None) -> Run:
    import torch

    all_threads = torch.get_num_threads()
    model.eval()
    kept: dict[int, list[Any]] = {}

    def run(feeds: Mapping[str, np.ndarray]) -> Any:
        tensors = kept.setdefault(id(feeds), [torch.from_numpy(array) for array in feeds.values()])
        torch.set_num_threads(threads or all_threads)
        with torch.inference_mode():
            return model(*tensors)

    return run


def _paddle(layer: Any, threads: int | None) -> Run:
    import paddle

    layer.eval()
    if threads is not None:
        paddle.set_flags({"FLAGS_inner_op_parallelism": threads})
    kept: dict[int, list[Any]] = {}

    def run(feeds: Mapping[str, np.ndarray]) -> Any:
        tensors = kept.setdefault(id(feeds), [paddle.to_tensor(array) for array in feeds.values()])
        with paddle.no_grad():
            return layer(*tensors)

    return run
