"""Run an ONNX file on arrays, tensors and pictures; a recipe says what comes before and after the network."""

from __future__ import annotations

from tonnx.run.model import Model, load
from tonnx.run.recipe import Recipe, read_recipe

__all__ = ["Model", "Recipe", "load", "read_recipe"]
