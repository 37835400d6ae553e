"""An encoder-decoder as two files: the encoder, and one decoder for the first token and for every one after it.

The keys and values of the cross-attention are part of the decoder's state. Those of encoder states that the state does
not hold yet are computed and joined to it: all of them in the first step, none in those after it. So there is neither a
branch nor a second decoder. Nothing is known of families: the model is called as transformers' `generate` calls it.
"""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import torch

from tonnx.api.result import ExportResult
from tonnx.errors import CaptureError, InvalidModel
from tonnx.packages.decoder import Step, export_step, handed_on, model_runs, moving_axes, random_array, random_tokens
from tonnx.packages.inputs import takes_text
from tonnx.run.package import STATES, STATES_MASK

State = tuple[tuple[torch.Tensor, ...], ...]
_BATCH, _PAST, _NEW, _LENGTH, _HELD = 2, 5, 3, 11, 4
"""Sizes of the example: different ones. So many of the encoder's states are in the decoder's state already."""


class EncoderPart(torch.nn.Module):
    """The encoder of a model, and of its results the one that the decoder reads."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.encoder = model.get_encoder()
        self.config = getattr(self.encoder, "config", model.config)
        self.main_input_name = getattr(self.encoder, "main_input_name", model.main_input_name)

    def forward(self, **inputs: Any) -> dict[str, torch.Tensor]:
        if "input_ids" in inputs:
            check_positions(self, inputs["input_ids"].shape[1])
        return {"last_hidden_state": self.read(**inputs).last_hidden_state}

    def read(self, **inputs: Any) -> Any:
        return self.encoder(**inputs, return_dict=True)


def check_positions(model: Any, length: int) -> None:
    """Some make a longer table for more tokens than the model has positions for, or take one position for all."""
    limit = getattr(model.config.get_text_config(decoder=True), "max_position_embeddings", None)
    if isinstance(limit, int):
        torch._check(length <= limit)


class DecoderPart(torch.nn.Module):
    """A model whose encoder has run. Its state is a tuple for each layer: the order that optimum's users expect."""

    def __init__(self, model: Any, states_class: Any) -> None:
        super().__init__()
        self.model, self._states_class = model, states_class

    def forward(
        self,
        input_ids: torch.Tensor,
        encoder_hidden_states: torch.Tensor,
        past_key_values: State,
        encoder_attention_mask: torch.Tensor | None = None,
    ) -> dict[str, Any]:
        held, past = past_key_values[0][2].shape[2], past_key_values[0][0].shape[2]
        torch._check(held <= encoder_hidden_states.shape[1])  # some models give something all the same
        check_positions(self.model, past + input_ids.shape[1])
        # Only the keys and values for the encoder's states are used; what else is computed is left out of the file.
        _, others = self.run(input_ids[:, :1], encoder_hidden_states[:, held:])
        joined = tuple(
            (*layer[:2], *(torch.cat(pair, dim=2) for pair in zip(layer[2:], other[2:], strict=True)))
            for layer, other in zip(past_key_values, others, strict=True)
        )
        logits, state = self.run(input_ids, encoder_hidden_states, joined, attention_mask=encoder_attention_mask)
        return {"logits": logits, "past_key_values": state}

    def run(
        self, input_ids: torch.Tensor, states: torch.Tensor, past: State = (), **others: Any
    ) -> tuple[torch.Tensor, State]:
        """The model on some tokens after others, with the keys and values for the encoder's states if there are any."""
        from transformers import DynamicCache, EncoderDecoderCache

        own, crossing = DynamicCache(), DynamicCache()  # which keep everything: a window is the mask's business
        cache = EncoderDecoderCache(own, crossing)
        for place, layer in enumerate(past):
            own.update(layer[0], layer[1], place)
            crossing.update(layer[2], layer[3], place)
            cache.is_updated[place] = True
        result = self.model(
            encoder_outputs=self._states_class(last_hidden_state=states), decoder_input_ids=input_ids,
            past_key_values=cache, use_cache=True, return_dict=True, **others,
        )  # fmt: skip
        if len(own.layers) != len(crossing.layers):  # it does not look at the encoder's states in every layer
            return result.logits, ()
        pairs = zip(own.layers, crossing.layers, strict=True)
        return result.logits, tuple((a.keys, a.values, b.keys, b.values) for a, b in pairs)


