"""A quantised file and its float original: what of their difference is quantisation, and what is not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx_ir as ir
from onnx_ir.passes.common import LiftConstantsToInitializersPass

from tonnx.io import read as reading
from tonnx.ir.target import CANON, Target
from tonnx.legalise import legalise
from tonnx.passes import optimise
from tonnx.proof.judge import run_of
from tonnx.quant.inspection import Inspection, Original, inspect, originals_of
from tonnx.quant.observe import Feeds


def inspected(
    model: ir.Model, originals: Sequence[Original], batches: Sequence[Feeds], *, rows: bool = True
) -> Inspection:
    """A look at a quantised file, see `tonnx.quant.inspection`; the model is used up."""
    reading.infer(model)
    legalise(model, Target(CANON))
    return inspect(model, originals, batches, run_of, rows=rows)


def float_weights(model: ir.Model) -> list[Original]:
    """Of a float file, which is used up: as they are, and with batch normalisations folded into them."""
    plain = originals_of(model)
    reading.infer(model)
    legalise(model, Target(CANON))
    LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(model)
    optimise(model)
    return plain + originals_of(model)


def weights_of_state(state: Mapping[str, np.ndarray]) -> list[Original]:
    """Of a model's parameters by name."""
    weights = {name: array for name, array in state.items() if array.dtype.kind == "f" and array.ndim > 1}
    return [(array, state.get(name.removesuffix("weight") + "bias")) for name, array in weights.items()]
