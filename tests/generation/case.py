"""What is tried with each family: exported as it is, with its cache, by hand with flat tensors, and generating."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch

import tonnx
from tests.generation.families import prompts, tiny_model

OPSET = 18
NEW_TOKENS = 24
PROMPT = 9
PASTS = (0, 1, 7)
CLOSE = 1e-4  # scores nearer than this to the highest are as good as it


class Case:
    """One model, and the files that were made of it."""

    def __init__(self, family: str, folder: Path) -> None:
        self.model, self.folder = tiny_model(family), folder
        self.parameters = inspect.signature(self.model.forward).parameters
        self.state = "past_key_values" if "past_key_values" in self.parameters else "cache_params"

    def cache(self, ids: torch.Tensor) -> Any:
        """A cache with these tokens: one that keeps all of them if the model takes such a one, else its own."""
        import transformers

        with torch.no_grad():
            if self.state == "past_key_values":
                try:
                    cache = transformers.DynamicCache()
                    self.model(ids, past_key_values=cache, use_cache=True)
                except (AttributeError, ValueError, IndexError, TypeError):  # a hybrid, which wants a cache of its own
                    pass
                else:
                    return cache
            return self.model(ids, use_cache=True)[self.state]

    def as_it_is(self) -> str:
        axes = {"input_ids": {0: "batch", 1: "sequence"}}
        result = tonnx.export(
            self.model, (prompts(2, 5),), self.folder / "plain.onnx", dynamic_axes=axes, opset_version=OPSET
        )
        return _proven(result)

    def with_cache(self) -> str:
        kwargs = {"input_ids": prompts(2, 3, seed=1), self.state: self.cache(prompts(2, 5))}
        axes: dict[str, Any] = {"input_ids": {0: "batch", 1: "sequence"}, self.state: {0: "batch", 2: "past"}}
        if self.state == "cache_params":  # a recurrent state takes one token at a time
            kwargs["input_ids"] = kwargs["input_ids"][:, :1]
            axes = {"input_ids": {0: "batch"}, self.state: {0: "batch"}}
            if "cache_position" in self.parameters:
                kwargs["cache_position"] = torch.arange(5, 6)
        elif "attention_mask" in self.parameters:
            kwargs["attention_mask"] = torch.ones(2, 8, dtype=torch.long)
            axes["attention_mask"] = {0: "batch", 1: "past + sequence"}
        result = tonnx.export(
            self.model, (), self.folder / "cache.onnx", kwargs=kwargs, dynamic_axes=axes, opset_version=OPSET
        )
        return _proven(result)

    def by_hand(self) -> str:
        """The wrapper that people write today, with names that do not say what belongs together."""
        if self.state == "cache_params":
            return "no keys and values"
        past = [tensor for layer in self.cache(prompts(2, 5)).layers for tensor in (layer.keys, layer.values)]
        names = [f"past_{i}" for i in range(len(past))]
        axes = {name: {0: "batch", 2: "past"} for name in names}
        axes |= {"input_ids": {0: "batch", 1: "sequence"}, "attention_mask": {0: "batch", 1: "total"}}
        example = (prompts(2, 3, seed=1), torch.ones(2, 8, dtype=torch.long), *past)
        result = tonnx.export(
            Flat(self.model), example, self.folder / "flat.onnx", dynamic_axes=axes, opset_version=OPSET,
            input_names=["input_ids", "attention_mask", *names],
        )  # fmt: skip
        return _proven(result)

    def tokens(self) -> str:
        """Greedy tokens of the file with the cache beside `generate`'s; the prompt is given at once or in two parts."""
        session = onnxruntime.InferenceSession(self.folder / "cache.onnx", providers=["CPUExecutionProvider"])
        self.model.generation_config.eos_token_id = None
        for batch in (1, 2):
            ids = prompts(batch, PROMPT, seed=2)
            wanted = self.model.generate(ids, do_sample=False, max_new_tokens=NEW_TOKENS)[:, PROMPT:].numpy()
            for past in PASTS:
                tokens, close = greedy(session, ids.numpy(), past)
                differs = (tokens != wanted).any(axis=0)
                if differs.any() and not close[: int(differs.argmax()) + 1].any():
                    return f"differ at batch {batch}, past {past}, token {int(differs.argmax())}"
        return "ok"


class Flat(torch.nn.Module):
    """A decoder with its past as plain tensors."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor, *past: torch.Tensor) -> Any:
        import transformers

        cache = transformers.DynamicCache()
        for layer in range(len(past) // 2):
            cache.update(past[2 * layer], past[2 * layer + 1], layer)
        out = self.model(input_ids, attention_mask=attention_mask, past_key_values=cache, use_cache=True)
        present = [tensor for layer in out.past_key_values.layers for tensor in (layer.keys, layer.values)]
        return (out.logits, *present)


def greedy(session: onnxruntime.InferenceSession, ids: np.ndarray, past: int) -> tuple[np.ndarray, np.ndarray]:
    """Tokens of a file, and which of them are a choice between scores that are as good as equal."""
    state = {i.name: _empty(i, len(ids)) for i in session.get_inputs() if "past_key" in i.name or "cache_" in i.name}
    given = {"cache_position": ()} if "cache_position" in state else {}
    state = {name: array for name, array in state.items() if name not in given}
    tokens, close, length = [], [], 0
    recurrent = session.get_inputs()[0].shape[1] == 1
    for part in _parts(ids, past, recurrent):
        logits, state, length = _step(session, part, state, length)
    for _ in range(NEW_TOKENS):
        best = np.sort(logits[:, -1], axis=-1)
        close.append(bool((best[:, -1] - best[:, -2] < CLOSE).any()))
        tokens.append(logits[:, -1].argmax(-1))
        logits, state, length = _step(session, tokens[-1][:, None], state, length)
    return np.stack(tokens, axis=1), np.array(close)


def _parts(ids: np.ndarray, past: int, recurrent: bool) -> Iterator[np.ndarray]:
    if recurrent:
        yield from np.split(ids, ids.shape[1], axis=1)
    else:
        yield from (part for part in (ids[:, :past], ids[:, past:]) if part.shape[1])


def _step(
    session: onnxruntime.InferenceSession, ids: np.ndarray, state: dict[str, np.ndarray], length: int
) -> tuple[np.ndarray, dict[str, np.ndarray], int]:
    feeds, names = {"input_ids": ids, **state}, [i.name for i in session.get_inputs()]
    if "attention_mask" in names:
        feeds["attention_mask"] = np.ones((len(ids), length + ids.shape[1]), np.int64)
    if "cache_position" in names:
        feeds["cache_position"] = np.arange(length, length + ids.shape[1])
    outputs = dict(zip([o.name for o in session.get_outputs()], session.run(None, feeds), strict=True))
    handed_on = {name: outputs[_present(name)] for name in state}
    return outputs["logits"], handed_on, length + ids.shape[1]


def _present(name: str) -> str:
    return name.replace("past_key_values.", "present.") if "past_key" in name else f"present_{name}"


def _empty(value: Any, batch: int) -> np.ndarray:
    shape = [batch if dim == "batch" else 0 if dim == "past" else dim for dim in value.shape]
    return np.zeros(shape, np.float32)


def _proven(result: Any) -> str:
    assert result.verification is not None and result.verification.ok
    remarks = [remark for remark in result.verification.remarks if remark.startswith("right where")]
    return remarks[0].partition(";")[0] if remarks else "ok"


COLUMNS: dict[str, Callable[[Case], str]] = {
    "as it is": Case.as_it_is,
    "with its cache": Case.with_cache,
    "by hand": Case.by_hand,
    "tokens": Case.tokens,
}
