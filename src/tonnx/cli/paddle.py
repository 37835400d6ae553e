"""Paddle models on the command line. Saved ones need neither paddle nor torch."""

from __future__ import annotations

import argparse
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tonnx.cli.specs import InputSpec

if TYPE_CHECKING:
    from tonnx.api.result import ExportResult


def input_shapes(input_specs: list[InputSpec]) -> dict[str, list[int | str | None]]:
    """What the user said of the inputs, as `tonnx.export` takes it."""
    shapes: dict[str, list[int | str | None]] = {}
    for spec in input_specs:
        if spec.name is None:
            raise argparse.ArgumentTypeError("an input of a Paddle model is given with its name, as x:1,3,224,224")
        shapes[spec.name] = [dim.size if dim.name is None else dim.name or None for dim in spec.dims]
    return shapes


def export_paddle(options: argparse.Namespace, input_specs: list[InputSpec], **common: Any) -> ExportResult:
    """Export the saved model that MODEL names."""
    from tonnx.api.export import export
    from tonnx.cli.arrays import read_arrays

    return export(
        options.model,
        read_arrays(options.inputs),
        options.output,
        params=options.params,
        input_shapes=input_shapes(input_specs) or None,
        dynamic_axes=dict(options.dynamic) or None,
        input_names=options.input_names,
        **common,
    )


def mentions_paddle(target: str) -> bool:
    """Whether the file that MODEL names speaks of paddle: only then it is looked into for a layer."""
    from tonnx.frontends.named import split_target

    try:
        file, module, _ = split_target(target)
        if file is None:
            spec = find_spec(str(module))
            file = Path(spec.origin or "" if spec is not None else "")
        return "paddle" in file.read_text(encoding="utf-8", errors="replace")
    except (OSError, ImportError, ValueError):
        return False


def export_layer(options: argparse.Namespace, input_specs: list[InputSpec], **common: Any) -> ExportResult | None:
    """Export the Paddle layer that MODEL names; None if it names something else."""
    from tonnx.frontends.named import importable, load_any

    with importable(options.model):
        if not mentions_paddle(options.model):
            return None
        loaded = load_any(options.model)
        if not any(kind.__module__.partition(".")[0] == "paddle" for kind in type(loaded.model).__mro__):
            return None
        from tonnx.api.export import export
        from tonnx.cli.arrays import read_arrays

        arrays = read_arrays(options.inputs)
        axes = {spec.name or "": {a: n for a, n in spec.dynamic.items() if n} for spec in input_specs if spec.name}
        for name, named in options.dynamic:
            axes.setdefault(name, {}).update(named)
        return export(
            loaded.model,
            loaded.args if loaded.args is not None and not arrays else (),
            options.output,
            kwargs=arrays or loaded.kwargs,
            input_spec=_specs(input_specs),
            dynamic_axes={name: named for name, named in axes.items() if named} or None,
            input_names=options.input_names,
            **common,
        )


def _specs(input_specs: list[InputSpec]) -> Any:
    """The inputs as ``paddle.jit.save`` takes them."""
    from paddle.static import InputSpec as PaddleSpec

    return [
        PaddleSpec([dim.size if dim.name is None else None for dim in spec.dims], spec.dtype or "float32", spec.name)
        for spec in input_specs
    ] or None
