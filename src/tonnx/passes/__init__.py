"""What is done to a graph between lowering and legalising, and after."""

from tonnx.passes.pipeline import (
    Optimised,
    clean_up,
    list_initializers,
    list_statistics,
    optimise,
    optimise_at_own_opset,
)
from tonnx.passes.runtime import fit_blocks, fit_opset, fit_profile, fit_runtime, fitted
from tonnx.passes.wrong_fusions import keep_from_fusing

__all__ = [
    "Optimised",
    "clean_up",
    "fit_blocks",
    "fit_opset",
    "fit_profile",
    "fit_runtime",
    "fitted",
    "keep_from_fusing",
    "list_initializers",
    "list_statistics",
    "optimise",
    "optimise_at_own_opset",
]
