"""What is done to a graph between lowering and legalising, and after."""

from tonnx.passes.pipeline import Optimised, clean_up, list_initializers, list_statistics, optimise
from tonnx.passes.runtime import fit_integers

__all__ = ["Optimised", "clean_up", "fit_integers", "list_initializers", "list_statistics", "optimise"]
