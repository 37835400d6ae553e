"""The part of a page that is about a quantised file: its layers by harm, and what was measured while it was made."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx_ir as ir

from tonnx.errors import InvalidArgument, InvalidModel, TonnxError
from tonnx.quant.inspection import is_quantised

_MOST_SAMPLES = 8


@dataclass(frozen=True)
class Quantised:
    """What is known of a quantised file beside what it says itself."""

    original: str | os.PathLike[str] | bytes | ir.Model | None = None
    """The float file: what rounding weights costs is known with it."""
    samples: Sequence[Mapping[str, np.ndarray]] = ()
    """To look at the layers with."""
    curve: Sequence[Mapping[str, Any]] = field(default_factory=tuple)
    """Points that were tried: layers left in float, size, loss, latency."""
    floats: Mapping[str, str] = field(default_factory=dict)
    """Layers that stay floats, and why."""


def quantisation_data(
    model: ir.Model,
    path: str | os.PathLike[str],
    known: Quantised,
    inputs: Mapping[str, np.ndarray],
    sizes: Mapping[str, int],
) -> tuple[dict[str, Any] | None, str]:
    """For the page; None if the file has nothing quantised; and a note where the layers could not be looked at."""
    if not is_quantised(model):
        return None, ""
    from tonnx.io import read
    from tonnx.proof.quantisation import float_weights, inspected

    invented = not known.samples and not inputs
    try:
        batches = list(known.samples[:_MOST_SAMPLES]) or [made_inputs(path, inputs, sizes)]
        floats = [] if known.original is None else float_weights(read.reader(known.original)())
        found = inspected(read.reader(path)(), floats, batches).data()
    except InvalidArgument:
        raise
    except TonnxError as error:
        return None, f"quantised layers were not looked at: {error.why or error.what}"
    told = {"invented": invented, "original": known.original is not None, "curve": list(known.curve)}
    return {**found, **told, "floats": dict(known.floats)}, ""


def made_inputs(
    path: str | os.PathLike[str], inputs: Mapping[str, np.ndarray], sizes: Mapping[str, int]
) -> dict[str, np.ndarray]:
    """Inputs that a file takes: those that are given, and random ones for the rest; 1 and 224 where nothing is said."""
    from tonnx.benching.measure import check_given, make_inputs, size_key
    from tonnx.proof.session import Session
    from tonnx.run.model import Model

    loaded = Model(Session(path, optimised=False), path=path)  # only asked what it takes
    check_given(loaded, sizes, inputs)
    ports = loaded.inputs.values()
    guessed = {size_key(p, i): 224 for p in ports for i, d in enumerate(p.shape) if i and not isinstance(d, int)}
    try:
        return make_inputs(loaded, 1, {**guessed, **sizes}, inputs)
    except InvalidArgument as error:  # the model's doing, not the user's
        raise InvalidModel(error.what, why=error.why) from error
