"""Saved Paddle models on the command line. Imports neither paddle nor torch."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tonnx.cli.specs import InputSpec

if TYPE_CHECKING:
    from tonnx.result import ExportResult

_SUFFIXES = (".json", ".pdmodel")


def is_paddle(target: str) -> bool:
    """Whether MODEL is the file, the folder or the prefix of a saved Paddle model."""
    path = Path(target)
    if target.endswith(_SUFFIXES) or path.name == "__model__" or path.is_dir():
        return True
    return any(Path(target + suffix).is_file() for suffix in _SUFFIXES)


def input_shapes(given: list[InputSpec]) -> dict[str, list[int | str | None]]:
    """What the user said of the inputs, as `tonnx.export` takes it."""
    shapes: dict[str, list[int | str | None]] = {}
    for spec in given:
        if spec.name is None:
            raise argparse.ArgumentTypeError("an input of a Paddle model is given with its name, as x:1,3,224,224")
        shapes[spec.name] = [dim.size if dim.name is None else dim.name or None for dim in spec.dims]
    return shapes


def export_paddle(options: argparse.Namespace, given: list[InputSpec], **common: Any) -> ExportResult:
    """Export the saved model that MODEL names."""
    from tonnx.api import export
    from tonnx.cli.arrays import read_arrays

    return export(
        options.model,
        read_arrays(options.inputs),
        options.output,
        params=options.params,
        input_shapes=input_shapes(given) or None,
        dynamic_axes=dict(options.dynamic) or None,
        input_names=options.input_names,
        **common,
    )
