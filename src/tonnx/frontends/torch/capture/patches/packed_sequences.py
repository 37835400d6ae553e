"""Packed sequences during a capture: a padded tensor and its lengths all the way, which is what ONNX's operators take.

``pack_padded_sequence`` cuts the padding out, into shapes that depend on the lengths' values. For the length of a
capture a PackedSequence holds the padded tensor (time first) as its data and the lengths as its batch sizes; recurrent
layers get both, and ``pad_packed_sequence`` gives the padded tensor back.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true
from torch.nn.utils.rnn import PackedSequence

from tonnx.errors import UnsupportedArgument
from tonnx.frontends.torch.capture.patches.library import operator
from tonnx.frontends.torch.capture.patches.plain_sizes import is_dynamic
from tonnx.frontends.torch.capture.patches.recurrent import layers
from tonnx.frontends.torch.capture.python_flow.recorded_list import RecordedList, ragged

_SCHEMA = (
    "packed(Tensor input, Tensor lengths, Tensor[] hx, Tensor[] params, str kind, bool has_biases, int num_layers, "
    "bool bidirectional) -> Tensor[]"
)


def pack(original: Any, x: torch.Tensor, lengths: torch.Tensor, batch_first: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """``torch._VF._pack_padded_sequence``."""
    return (x.transpose(0, 1) if batch_first else x), lengths


def pad_packed_sequence(
    original: Any,
    sequence: PackedSequence,
    batch_first: bool = False,
    padding_value: float = 0.0,
    total_length: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """``torch.nn.utils.rnn.pad_packed_sequence``."""
    data, lengths, _, back = sequence
    longest = data.shape[0]
    if padding_value:
        inside = torch.arange(longest)[:, None] < lengths
        data = torch.where(inside.reshape(*inside.shape, *[1] * (data.dim() - 2)), data, padding_value)
    if total_length is not None:
        missing = total_length - longest
        data = torch.nn.functional.pad(data, [0, 0] * (data.dim() - 1) + [0, missing], value=padding_value)
    else:
        count: Any = lengths.max().item()
        torch._check(count >= 0)
        torch._check(count <= longest)
        data = data.narrow(0, 0, count)
    if back is not None:
        data, lengths = data.index_select(1, back), lengths[back.cpu()]
    return (data.transpose(0, 1) if batch_first else data), lengths


def layer_forward(original: Any, module: Any, input: Any, hx: Any = None) -> Any:
    """``forward`` of a recurrent layer."""
    if not isinstance(input, PackedSequence):
        return original(module, input, hx)
    if module.training and module.dropout and module.num_layers > 1:
        raise UnsupportedArgument("dropout between the layers of a recurrent network cannot be written for training")
    data, lengths, order, back = input
    if hx is None:
        count = module.num_layers * (2 if module.bidirectional else 1)
        widths = [module.proj_size or module.hidden_size, module.hidden_size][: 2 if module.mode == "LSTM" else 1]
        states = [data.new_zeros(count, data.shape[1], width) for width in widths]
    else:
        hx = module.permute_hidden(hx, order)
        states = list(hx) if isinstance(hx, tuple) else [hx]
    kind = module.mode.lower()
    output, *last = operator(_SCHEMA, lambda x, _, hx, params, kind, *rest: layers(x, hx, params, *rest))(
        data, lengths, states, module._flat_weights, kind, module.bias, module.num_layers, module.bidirectional
    )
    hidden = tuple(last) if module.mode == "LSTM" else last[0]
    return PackedSequence(output, lengths, order, back), module.permute_hidden(hidden, back)


def _differ_in_length(sequences: Any) -> bool:
    """Whether these are tensors whose lengths the run knows, and which may not be one length."""
    if not isinstance(sequences, (list, tuple)) or not all(isinstance(x, torch.Tensor) and x.dim() for x in sequences):
        return False
    lengths = [x.shape[0] for x in sequences]
    return any(map(is_dynamic, lengths)) and not all(statically_known_true(n == lengths[0]) for n in lengths)


def pad_sequence(
    original: Any,
    sequences: Any,
    batch_first: bool = False,
    padding_value: float = 0.0,
    padding_side: str = "right",
) -> torch.Tensor:
    """``torch.nn.utils.rnn.pad_sequence``, also of as many tensors as only the run knows, or of such lengths."""
    if not isinstance(sequences, RecordedList):
        if padding_side != "right" or not _differ_in_length(sequences):
            return original(sequences, batch_first, padding_value, padding_side)
        sequences = ragged(list(sequences), sequences[0], 0)
    padded = sequences.padded(padding_value, padding_side)
    return padded if batch_first else padded.transpose(0, 1)
