"""A package with smaller weights: the same files with integers, named as transformers.js looks for them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tonnx.api.quantize_result import QuantizeResult
from tonnx.proof.session import Session, numpy_dtype
from tonnx.run.package import Package

SUFFIXES = {"int8": "_int8", "int4": "_q4", "fp16": "_fp16"}
"""What the name of a file ends with."""
SMALL_OPSET = 21
"""The first that has integers of 4 bits: what they are written at if no opset is asked for."""

_SIZES = {"batch": 2, "past": 5, "sequence": 3, "past + sequence": 8, "past + 1": 6, "encoder_past": 4}
_OTHERS = {"samples": 16_000, "frames": 100, "encoder_sequence": 9}


def variant(file: str, to: str) -> str:
    """The name of a file with smaller weights."""
    path = Path(file)
    return str(path.with_name(f"{path.stem}{SUFFIXES[to]}{path.suffix}"))


def store_variant(file: Path, to: str, verify: bool) -> QuantizeResult:
    """The file with smaller weights in the place of the one with floats; what the proof finds is in the result."""
    from tonnx.api.quantize import quantize  # most packages keep their floats

    result = quantize(file, variant(str(file), to), to=to, inputs=_example(file), verify=verify)
    for each in (file, file.with_name(f"{file.name}.data")):
        each.unlink(missing_ok=True)
    return result


def _example(file: Path) -> dict[str, np.ndarray]:
    """Inputs that any file of a package takes: small token ids, masks that hide nothing, positions after a past."""
    session, rng = Session(file), np.random.default_rng(0)
    arrays = {}
    for name, element in session.inputs.items():
        sizes = [dim if isinstance(dim, int) else (_SIZES | _OTHERS).get(str(dim), 3) for dim in session.shapes[name]]
        dtype = numpy_dtype(element) or np.dtype(np.float32)
        if "mask" in name:
            arrays[name] = np.ones(sizes, dtype)
        elif dtype.kind in "iu":
            first = _SIZES["past"] if "position" in name else 1
            arrays[name] = np.broadcast_to(np.arange(first, first + sizes[-1]), sizes).astype(dtype)
        else:
            arrays[name] = rng.normal(size=sizes).astype(dtype)
    return arrays


def greedy_tokens(package: Package, vocabulary: int, count: int = 16) -> list[list[int]]:
    """What a package generates after a few prompts, past any end."""
    prompts = np.random.default_rng(0).integers(min(3, vocabulary - 1), vocabulary, (3, 9)).tolist()
    own, package.settings = package.settings, {}
    try:
        return [each.tokens for each in package.generations(package.prompts(prompts), {"max_new_tokens": count})]
    finally:
        package.settings = own


def agreement(wanted: list[list[int]], actual: list[list[int]]) -> str:
    """How many tokens are the same, of each prompt up to the first other one."""
    equal = sum(
        next((place for place, pair in enumerate(zip(*rows, strict=True)) if len({*pair}) > 1), len(rows[0]))
        for rows in zip(wanted, actual, strict=True)
    )
    return f"{equal} of {sum(map(len, wanted))} greedy tokens as with floats, of each prompt up to the first other one"
