"""The mode that a model runs in for us, with or without chance, and its own afterwards."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from tonnx.frontends.patching import How, Patch, patched
from tonnx.frontends.torch.settings import EVAL, PRESERVE, TRAINING
from tonnx.lowering.training import alpha_factors

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


def called(model: torch.nn.Module, args: Any, kwargs: Any) -> Any:
    """What the model returns; with gradients if it computes with them itself, as forces of an energy are."""
    try:
        return model(*args, **kwargs)
    except RuntimeError as error:
        if "does not require grad" not in str(error):
            raise
    with torch.enable_grad():
        return model(*args, **kwargs)


def _segment_reduce(original: Any, data: torch.Tensor, reduce: str, **options: Any) -> Any:
    lengths, offsets = options.get("lengths"), options.get("offsets")
    if offsets is not None:
        lengths = offsets.diff(dim=-1, prepend=torch.zeros_like(offsets[..., :1]))
    size = data.shape[options.get("axis", 0)]
    if lengths is not None and lengths.numel() and (lengths.min() < 0 or lengths.sum(-1).max() > size):
        raise ValueError("a segment is out of range")
    return original(data, reduce, **options)


def _lu_unpack(original: Any, LU_data: torch.Tensor, LU_pivots: torch.Tensor, *args: Any, **options: Any) -> Any:
    if LU_pivots.numel() and (LU_pivots.min() < 1 or LU_pivots.max() > LU_data.shape[-2]):
        raise ValueError("a pivot is out of range")
    return original(LU_data, LU_pivots, *args, **options)


_UNCHECKED = "it reads or writes beyond its memory where numbers are out of range, which those of a trial may be"
CHECKED = (
    Patch("torch", "segment_reduce", _segment_reduce, _UNCHECKED),
    Patch("torch", "lu_unpack", _lu_unpack, _UNCHECKED),
)


def _set_mode(model: torch.nn.Module, training: bool) -> None:
    try:
        model.train(training)
    except NotImplementedError:  # the module of an exported program, whose mode is written into its graph
        for module in model.modules():
            module.training = training


def _uncompiled(original: Any, *args: Any, **kwargs: Any) -> Any:
    raise RuntimeError("it compiles a part of itself, which does not go together with watching what it calls")


@contextlib.contextmanager
def watched(mode: contextlib.AbstractContextManager[Any] | None) -> Iterator[None]:
    """A mode of PyTorch's that sees what the model calls; None: nothing does."""
    if mode is None:
        yield
        return
    with patched([Patch("torch", "compile", _uncompiled, "what is compiled under a mode fails from then on")]), mode:
        yield


# In training without chance: dropouts pass on what they are given, as those of the file can be told to


def _passed_on(original: Any, x: torch.Tensor, p: float = 0.5, train: bool = True, **_: Any) -> torch.Tensor:
    return x


def _scaled(original: Any, x: torch.Tensor, p: float = 0.5, train: bool = True, **_: Any) -> torch.Tensor:
    return x / (1 - p) if train and p != 1 else x


def _alpha(original: Any, x: torch.Tensor, p: float = 0.5, train: bool = False, **_: Any) -> torch.Tensor:
    if not train or p in (0, 1):
        return x
    scale, shift = alpha_factors(p)
    return x * scale + shift


def _attention(original: Any, *args: Any, **kwargs: Any) -> Any:
    kwargs.pop("dropout_p", None)
    return original(*(args[:4] + ((0.0, *args[5:]) if len(args) > 4 else ())), **kwargs)


_FUNCTIONS = {
    "dropout": _passed_on,
    "feature_dropout": _scaled,
    "alpha_dropout": _alpha,
    "feature_alpha_dropout": _alpha,
}
_REASON = "what a file leaves out when its dropouts are told to"

NO_DROPOUT = (
    *(
        Patch(owner, name + suffix, function, _REASON)
        for owner in ("torch._VF", "torch")
        for name, function in _FUNCTIONS.items()
        for suffix in ("", "_")
    ),
    Patch("torch.nn.functional", "scaled_dot_product_attention", _attention, _REASON),
)
"""The layers and functional forms of dropout all end up at these functions."""
