"""A causal language model as one file for the prompt and for every token after it.

Nothing is known of its family: its cache is what it returns, and which sizes of that are batch and past is what changes
when they do. A model that has none is called on the whole text, as transformers' `generate` calls it.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tonnx.api.export import export
from tonnx.api.result import ExportResult
from tonnx.errors import CaptureError, VerificationFailed, told_as
from tonnx.frontends.torch.call.containers import Node, named_leaves, results_of, tree_of

_BATCH, _PAST, _NEW, _FURTHER = 2, 5, 3, 13
"""Sizes of the example: different ones, and none that a model would have by itself."""
_RTOL = 1e-3
"""How far the result of a stage may be from the model's, as a part of the largest value."""


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

    @property
    def whole_text(self) -> bool:
        """Whether there is no state: every token is computed from the beginning."""
        return not self.handed_on


class Around(torch.nn.Module):
    """What a file is made of: a model, called in a way of its own."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model


class WholeText(Around):
    """A model without a state, on all tokens so far: the scores of the next one."""

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> dict[str, torch.Tensor]:
        others: dict[str, Any] = {"attention_mask": attention_mask, "use_cache": False}
        if "position_ids" in inspect.signature(self.model.forward).parameters:
            others["position_ids"] = (attention_mask.cumsum(-1) - 1).clamp(min=0)
        # Some append a token, or a mask of permutations: what they are given is their own business.
        inputs = self.model.prepare_inputs_for_generation(input_ids, **others)
        return {"logits": self.model(**inputs, return_dict=True).logits[:, -1:]}


def export_decoder(model: Any, path: Path, **options: Any) -> tuple[ExportResult, Step]:
    """Write the file; ``options`` are those of `tonnx.export`."""
    step = decoder_step(model)
    part = WholeText(model).eval() if step.whole_text else model
    return export_step(part, path, step, **options), step


def export_step(part: Any, path: Path, step: Step, **options: Any) -> ExportResult:
    """Write the file of a decoder, or of what stands for it; every part of the state that goes in must come out."""
    result = export(part, (), path, kwargs=step.kwargs, dynamic_axes=step.axes, **options)
    outputs = [str(value.name) for value in result.model.graph.outputs]
    missing = [name for name in step.handed_on.values() if name not in outputs]
    if missing:
        raise CaptureError(
            f"the model does not give back all of its state: {', '.join(missing[:3])}", why=f"it takes {[*step.kwargs]}"
        )
    return result


def compared(stage: str, wanted: torch.Tensor, actual: np.ndarray, where: str | None = None) -> float:
    """The difference of a stage's result, as a part of the largest value."""
    expected = wanted.float().numpy()
    difference = float(np.abs(actual - expected).max() / max(np.abs(expected).max(), 1e-9))
    if not difference <= _RTOL:
        what = f"{stage} differs from the model's by {difference:.2g} of the largest value"
        raise VerificationFailed(what, where=where)
    return difference


def decoder_step(model: Any) -> Step:
    """The call that a decoder is exported with: more tokens after a past."""
    with torch.no_grad():
        name, state, begin = _state(model, _BATCH, _PAST)
        larger = None if state is None else _state_after(model, name, begin, _BATCH + 1, _PAST + _FURTHER)
    sizes = {"batch": (_BATCH, _BATCH + 1), "past": (_PAST, _PAST + _FURTHER)}
    if state is None or not _is_regular(state, larger, sizes):
        return _whole_text_step(model)
    axes = moving_axes(name, state, larger, sizes)
    empty = {leaf for leaf, value in named_leaves(name, tree_of(state)) if torch.is_tensor(value) and not value.numel()}
    growing = ["past" in named.values() for leaf, named in axes.items() if leaf not in empty]
    grows, one_token = any(growing), not all(growing)
    if not one_token and not continues(model, name, begin, at_once=True):
        if not continues(model, name, begin, at_once=False):
            return _whole_text_step(model)
        one_token = True
    count = 1 if one_token else _NEW
    kwargs: dict[str, Any] = {"input_ids": random_tokens(model, _BATCH, count)}
    axes["input_ids"] = {0: "batch"} if one_token else {0: "batch", 1: "sequence"}
    total = "past + 1" if one_token else "past + sequence"
    parameters = inspect.signature(model.forward).parameters
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