def is_encoder_decoder(model: Any) -> bool:
    """Whether it reads with one part, and writes with another."""
    return bool(getattr(model.config, "is_encoder_decoder", False))


def first_token(model: Any) -> int:
    settings = model.generation_config
    for name in ("decoder_start_token_id", "bos_token_id"):
        for said in (settings, model.config, model.config.get_text_config(decoder=True)):
            token = getattr(said, name, None)
            if isinstance(token, int):
                return token
    raise InvalidModel(
        f"{type(model).__name__} does not say what its decoder begins with",
        why="neither generation_config.json nor config.json has a decoder_start_token_id",
    )


def export_decoder_part(model: Any, path: Path, read: dict[str, Any], **options: Any) -> tuple[ExportResult, Step]:
    """Write the decoder's file; ``read``: an example of what the encoder is given."""
    with torch.no_grad(), model_runs(model, "what its encoder reads"):
        states = EncoderPart(model).read(**read)
    part = DecoderPart(model, type(states)).eval()
    step = _step(model, part, states.last_hidden_state.shape[-1])
    return export_step(part, path, step, **options), step


def _step(model: Any, part: DecoderPart, width: int) -> Step:
    with torch.no_grad():
        state = _state(model, part, _BATCH, _PAST, _HELD, width)
        larger = _state(model, part, _BATCH + 1, _PAST + 1, _HELD + 1, width)
        count = _new_tokens(model, part, width)
    past = "past_key_values"
    sizes = {"batch": _BATCH, "past": _PAST, "encoder_past": _HELD}
    axes = moving_axes(past, state, larger, {word: (size, size + 1) for word, size in sizes.items()})
    kwargs = {
        "input_ids": random_tokens(model, _BATCH, count),
        STATES: random_array(_BATCH, _LENGTH, width),
        past: state,
    }
    several = {1: "sequence"} if count > 1 else {}
    axes |= {"input_ids": {0: "batch", **several}, STATES: {0: "batch", 1: "encoder_sequence"}}
    if reads_mask(model):
        kwargs[STATES_MASK] = torch.ones(_BATCH, _LENGTH, dtype=torch.long)
        kwargs[STATES_MASK][1, -2:] = 0
        axes[STATES_MASK] = {0: "batch", 1: "encoder_sequence"}
    return Step(kwargs, axes, handed_on(part, past, state), one_token=count == 1)


def _new_tokens(model: Any, part: DecoderPart, width: int) -> int:
    """How many tokens the example has after its past: several, unless the model takes one at a time."""
    ids, states = random_tokens(model, _BATCH, _NEW), random_array(_BATCH, _HELD, width)
    try:
        at_once, _ = part.run(ids, states)
        state: State = ()
        for place in range(_NEW):
            one_by_one, state = part.run(ids[:, place : place + 1], states, state)
        part.run(ids, states, state)
    except (AssertionError, ValueError, IndexError, RuntimeError):  # its own refusal; one token is tried by the export
        return 1
    return _NEW if torch.allclose(at_once[:, -1:], one_by_one, rtol=1e-3, atol=1e-3) else 1


def reads_mask(model: Any) -> bool:
    """Whether the decoder is told which of the encoder's states are padding: texts have a state for each token."""
    return takes_text(EncoderPart(model)) and "attention_mask" in inspect.signature(model.forward).parameters


def _state(model: Any, part: DecoderPart, batch: int, past: int, held: int, width: int) -> State:
    """A state after some tokens, with so many of the encoder's states."""
    with model_runs(model, f"{past} tokens after {held} states of its encoder"):
        _, state = part.run(random_tokens(model, batch, past), random_array(batch, held, width))
    if not state:
        raise CaptureError(
            f"{type(model).__name__} does not keep the keys and values of tokens and encoder states for every layer",
            why="without them, every token is computed from the beginning",
            hint="tonnx.export takes its parts one by one",
        )
    return state
