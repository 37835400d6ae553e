"""Inputs for a file of which nothing is known but what it says of them itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import prod

import numpy as np
import onnx_ir as ir

from tonnx.errors import CaptureError, InvalidArgument, InvalidModel, TonnxError
from tonnx.proof.session import one_line
from tonnx.proof.signature import Signature
from tonnx.proof.subject import Reference, copies

_ATTEMPTS = (
    *((2, 2, *bounds) for bounds in ((0, 1), (0, 0), (1, 1))),
    *((batch, size, 0, 1) for size in (7, 64, 224) for batch in (2, 1)),
    (1, 1, 0, 1),
    *((1, size, 0, 1) for size in (4000, 32000)),
    *((size, size, 0, 1) for size in (7, 64, 224)),
)
"""Sizes of a batch and of other open dimensions, and bounds of integers: indices are most often valid at 0 and 1."""
_MOST_ELEMENTS = 1 << 22
"""Of an input that is invented: thousands are samples of a sound, not the sides of a picture."""


def random_examples(signature: Signature, arrays: Mapping[str, np.ndarray]) -> Iterator[dict[str, np.ndarray]]:
    """The given inputs, and random ones that fit the types of the others."""
    axes = signature.dynamic(unnamed=False)
    given = {dim: array.shape[axis] for name, array in arrays.items() for axis, dim in axes.get(name, {}).items()}
    inputs = {name: value for name, value in signature.inputs.items() if name not in arrays}
    batches = {dims[0] for name, dims in axes.items() if 0 in dims and len(signature.inputs[name].shape or ()) > 1}
    for batch, size, low, high in _ATTEMPTS:
        sizes = dict.fromkeys(batches, batch) | given
        shapes = {name: _invented_shape(value, sizes, batch, size) for name, value in inputs.items()}
        if any(prod(shape) > _MOST_ELEMENTS for shape in shapes.values()):
            continue
        rng = np.random.default_rng(0)
        drawn = {name: random_array(value, shapes[name], (low, high + 1), rng) for name, value in inputs.items()}
        yield {**arrays, **drawn}
        if not drawn:
            return


def _invented_shape(value: ir.Value, sizes: Mapping[str, int], batch: int, size: int) -> list[int]:
    """Of an input whose open dimensions have the sizes of their names, or that of a batch in front, or another one."""
    dims = list(value.shape or ())
    front = batch if len(dims) > 1 else size
    return [
        dim if isinstance(dim, int) else sizes.get(dim.value or "", size if axis else front)
        for axis, dim in enumerate(dims)
    ]


def random_array(
    value: ir.Value, shape: Sequence[int], bounds: tuple[int, int], rng: np.random.Generator
) -> np.ndarray:
    """Numbers that fit the type of an input, integers within these bounds."""
    if value.dtype is None or not isinstance(value.type, ir.TensorType):
        raise InvalidModel(f"the input {value.name!r} is not a tensor", hint="give its value with `inputs`")
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