def _is_regular(state: Any, larger: Any, sizes: Mapping[str, tuple[int, int]]) -> bool:
    """Whether every size of a state is the same with more texts and tokens, or as many as there are of one of them."""
    shapes, others = ([tensor.shape for _, tensor in tree_of(each).tensors()] for each in (state, larger))
    if [*map(len, shapes)] != [*map(len, others)]:
        return False
    pairs = zip((size for shape in shapes for size in shape), (size for shape in others for size in shape), strict=True)
    return all(size == more or (size, more) in sizes.values() for size, more in pairs)


def continues(model: Any, name: str, begin: Callable[[], Any], *, at_once: bool) -> bool:
    """Whether tokens after a past, all at once or one by one, have the scores that the whole text gives the last one.

    Asked of the model itself, with padding in front. Some hide no token from those before it where they keep a state,
    take one token after a past, or reckon with one that is not there.
    """
    parameters = inspect.signature(model.forward).parameters
    ids, mask = random_tokens(model, _BATCH, _PAST + _NEW), torch.ones(_BATCH, _PAST + _NEW, dtype=torch.long)
    mask[1, :2] = 0
    positions = (mask.cumsum(-1) - 1).clamp(min=0)
    ends = [_PAST, _PAST + _NEW] if at_once else range(1, _PAST + _NEW + 1)
    state, first, scores = begin(), 0, torch.empty(0)
    try:
        with torch.no_grad():
            whole = {"attention_mask": mask, "position_ids": positions}
            told = {word: value for word, value in whole.items() if word in parameters}
            wanted = model(ids, **told, use_cache=False, return_dict=True).logits[:, -1:]
            for end in ends:
                known = {"attention_mask": mask[:, :end], "position_ids": positions[:, first:end], name: state}
                given = {word: value for word, value in known.items() if word in parameters and value is not None}
                result = model(ids[:, first:end], **given, use_cache=True, return_dict=True)
                state, first, scores = result[name], end, result.logits[:, -1:]
    except (AssertionError, AttributeError, ValueError, LookupError, TypeError, RuntimeError):  # its own refusal
        return False
    return scores.shape == wanted.shape and torch.allclose(scores, wanted, rtol=1e-3, atol=1e-3)


def _whole_text_step(model: Any) -> Step:
    mask = torch.ones(_BATCH, _PAST, dtype=torch.long)
    mask[1, :2] = 0  # padded in front
    kwargs = {"input_ids": random_tokens(model, _BATCH, _PAST), "attention_mask": mask}
    return Step(kwargs, {name: {0: "batch", 1: "sequence"} for name in kwargs})


def model_runs(model: Any, given: str) -> contextlib.AbstractContextManager[None]:
    """What goes wrong inside is the model's own failure, and is told as such."""
    return told_as(CaptureError, f"{type(model).__name__} itself fails on {given}")


def random_tokens(model: Any, batch: int, length: int) -> torch.Tensor:
    """Token ids of the model's vocabulary, the same for the same sizes."""
    top = int(getattr(model.config.get_text_config(decoder=True), "vocab_size", 2))
    generator = torch.Generator().manual_seed(batch * 100 + length)
    return torch.randint(0, top, (batch, length), generator=generator)


