"""Which front end takes a model. Nothing of a framework is imported to know it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tonnx.errors import InvalidArgument, MissingDependency, needed
from tonnx.frontends.request import ModelRequest
from tonnx.frontends.torch.archives import is_torch_file, load_torch_file
from tonnx.stages import Stages
from tonnx.versions import tested

if TYPE_CHECKING:
    from tonnx.frontends.request import Converted

_TORCH_ONLY = ("training", "custom_translation_table", "dynamic_shapes")


def convert(request: ModelRequest, stages: Stages) -> Converted:
    """A model of any kind at CANON."""
    model = request.model
    if isinstance(model, (str, os.PathLike)):
        if not is_torch_file(model):
            return _paddle_file(request, stages)
        _need_torch()
        request = replace(request, model=load_torch_file(model))
    if request.input_spec is not None or is_of("paddle", request.model, request.args, request.kwargs):
        return _paddle_layer(request, stages)
    return _torch(request, stages)


def _torch(request: ModelRequest, stages: Stages) -> Converted:
    _refuse("a PyTorch model", request, ("params", "input_shapes", *request.saving), "it is for Paddle models")
    _need_torch()
    try:
        from tonnx.frontends.torch.convert import convert
    except ImportError as error:  # a private name of PyTorch's, in a version that is too old or too new
        hint = 'pip install "tonnx[torch]"'
        raise MissingDependency("tonnx does not work with this torch", why=f"{error}; {tested()}", hint=hint) from error

    return convert(request, stages)


def _paddle_file(request: ModelRequest, stages: Stages) -> Converted:
    options = ("kwargs", "input_spec", *request.saving, *_TORCH_ONLY)
    _refuse("a saved Paddle model", request, options, "fix or name its dimensions with input_shapes")
    from tonnx.frontends.paddle.convert import convert

    return convert(request, stages)


def _paddle_layer(request: ModelRequest, stages: Stages) -> Converted:
    hint = "its inputs are described by input_spec, dynamic_axes and input_shapes"
    _refuse("a Paddle layer", request, (*_TORCH_ONLY, "params"), hint)
    try:
        from tonnx.frontends.paddle.layer import convert_layer
    except ImportError as error:
        hint = "pip install paddlepaddle==3.3.1"
        raise MissingDependency("exporting a Paddle layer needs paddle", hint=hint) from error
    return convert_layer(request, stages)


def is_of(framework: str, model: Any, args: Any, kwargs: Mapping[str, Any] | None = None) -> bool:
    """Whether a model, or a function by its example, is of a framework."""
    kinds = list((model if isinstance(model, type) else type(model)).__mro__)
    parts = args if isinstance(args, (tuple, list)) else [args]
    named = kwargs.values() if isinstance(kwargs, Mapping) else ()  # what is not one is refused where it is read
    kinds += [type(part) for part in (*parts, *named)]
    return any(kind.__module__.partition(".")[0] == framework for kind in kinds)


def _need_torch() -> None:
    needed("torch", "exporting a PyTorch model needs torch", 'pip install "tonnx[torch]"')


def _refuse(kind: str, request: ModelRequest, options: tuple[str, ...], hint: str) -> None:
    for name in options:
        value = request.saving[name] if name in request.saving else getattr(request, name)
        if value and not (name == "training" and value == "EVAL"):
            raise InvalidArgument(f"{kind} takes no {name}", hint=hint)
