"""The mode that a model runs in for us, and its own afterwards."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

from tonnx.frontends.patching import How, Patch, patched
from tonnx.frontends.torch.settings import EVAL, PRESERVE, TRAINING

FAST_PATH = Patch(
    "torch.backends.mha", "_is_fastpath_enabled", False, "it hides layers behind one opaque operator", How.VALUE
)


def inference_mode(model: torch.nn.Module) -> contextlib.AbstractContextManager[None]:
    """Evaluation mode without gradients, everything put back as it was."""
    return model_mode(model, EVAL)


@contextlib.contextmanager
def model_mode(model: torch.nn.Module, mode: str) -> Iterator[None]:
    """EVAL, TRAINING, or PRESERVE, without gradients; everything is put back as it was: also when the export fails."""
    modules = [module for module in model.modules() if hasattr(module, "training")]  # a frozen script has no mode
    flags = [Patch(module, "training", None, f"the export is of the mode {mode}", How.KEPT) for module in modules]
    with patched([FAST_PATH, *flags]), torch.no_grad():
        if mode != PRESERVE:
            _set_mode(model, mode == TRAINING)
        yield


def _set_mode(model: torch.nn.Module, training: bool) -> None:
    try:
        model.train(training)
    except NotImplementedError:  # the module of an exported program, whose mode is written into its graph
        for module in model.modules():
            module.training = training
