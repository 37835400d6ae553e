"""``genai_config.json``: what onnxruntime-genai has to know of a decoder, so that it runs the package as it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tonnx.frontends.torch.call.containers import PAST, PRESENT

ANY_DECODER = "decoder"
"""The type of model of which onnxruntime-genai wants to know nothing but its inputs and outputs."""


def genai_config(
    config: Any, settings: Mapping[str, Any], decoder: str, inputs: Mapping[str, list[Any]], state: Mapping[str, str]
) -> dict[str, Any] | None:
    """The settings; None for a state that is not of keys and values for every layer, which it does not know.

    ``config`` is the model's; ``inputs`` are those of the file with their shapes.
    """
    keys = [name for name in state if name.startswith(f"{PAST}.") and name.endswith(".key")]
    layers = len(keys)
    if not layers or set(state) != {f"{PAST}.{i}.{part}" for i in range(layers) for part in ("key", "value")}:
        return None
    shape = inputs[keys[0]]
    ends = settings.get("eos_token_id")
    names = {name: name for name in ("input_ids", "attention_mask", "position_ids") if name in inputs}
    text = config.get_text_config()
    context = int(getattr(text, "max_position_embeddings", None) or 2048)
    return {
        "model": {
            "type": ANY_DECODER,
            "vocab_size": int(text.vocab_size),
            "context_length": context,
            "bos_token_id": _token(settings.get("bos_token_id"), 0),
            "eos_token_id": 0 if ends is None else ends,
            "pad_token_id": _token(settings.get("pad_token_id"), _token(ends, 0)),
            "decoder": {
                "session_options": {"provider_options": []},
                "filename": decoder,
                "head_size": shape[3],
                "hidden_size": int(text.hidden_size),
                "num_attention_heads": int(text.num_attention_heads),
                "num_key_value_heads": shape[1],
                "num_hidden_layers": layers,
                "inputs": {
                    **names,
                    "past_key_names": f"{PAST}.%d.key",
                    "past_value_names": f"{PAST}.%d.value",
                },
                "outputs": {
                    "logits": "logits",
                    "present_key_names": f"{PRESENT}.%d.key",
                    "present_value_names": f"{PRESENT}.%d.value",
                },
            },
        },
        "search": {
            "do_sample": False,
            "max_length": context,
            "num_beams": 1,
            "past_present_share_buffer": False,  # the file's past and present are different arrays
        },
    }


def _token(given: Any, otherwise: int) -> int:
    """One token of what may be several."""
    first = given[0] if isinstance(given, list) and given else given
    return first if isinstance(first, int) else otherwise
