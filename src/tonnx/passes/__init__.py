"""What is done to a graph between lowering and legalising, and after."""

from tonnx.passes.pipeline import Optimised, clean_up, list_initializers, list_statistics, optimise

__all__ = ["Optimised", "clean_up", "list_initializers", "list_statistics", "optimise"]
