"""Inputs for a file of which nothing is known but what it says of them itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import numpy as np
import onnx_ir as ir

from tonnx.errors import CaptureError, InvalidArgument, InvalidModel, TonnxError
from tonnx.proof.session import one_line
from tonnx.proof.signature import Signature
from tonnx.proof.subject import Reference, copies

_ATTEMPTS = ((2, 0, 1), (2, 0, 0), (2, 1, 1), (7, 0, 1), (64, 0, 1), (224, 0, 1))
"""Sizes of open dimensions, and bounds of integers: indices are most often valid at 0 and 1."""


def random_examples(signature: Signature, arrays: Mapping[str, np.ndarray]) -> Iterator[dict[str, np.ndarray]]:
    """The given inputs, and random ones that fit the types of the others."""
    axes = signature.dynamic(unnamed=False)
    sizes = {dim: array.shape[axis] for name, array in arrays.items() for axis, dim in axes.get(name, {}).items()}
    for size, low, high in _ATTEMPTS:
        rng = np.random.default_rng(0)
        drawn = {
            name: random_array(value, sizes, size, (low, high + 1), rng)
            for name, value in signature.inputs.items()
            if name not in arrays
        }
        yield {**arrays, **drawn}
        if not drawn:
            return


def random_array(
    value: ir.Value, sizes: Mapping[str, int], otherwise: int, bounds: tuple[int, int], rng: np.random.Generator
) -> np.ndarray:
    """Numbers that fit an input: named dimensions of these sizes, integers within these bounds."""
    if value.dtype is None or not isinstance(value.type, ir.TensorType):
        raise InvalidModel(f"the input {value.name!r} is not a tensor", hint="give its value with `inputs`")
    dims = [] if value.shape is None else list(value.shape)
    shape = [d if isinstance(d, int) else sizes.get(d.value or "", otherwise) for d in dims]
    dtype = value.dtype
    if dtype == ir.DataType.STRING:
        return rng.choice(np.array(["a", "bb", "ccc"], dtype=object), size=shape)
    if dtype == ir.DataType.BOOL:
        return rng.integers(0, 2, size=shape).astype(bool)
    if dtype.is_floating_point():
        return rng.standard_normal(shape).astype(dtype.numpy())
    return rng.integers(*bounds, size=shape).astype(dtype.numpy())


def first_that_runs(reference: Reference, examples: Iterable[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """The first of the examples that the model itself takes."""
    failure: Exception | None = None
    for example in examples:
        try:
            reference(copies(example))
            return example
        except InvalidArgument:
            raise
        except Exception as error:  # noqa: BLE001 (the user's own code, at sizes that we invented; raised below)
            failure = failure or error
    reason = failure.why or failure.what if isinstance(failure, TonnxError) else f"{type(failure).__name__}: {failure}"
    raise CaptureError(
        "the model takes none of the inputs that were drawn from what the file says of its own",
        why=one_line(reason),
        hint="give real ones",
    )
