"""A causal language model as one file for the prompt and for every token after it.

Nothing is known of its family: its cache is what it returns, and which sizes of that are batch and past is what changes
when they do.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from tonnx.api.export import export
from tonnx.api.result import ExportResult
from tonnx.errors import CaptureError
from tonnx.frontends.torch.call.containers import named_leaves, results_of, tree_of

_BATCH, _PAST, _NEW = 2, 5, 3
"""Sizes of the example: different ones, and none that a model would have by itself."""


@dataclass
class Step:
    """One call of a model with a state, and what is dynamic in it."""

    kwargs: dict[str, Any]
    axes: dict[str, dict[int, str]]
    handed_on: dict[str, str] = field(default_factory=dict)
    """Inputs that are the state, and the outputs that are the next one."""
    one_token: bool = False
    """Whether it takes one token at a time: a part of the state does not grow."""
    first_position: int = 0
    """What a recurrent model is told as the position of the first token: it takes small ones for a prompt's."""


def export_decoder(model: Any, path: Path, **options: Any) -> tuple[ExportResult, Step]:
    """Write the file; ``options`` are those of `tonnx.export`."""
    step = decoder_step(model)
    result = export(model, (), path, kwargs=step.kwargs, dynamic_axes=step.axes, **options)
    check_state(result, step)
    return result, step


def check_state(result: ExportResult, step: Step) -> None:
    """Every part of the state that goes in must come out."""
    outputs = [str(value.name) for value in result.model.graph.outputs]
    missing = [name for name in step.handed_on.values() if name not in outputs]
    if missing:
        raise CaptureError(
            f"the model does not give back all of its state: {', '.join(missing[:3])}", why=f"it takes {[*step.kwargs]}"
        )


def decoder_step(model: Any) -> Step:
    """The call that a decoder is exported with: more tokens after a past."""
    parameters = inspect.signature(model.forward).parameters
    with torch.no_grad():
        name, state = _state(model, _BATCH, _PAST)
        _, other = _state(model, _BATCH + 1, _PAST + 1)
    axes = moving_axes(name, state, other, {"batch": _BATCH, "past": _PAST})
    one_token = not all("past" in named.values() for named in axes.values())
    count = 1 if one_token else _NEW
    kwargs: dict[str, Any] = {"input_ids": random_tokens(model, _BATCH, count)}
    axes["input_ids"] = {0: "batch"} if one_token else {0: "batch", 1: "sequence"}
    total = "past + 1" if one_token else "past + sequence"
    grows = any("past" in named.values() for named in axes.values())
    if "attention_mask" in parameters and grows:
        kwargs["attention_mask"] = torch.ones(_BATCH, _PAST + count, dtype=torch.long)
        axes["attention_mask"] = {0: "batch", 1: total}
    if "position_ids" in parameters:
        kwargs["position_ids"] = torch.arange(_PAST, _PAST + count).repeat(_BATCH, 1)
        axes["position_ids"] = dict(axes["input_ids"])
    kwargs |= {name: state, "use_cache": True}
    if not grows and "cache_position" in parameters:  # it has no other way to know that there is a past
        kwargs["cache_position"] = torch.arange(_PAST, _PAST + 1)
    first = _PAST if "cache_position" in kwargs else 0
    return Step(kwargs, axes, handed_on(model, name, state), one_token, first)


@contextlib.contextmanager
def model_runs(model: Any, given: str) -> Iterator[None]:
    """What goes wrong inside is the model's own failure, and is told as such."""
    try:
        yield
    except Exception as error:  # the code of transformers, or of the checkpoint
        first = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
        raise CaptureError(
            f"{type(model).__name__} itself fails on {given}", why=f"{type(error).__name__}: {first}"[:300]
        ) from error


def random_tokens(model: Any, batch: int, length: int) -> torch.Tensor:
    """Token ids of the model's vocabulary, the same for the same sizes."""
    top = int(getattr(model.config.get_text_config(decoder=True), "vocab_size", 2))
    generator = torch.Generator().manual_seed(batch * 100 + length)
    return torch.randint(0, top, (batch, length), generator=generator)


def random_array(*shape: int) -> torch.Tensor:
    """Numbers that are the same for the same sizes; PyTorch's own generator is the user's."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def _state(model: Any, batch: int, length: int) -> tuple[str, Any]:
    """The argument that a model takes its state by, and a state after some tokens."""
    from transformers import DynamicCache

    parameters = inspect.signature(model.forward).parameters
    ids = random_tokens(model, batch, length)
    if "past_key_values" in parameters:
        # One that keeps everything: a window is the mask's business, and the file needs no count of what was dropped.
        cache = DynamicCache()
        try:
            model(ids, past_key_values=cache, use_cache=True)
        except (AttributeError, ValueError, IndexError, TypeError, RuntimeError):  # a hybrid wants one of its own
            cache = DynamicCache()
        if tree_of(cache).tensors():
            return "past_key_values", cache
    with model_runs(model, f"{batch} texts of {length} tokens"):
        result = model(ids, use_cache=True)
    for name in result:
        if name in parameters and any(tree_of(result[name]).objects()):
            return name, result[name]
    raise CaptureError(
        f"{type(model).__name__} gives no state that it takes back",
        why="without one, every token is computed from the beginning",
        hint="tonnx.export exports the model itself",
    )


def moving_axes(name: str, state: Any, other: Any, sizes: Mapping[str, int]) -> dict[str, dict[int, str]]:
    """Which axes of a state are of these sizes: those that are one larger where the sizes were."""
    axes: dict[str, dict[int, str]] = {}
    larger = {leaf: value for leaf, value in named_leaves(name, tree_of(other)) if isinstance(value, torch.Tensor)}
    for leaf, value in named_leaves(name, tree_of(state)):
        if not isinstance(value, torch.Tensor):
            continue
        pairs = list(zip(value.shape, larger[leaf].shape, strict=True))
        axes[leaf] = {
            axis: word for word, size in sizes.items() for axis, pair in enumerate(pairs) if pair == (size, size + 1)
        }
    return axes


def handed_on(model: Any, name: str, state: Any) -> dict[str, str]:
    """The inputs that are the state, and the outputs that are the next one."""
    arguments = list(inspect.signature(model.forward).parameters)
    before = [leaf for leaf, value in named_leaves(name, tree_of(state)) if isinstance(value, torch.Tensor)]
    after: Mapping[str, Any] = results_of({name: state}, arguments)
    return dict(zip(before, after, strict=True))
