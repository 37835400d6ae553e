"""The original model as a function on numpy arrays: what the file is compared with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from tonnx.errors import CaptureError
from tonnx.frontends.patching import exclusive, patched
from tonnx.frontends.torch.call.containers import results_of
from tonnx.frontends.torch.call.signature import ModelCall
from tonnx.frontends.torch.call.state import state_kept
from tonnx.frontends.torch.operators.weights import as_numpy
from tonnx.frontends.torch.reference.mode import CHECKED, NO_DROPOUT, called, model_mode, watched
from tonnx.frontends.torch.reference.rounded import rounded
from tonnx.frontends.torch.reference.wide import Wide
from tonnx.frontends.torch.settings import EVAL
from tonnx.proof.subject import Reference


def reference(
    module: torch.nn.Module,
    call: ModelCall,
    kept: Sequence[int],
    mode: str = EVAL,
    *,
    redrawn: bool = False,
    dropout: bool = True,
    rounding: int | None = None,
    wide: bool = False,
) -> Reference:
    """``kept`` are the places of the file's outputs among the flattened outputs of the model.

    ``redrawn``: with other random numbers than otherwise. ``dropout=False``: its dropouts pass everything on.
    ``rounding``: with its sums rounded otherwise, as this number says. ``wide``: float32 is computed in float64.
    """

    def run(feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
        tensors = [from_numpy(feeds[leaf.name], leaf.tensor) for leaf in call.leaves]
        args, kwargs = call.with_tensors(tensors)
        with (
            exclusive(),
            torch.random.fork_rng(devices=[]),
            state_kept(module),
            _in_mode(module, mode),
            patched(CHECKED if dropout else (*CHECKED, *NO_DROPOUT)),
            rounded(rounding),
            watched(Wide() if wide else None),
        ):
            if redrawn:
                torch.manual_seed(torch.initial_seed() + 1)
            leaves = list(results_of(called(module, args, kwargs), call.names).values())
            return [to_numpy(leaves[i]) for i in kept]

    return run


def _in_mode(module: torch.nn.Module, mode: str) -> Any:
    # The module of an ExportedProgram refuses eval(): it has one mode only.
    return torch.no_grad() if isinstance(module, torch.fx.GraphModule) else model_mode(module, mode)


def from_numpy(array: np.ndarray, like: torch.Tensor) -> torch.Tensor:
    """A fresh tensor: models may write to their inputs."""
    array = np.array(array, order="C", copy=True)
    if like.is_complex():
        return torch.view_as_complex(torch.from_numpy(array)).to(like.device)
    if array.dtype.kind == "V" or array.dtype.name in ("bfloat16",) or array.dtype.name.startswith("float8"):
        width = torch.int16 if array.dtype.itemsize == 2 else torch.uint8
        integers = array.view(np.int16 if array.dtype.itemsize == 2 else np.uint8)
        return torch.from_numpy(integers).to(like.device).view(width).view(like.dtype)
    return torch.from_numpy(array).to(like.device)


def to_numpy(value: Any) -> np.ndarray:
    if isinstance(value, torch.Tensor):
        # Copied: an output may be one of the buffers that are put back.
        value = value.dequantize() if value.is_quantized else value.detach()
        return as_numpy(value.contiguous()).copy()
    if isinstance(value, bool):
        return np.asarray(value)
    if isinstance(value, int):
        return np.asarray(value, dtype=np.int64)
    if isinstance(value, float):
        return np.asarray(value, dtype=np.float32)
    raise CaptureError(f"the model returns a {type(value).__name__}, which is not a tensor")
