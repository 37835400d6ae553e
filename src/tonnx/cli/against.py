"""The inputs of a model that a file is compared with, from what the command line says of them."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tonnx.cli.arrays import arrays_for
from tonnx.cli.specs import InputSpec, with_example_sizes
from tonnx.errors import InvalidArgument
from tonnx.frontends.named import Loaded


def example_for(
    path: Path, loaded: Loaded, specs: Sequence[InputSpec], files: Sequence[str], seed: int
) -> tuple[Any, Any]:
    """Arrays by name, or the example that came with the model, or nothing."""
    arrays = arrays_for(path, files)
    drawn = _drawn(_inputs(path), specs, seed) if specs else {}
    for name, array in arrays.items():
        if array.dtype.kind == "f" and np.isnan(array).any():
            raise InvalidArgument(
                f"the input {name!r} has {int(np.isnan(array).sum())} NaNs among its {array.size} elements",
                why="what is computed from them is NaN on both sides, and proves nothing",
            )
    for name in drawn:
        if name in arrays:
            raise argparse.ArgumentTypeError(f"the input {name!r} is described and given as well")
    example = {**drawn, **arrays}
    if not example and loaded.has_example:
        return loaded.args if loaded.args is not None else (), loaded.kwargs
    return example or (), None


def _inputs(path: Path) -> dict[str, Any]:
    from tonnx.io.read import reader
    from tonnx.proof.signature import Signature

    return Signature.of(reader(path)()).inputs


def _drawn(inputs: dict[str, Any], specs: Sequence[InputSpec], seed: int) -> dict[str, np.ndarray]:
    import onnx_ir as ir

    from tonnx.proof.examples import random_array

    free = iter([name for name in inputs if name not in {spec.name for spec in specs}])
    arrays = {}
    for place, spec in enumerate(with_example_sizes(list(specs))):
        name = spec.name or next(free, "")
        if name not in inputs and spec.dtype is None:
            raise InvalidArgument(
                f"the file has no input {name!r}", why=f"its inputs are {', '.join(inputs) or 'none'}"
            )
        dtype = ir.DataType.from_numpy(np.dtype(spec.dtype)) if spec.dtype else inputs[name].dtype
        kind = None if dtype is None else ir.TensorType(dtype)
        shape = [dim.size or 0 for dim in spec.dims]
        arrays[name] = random_array(ir.Value(name=name, type=kind), shape, (0, 2), np.random.default_rng([seed, place]))
    return arrays
