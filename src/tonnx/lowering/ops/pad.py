"""Padding. torch names the last axis first; a negative amount crops."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import onnx_ir as ir

from tonnx.errors import UnsupportedArgument
from tonnx.ir.build import Builder, Size
from tonnx.lowering.rules import Lowering, lower
from tonnx.lowering.sizes import END
from tonnx.lowering.values import Operand, as_value


def _by_axis(rank: int, pad: Sequence[Size]) -> tuple[list[Size], list[Size]]:
    before: list[Size] = [0] * rank
    after: list[Size] = [0] * rank
    for i in range(len(pad) // 2):
        before[rank - 1 - i], after[rank - 1 - i] = pad[2 * i], pad[2 * i + 1]
    return before, after


def _is_negative(amount: Size) -> bool:
    return isinstance(amount, int) and amount < 0


def _cropped(op: Builder, x: ir.Value, before: Sequence[Size], after: Sequence[Size]) -> ir.Value:
    """Without what the negative amounts take away."""
    axes = [i for i in range(len(before)) if _is_negative(before[i]) or _is_negative(after[i])]
    if not axes:
        return x
    starts = [-before[i] if _is_negative(before[i]) else 0 for i in axes]  # type: ignore[operator]
    ends = [after[i] if _is_negative(after[i]) else END for i in axes]
    return op.Slice(x, starts, ends, axes)


def _padded(
    op: Builder, x: ir.Value, before: Sequence[Size], after: Sequence[Size], mode: str, value: ir.Value | None = None
) -> ir.Value:
    amounts = [0 if _is_negative(amount) else amount for amount in (*before, *after)]
    if all(isinstance(amount, int) and amount == 0 for amount in amounts):
        return x
    return op.Pad(x, op.vector(amounts), value, mode=None if mode == "constant" else mode)


@lower("aten.constant_pad_nd")
def constant_pad(op: Builder, x: ir.Value, pad: Sequence[Size], value: Operand | None = 0) -> ir.Value:
    before, after = _by_axis(op.rank(x), pad)
    fill = None if value is None or (not isinstance(value, ir.Value) and value == 0) else as_value(op, value, x.dtype)
    return _padded(op, _cropped(op, x, before, after), before, after, "constant", fill)


@lower(*(f"aten.reflection_pad{axes}d" for axes in (1, 2, 3)), mode="reflect", renamed="padding=pad")
@lower(*(f"aten.replication_pad{axes}d" for axes in (1, 2, 3)), mode="edge", renamed="padding=pad")
def repeating_pad(op: Builder, x: ir.Value, pad: Sequence[Size], *, mode: str) -> ir.Value:
    before, after = _by_axis(op.rank(x), pad)
    return _cropped(op, _padded(op, x, before, after, mode), before, after)


@lower("aten._pad_circular")
def circular_pad(op: Builder, x: ir.Value, pad: Sequence[Size]) -> ir.Value:
    before, after = _by_axis(op.rank(x), pad)
    return _padded(op, _cropped(op, x, before, after), before, after, "wrap")


_MODES: dict[str, Lowering] = {
    "reflect": partial(repeating_pad, mode="reflect"),
    "replicate": partial(repeating_pad, mode="edge"),
    "circular": circular_pad,
}


@lower("aten.pad")
def pad(
    op: Builder, x: ir.Value, pad: Sequence[Size], mode: str = "constant", value: Operand | None = None
) -> ir.Value:
    if mode == "constant":
        return constant_pad(op, x, pad, value)
    if mode not in _MODES:
        raise UnsupportedArgument(f"padding mode {mode!r} is not known")
    return _MODES[mode](op, x, pad)


@lower("aten._pad_enum")
def pad_by_number(op: Builder, x: ir.Value, pad: Sequence[Size], mode: int, value: Operand | None = None) -> ir.Value:
    if mode == 0:
        return constant_pad(op, x, pad, value)
    return list(_MODES.values())[mode - 1](op, x, pad)
