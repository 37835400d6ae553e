"""Frameworks' own models as contenders of `tonnx.bench`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tonnx.errors import InvalidArgument, needed

Run = Callable[[dict[str, np.ndarray]], Any]


def framework(against: Any, inputs: Sequence[str]) -> tuple[str, Callable[[int | None], Run], list[str] | None]:
    """A name, a function that prepares it for a number of threads, and how another process loads it."""
    child = None
    if isinstance(against, str):
        if against.endswith(".onnx"):
            return _onnx(against)
        child = ["model", against]
        target, against = against, _loaded(against)
        if isinstance(against, str):  # a saved Paddle model
            return Path(target).name, lambda threads: _saved(target, threads), child
    if _is(against, "torch", "export", "ExportedProgram"):
        program = against.module()
        program.eval = lambda: program  # it is what it was captured as, and refuses to be told
        return "ExportedProgram", lambda threads: _torch(program, threads), child
    if _is(against, "torch", "nn", "Module"):
        return type(against).__name__, lambda threads: _torch(against, threads), child
    if _is(against, "paddle", "nn", "Layer"):
        return type(against).__name__, lambda threads: _paddle(against, threads), child
    if callable(against):
        return getattr(against, "__name__", "function"), lambda threads: lambda feeds: against(*feeds.values()), child
    raise InvalidArgument(
        f"cannot run a {type(against).__name__}", hint="give a module, a layer, or a function on arrays"
    )


def _loaded(target: str) -> Any:
    """A model by the name that the command line gives it."""
    from tonnx.frontends.named import importable, is_python, load_against

    if is_python(target):
        with importable(target):
            return load_against(target).model
    return load_against(target).model


def _saved(target: str, threads: int | None) -> Run:
    """A saved Paddle model in Paddle's own predictor, with its optimisations."""
    from tonnx.frontends.paddle.read.load import load

    loaded = load(target)
    inference = needed("paddle.inference", "timing a Paddle model needs paddle", "pip install paddlepaddle==3.3.1")
    weights = str(loaded.weights or "")
    config = inference.Config(weights) if Path(weights).is_dir() else inference.Config(str(loaded.path), weights)
    config.disable_glog_info()
    if threads is not None:
        config.set_cpu_math_library_num_threads(threads)
    predictor = inference.create_predictor(config)
    names = predictor.get_input_names()

    def run(feeds: Mapping[str, np.ndarray]) -> Any:
        if len(feeds) != len(names):
            raise InvalidArgument(f"{target} has {len(names)} inputs, the file {len(feeds)}")
        by_name = feeds if set(feeds) == set(names) else dict(zip(names, feeds.values(), strict=True))
        for name, array in by_name.items():
            predictor.get_input_handle(name).copy_from_cpu(np.ascontiguousarray(array))
        predictor.run()
        return [predictor.get_output_handle(name).copy_to_cpu() for name in predictor.get_output_names()]

    return run


def _onnx(path: str) -> tuple[str, Callable[[int | None], Run], list[str]]:
    """Another ONNX file as what the others are compared with."""
    from tonnx.benching.measure import load_file

    def make(threads: int | None) -> Run:
        model = load_file(path, None, threads)
        return lambda feeds: model(feeds) if set(feeds) == set(model.inputs) else model(*feeds.values())

    return Path(path).name, make, ["onnx", path]


def _is(model: Any, package: str, *path: str) -> bool:
    """Whether it is an instance of a class of a package that is loaded; never imports one."""
    kind: Any = sys.modules.get(package)
    for name in path:
        kind = getattr(kind, name, None)
    return kind is not None and isinstance(model, kind)


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
