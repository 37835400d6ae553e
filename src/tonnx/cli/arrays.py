"""Real input values from files, and the inputs of a model that a file is compared with."""

from __future__ import annotations

import argparse
import pickle
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tonnx.cli.console import Console
from tonnx.cli.specs import InputSpec, with_example_sizes
from tonnx.errors import InvalidArgument, first_words, needed, told_as
from tonnx.frontends.named import Loaded

SUFFIXES = (".npy", ".npz", ".pt", ".pth")
_SAVED_BY_TORCH = (".pt", ".pth")


def read_arrays(paths: Sequence[str], names: Sequence[str] = ()) -> dict[str, np.ndarray]:
    """``data.npz`` has its own names; ``x.npy`` is called by its file, ``ids=some.npy`` as it says.

    What ``torch.save`` wrote is read as well: a tensor, several in a list, or a dict of them. ``names`` are the inputs
    that there are: arrays that were saved without names are these, in order.
    """
    arrays: dict[str, np.ndarray] = {}
    for text in paths:
        name, equals, path = text.rpartition("=")
        file = Path(path)
        content = _torch(file) if file.suffix in _SAVED_BY_TORCH else _numpy(file)
        if isinstance(content, np.ndarray):
            arrays[name if equals else file.stem] = content
        elif isinstance(content, Mapping):
            arrays.update(content)
        else:
            places = [names[i] if i < len(names) else f"arr_{i}" for i in range(len(content))]
            arrays.update(zip(places, content, strict=True))
    return arrays


def arrays_for(model: str | Path, paths: Sequence[str]) -> dict[str, np.ndarray]:
    """The values for the inputs of an ONNX file. As many files as it has inputs are those, in order."""
    if not paths:
        return {}
    from tonnx.io.read import reader
    from tonnx.proof.signature import Signature

    names = list(Signature.of(reader(model)()).inputs)
    arrays = read_arrays(paths, names)
    unnamed = [text for text in paths if not text.endswith(".npz") and "=" not in text]
    if len(arrays) == len(unnamed) == len(names) and not set(arrays) & set(names):
        return dict(zip(names, arrays.values(), strict=True))
    return arrays


def of_two_files(options: argparse.Namespace, console: Console) -> dict[str, Any]:
    """The arguments of the functions behind commands that `specs.add_files` gave their options."""
    return {
        "inputs": arrays_for(options.model, options.inputs),
        "verify": not options.no_verify,
        "external_data": options.external_data,
        "progress": console.stage,
    }


def _numpy(file: Path) -> np.ndarray | dict[str, np.ndarray] | list[np.ndarray]:
    hint = "give a .npz, .npy or .pt file"
    try:
        content = np.load(file, allow_pickle=False)
        if isinstance(content, np.ndarray):
            return content
        with content:
            members = dict(content.items())
    except OSError as error:
        raise InvalidArgument(f"cannot read {file}", why=error.strerror or str(error), hint=hint) from error
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        # numpy takes everything that it does not know for a pickle
        why = "it is not in numpy's format" if "pickle" in str(error) else str(error)
        raise InvalidArgument(f"cannot read {file}", why=why, hint=hint) from error
    if not all(isinstance(array, np.ndarray) for array in members.values()):
        raise InvalidArgument(f"cannot read {file}", why="it is an archive, but not one of arrays", hint=hint)
    unnamed = list(members) == [f"arr_{i}" for i in range(len(members))]  # np.savez(file, a, b)
    return list(members.values()) if unnamed else members


def _torch(file: Path) -> Any:
    torch = needed("torch", f"reading {file} needs torch", "save the values as .npz")
    from tonnx.frontends.torch.operators.weights import as_numpy

    def array(value: Any) -> np.ndarray:
        if not isinstance(value, torch.Tensor):
            raise InvalidArgument(f"{file} holds a {type(value).__name__} where a tensor was expected")
        return as_numpy(value.detach())

    kinds = (OSError, RuntimeError, ValueError, EOFError, pickle.UnpicklingError)
    hint = "save a tensor, a list of tensors, or a dict of tensors"
    with told_as(InvalidArgument, f"cannot read {file}", *kinds, why=first_words, hint=hint):
        content = torch.load(file, map_location="cpu", weights_only=True)
    if isinstance(content, Mapping):
        return {str(name): array(value) for name, value in content.items()}
    return [array(value) for value in content] if isinstance(content, (list, tuple)) else array(content)


# The inputs of a model that a file is compared with


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
