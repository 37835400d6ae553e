"""Which front end takes a model. Nothing of a framework is imported to know it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tonnx.api.torch_compat import Classic
from tonnx.errors import InvalidArgument, MissingDependency
from tonnx.frontends.torch.archives import is_torch_file, load_torch_file

if TYPE_CHECKING:
    from tonnx.frontends.converted import Converted

SAVING = ("output_spec", "with_hook", "input_names_after_prune", "clip_extra")
"""Options of ``paddle.jit.save`` that say what of a layer is exported."""


@dataclass
class Wishes:
    """What the user says of the model and its inputs; see `tonnx.export`."""

    opset: int
    announce: Callable[[str], None]
    kwargs: Mapping[str, Any] | None = None
    input_names: Sequence[str] | None = None
    output_names: Sequence[str] | None = None
    dynamic_axes: Mapping[str, Any] | None = None
    dynamic_shapes: Any = None
    input_spec: Any = None
    params: str | os.PathLike[str] | None = None
    input_shapes: Mapping[str, Sequence[int | str | None]] | None = None
    custom_translation_table: Mapping[Any, Any] | None = None
    capture: str = "auto"
    compare: bool = True
    classic: Classic = field(default_factory=Classic)
    saving: dict[str, Any] = field(default_factory=dict)

    def names(self) -> dict[str, Any]:
        """What every front end takes."""
        return {"input_names": self.input_names, "output_names": self.output_names, "announce": self.announce}

    def paddle(self) -> dict[str, Any]:
        """What both of Paddle's take."""
        more = {"input_shapes": self.input_shapes, "dynamic_axes": self.dynamic_axes, "compare": self.compare}
        return {**more, **self.names()}

    def torch_only(self) -> dict[str, Any]:
        """What means nothing to Paddle."""
        return {
            "training": self.classic.training != "EVAL",
            "custom_translation_table": self.custom_translation_table,
            "dynamic_shapes": self.dynamic_shapes,
        }


def convert(model: Any, args: Any, wishes: Wishes) -> Converted:
    """A model of any kind at CANON."""
    if isinstance(model, (str, os.PathLike)):
        if not is_torch_file(model):
            return _paddle_file(model, args, wishes)
        _need_torch()
        model = load_torch_file(model)
    if wishes.input_spec is not None or is_of("paddle", model, args, wishes.kwargs):
        return _paddle_layer(model, args, wishes)
    return _torch(model, args, wishes)


def _torch(model: Any, args: Any, wishes: Wishes) -> Converted:
    refused = {"params": wishes.params, "input_shapes": wishes.input_shapes, **wishes.saving}
    _refuse("a PyTorch model", refused, "it is for Paddle models")
    _need_torch()
    from tonnx.frontends.torch.convert import convert
    from tonnx.frontends.torch.operators.translation_table import checked_table
    from tonnx.frontends.torch.settings import Settings

    asked, table = wishes.classic, checked_table(wishes.custom_translation_table)
    return convert(
        model,
        args,
        wishes.kwargs,
        settings=Settings(wishes.opset, asked.training, asked.operator_export_type, table),
        way=wishes.capture,
        dynamic_axes=wishes.dynamic_axes,
        dynamic_shapes=wishes.dynamic_shapes,
        **wishes.names(),
    )


def _paddle_file(path: str | os.PathLike[str], args: Any, wishes: Wishes) -> Converted:
    refused = {"kwargs": wishes.kwargs, "input_spec": wishes.input_spec, **wishes.saving, **wishes.torch_only()}
    _refuse("a saved Paddle model", refused, "fix or name its dimensions with input_shapes")
    from tonnx.frontends.paddle.convert import convert

    return convert(path, args, params=wishes.params, **wishes.paddle())


def _paddle_layer(layer: Any, args: Any, wishes: Wishes) -> Converted:
    refused = {**wishes.torch_only(), "params": wishes.params}
    _refuse("a Paddle layer", refused, "its inputs are described by input_spec, dynamic_axes and input_shapes")
    from tonnx.frontends.paddle.layer import convert_layer

    more = {"input_spec": wishes.input_spec, "saving": wishes.saving}
    return convert_layer(layer, args, wishes.kwargs, **more, **wishes.paddle())


def is_of(framework: str, model: Any, args: Any, kwargs: Mapping[str, Any] | None = None) -> bool:
    """Whether a model, or a function by its example, is of a framework."""
    kinds = list((model if isinstance(model, type) else type(model)).__mro__)
    parts = args if isinstance(args, (tuple, list)) else [args]
    named = kwargs.values() if isinstance(kwargs, Mapping) else ()  # what is not one is refused where it is read
    kinds += [type(part) for part in (*parts, *named)]
    return any(kind.__module__.partition(".")[0] == framework for kind in kinds)


def _need_torch() -> None:
    try:
        import torch  # noqa: F401
    except ImportError as error:
        raise MissingDependency("exporting a PyTorch model needs torch", hint="pip install torch==2.13.0") from error


def _refuse(kind: str, arguments: Mapping[str, Any], hint: str) -> None:
    for name, value in arguments.items():
        if value:
            raise InvalidArgument(f"{kind} takes no {name}", hint=hint)