def random_array(*shape: int) -> torch.Tensor:
    """Numbers that are the same for the same sizes; PyTorch's own generator is the user's."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def _state(model: Any, batch: int, length: int) -> tuple[str, Any, Callable[[], Any]]:
    """The argument that a model takes its state by, a state after some tokens (None: it has none), how it begins."""
    parameters = inspect.signature(model.forward).parameters
    ids = random_tokens(model, batch, length)
    asked = {"use_cache": True} if "use_cache" in parameters else {}
    with model_runs(model, f"{batch} texts of {length} tokens"):
        result = model(ids, **asked, return_dict=True)
    parts = len(tree_of(result.get("past_key_values")).tensors())
    for make in KEEPING_CACHES if "past_key_values" in parameters else ():
        with contextlib.suppress(AttributeError, ValueError, IndexError, TypeError, RuntimeError):
            cache = make(model)
            model(ids, past_key_values=cache, use_cache=True)
            if len(tree_of(cache).tensors()) >= max(parts, 1):
                return "past_key_values", cache, partial(make, model)
    for name in result:
        tree = tree_of(result[name])
        if name not in parameters or tree.make is None or not tree.tensors():
            continue
        if any(tree.objects()) or _carries(model, name, tree, ids):
            return name, result[name], _nothing
    return "", None, _nothing


def _state_after(model: Any, name: str, begin: Callable[[], Any], batch: int, length: int) -> Any:
    """The state of a model after so many tokens, where it is known how it begins."""
    state = begin()
    given = {word: value for word, value in ((name, state), ("use_cache", True)) if value is not None}
    taken = {word: given[word] for word in given if word in inspect.signature(model.forward).parameters}
    with model_runs(model, f"{batch} texts of {length} tokens"):
        result = model(random_tokens(model, batch, length), **taken, return_dict=True)
    return result[name] if state is None else state


def _nothing() -> None:
    """How a state begins that the model makes itself."""


def _plain_cache(model: Any) -> Any:
    from transformers import DynamicCache

    return DynamicCache()


def _hybrid_cache(model: Any) -> Any:
    """The cache of a model with layers of several kinds."""
    from transformers import DynamicCache

    cache = DynamicCache(config=model.config)
    cache.layers[:] = [_keeping(layer) for layer in cache.layers]
    return cache


KEEPING_CACHES = (_plain_cache, _hybrid_cache)
"""Caches that keep everything: a window is the mask's business, and the file needs no count of what was dropped."""


def _keeping(layer: Any) -> Any:
    """A layer of a cache that is the same but for its window, where transformers has one."""
    from transformers import cache_utils

    if not getattr(layer, "is_sliding", False):
        return layer
    wanted = [base for base in type(layer).__mro__[1:] if base is not cache_utils.DynamicSlidingWindowLayer]
    for kind in vars(cache_utils).values():
        if isinstance(kind, type) and [*kind.__mro__[1:]] == [base for base in wanted if base is not kind]:
            taken = inspect.signature(kind).parameters
            return kind(**{name: value for name, value in vars(layer).items() if name in taken})
    return layer


def _carries(model: Any, name: str, state: Node, ids: torch.Tensor) -> bool:
    """Whether plain tensors are a state: the next token has the scores that the whole text gives it; zeros are none."""
    token = random_tokens(model, len(ids), 1)
    for text, make in ((torch.cat([ids, token], 1), torch.clone), (token, torch.zeros_like)):
        past = state.rebuilt(iter([make(tensor) for _, tensor in state.tensors()]))  # models write to it
        try:
            scores = model(token, **{name: past}, use_cache=True, return_dict=True).logits
        except (AttributeError, ValueError, IndexError, TypeError, RuntimeError):  # not of this form
            return False
        wanted = model(text, use_cache=False, return_dict=True).logits[:, -1:]
        if scores.shape != wanted.shape or not torch.allclose(scores, wanted, rtol=1e-3, atol=1e-4):
            return False
    return True


def moving_axes(name: str, state: Any, other: Any, sizes: Mapping[str, tuple[int, int]]) -> dict[str, dict[int, str]]:
    """Which axes of a state are of these sizes: those that are larger in another one, as the sizes are."""
    axes: dict[str, dict[int, str]] = {}
    larger = {leaf: value for leaf, value in named_leaves(name, tree_of(other)) if isinstance(value, torch.Tensor)}
    for leaf, value in named_leaves(name, tree_of(state)):
        if not isinstance(value, torch.Tensor):
            continue
        pairs = list(zip(value.shape, larger[leaf].shape, strict=True))
        axes[leaf] = {axis: word for word, moved in sizes.items() for axis, pair in enumerate(pairs) if pair == moved}
    return axes


def handed_on(model: Any, name: str, state: Any) -> dict[str, str]:
    """The inputs that are the state, and the outputs that are the next one."""
    arguments = list(inspect.signature(model.forward).parameters)
    before = [leaf for leaf, value in named_leaves(name, tree_of(state)) if isinstance(value, torch.Tensor)]
    after: Mapping[str, Any] = results_of({name: state}, arguments)
    return dict(zip(before, after, strict=True))
