"""Losses that PyTorch does not decompose, or wrongly."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce

import onnx_ir as ir

from tonnx.ir.build import Builder, Size, T
from tonnx.lowering import sizes
from tonnx.lowering.regions.emit import repeat
from tonnx.lowering.rules import lower
from tonnx.lowering.values import opmath

Lengths = ir.Value | Sequence[Size]


@lower("aten.multilabel_margin_loss")
def multilabel_margin_loss(op: Builder, x: ir.Value, target: ir.Value, reduction: int = 1) -> ir.Value:
    """How far each label of a row, up to the first -1, is from being 1 above each class that is none of them."""
    if op.rank(x) < 2:
        return multilabel_margin_loss(op, op.reshape(x, [1, -1]), op.reshape(target, [1, -1]), reduction or 2)
    scores, classes = opmath(op, x), op.size(x, 1)
    ends = op.CumSum(op.cast(op.Equal(target, -1), T.INT64), op.constant(1, T.INT64))
    is_label = op.Equal(ends, 0)  # (rows, labels)
    own = op.GatherElements(scores, op.Where(is_label, target, 0), axis=1)
    places = sizes.arange(op, classes)
    marks = op.Equal(op.Unsqueeze(op.Where(is_label, target, -1), [2]), places)
    is_target = op.cast(op.ReduceMax(op.cast(marks, T.INT32), [1]), T.BOOL)  # (rows, 1, classes)
    missing = op.Relu(1.0 - op.Unsqueeze(own, [2]) + op.Unsqueeze(scores, [1]))
    counts = op.And(op.Unsqueeze(is_label, [2]), op.Not(is_target))
    each = op.ReduceSum(op.Where(counts, missing, 0.0), [1, 2], keepdims=0)
    each = op.Div(each, op.cast(op.scalar(classes), each.dtype))
    if reduction:
        each = (op.ReduceMean if reduction == 1 else op.ReduceSum)(each, [0], keepdims=0)
    return op.cast(each, x.dtype)


# Connectionist temporal classification: the likelihood of a text over all of its alignments, step by step in time.


@lower("aten.ctc_loss")
def ctc_loss(
    op: Builder,
    log_probs: ir.Value,
    targets: ir.Value,
    input_lengths: Lengths,
    target_lengths: Lengths,
    blank: int = 0,
    reduction: int = 1,
    zero_infinity: bool = False,
) -> ir.Value:
    is_batch = op.rank(log_probs) == 3
    scores = opmath(op, log_probs if is_batch else op.Unsqueeze(log_probs, [1]))  # (time, batch, classes)
    input_length, length = _column(op, input_lengths), _column(op, target_lengths)  # (batch, 1)
    states = _states(op, _labels(op, targets, length, blank, is_batch), blank)
    likelihood = _likelihoods(op, scores, states, input_length, blank)
    # The text ends with its last label, or with the blank behind that.
    ends = [op.GatherElements(likelihood, length * 2, axis=1)]
    last = op.GatherElements(likelihood, op.Max(length * 2 - 1, op.constant(0, T.INT64)), axis=1)
    ends.append(op.Where(op.Greater(length, 0), last, -math.inf))
    loss = op.Neg(_log_of_sum(op, ends))
    if zero_infinity:
        loss = op.Where(op.Equal(loss, math.inf), 0.0, loss)
    if reduction == 1:
        return op.ReduceMean(loss / op.cast(op.Max(length, op.constant(1, T.INT64)), loss.dtype), keepdims=0)
    if reduction == 2:
        return op.ReduceSum(loss, keepdims=0)
    return op.Squeeze(loss, [1] if is_batch else [0, 1])


def _column(op: Builder, lengths: Lengths) -> ir.Value:
    vector = lengths if isinstance(lengths, ir.Value) else op.vector(lengths)
    return op.Reshape(op.cast(vector, T.INT64), [-1, 1])


def _labels(op: Builder, targets: ir.Value, length: ir.Value, blank: int, is_batch: bool) -> ir.Value:
    """(batch, longest text), blanks behind a text. Texts come so, or one behind the other."""
    targets = op.cast(targets, T.INT64)
    if op.rank(targets) == 2:
        place = sizes.arange(op, op.size(targets, 1))
        return op.Where(op.Less(place, length), targets, blank)
    if not is_batch:
        return op.Where(op.Less(sizes.arange(op, op.size(targets, 0)), length), op.Unsqueeze(targets, [0]), blank)
    start = op.CumSum(length, op.constant(0, T.INT64), exclusive=1)
    place = sizes.arange(op, op.reshape(op.ReduceMax(length, keepdims=0), [1]))
    inside = op.Less(place, length)
    padded = op.Concat(targets, op.constant([blank], T.INT64), axis=0)
    return op.Gather(padded, op.Where(inside, start + place, -1), axis=0)


def _states(op: Builder, labels: ir.Value, blank: int) -> ir.Value:
    """(batch, 2 labels + 1): a blank before each label, and behind the last."""
    count, batch = op.size(labels, 1), op.size(labels, 0)
    pair = op.Pad(op.Unsqueeze(labels, [2]), [0, 0, 1, 0, 0, 0], blank)
    return op.Pad(op.reshape(pair, [batch, sizes.multiply(op, count, 2)]), [0, 0, 0, 1], blank)


def _likelihoods(op: Builder, scores: ir.Value, states: ir.Value, input_length: ir.Value, blank: int) -> ir.Value:
    """log of the likelihood to have come to each state when the input ends."""
    time, width = op.size(scores, 0), op.size(states, 1)
    places = op.Expand(op.Unsqueeze(states, [0]), op.vector([time, *op.sizes(states)]))
    emitted = op.GatherElements(scores, places, axis=2)
    # A label follows the one before it directly, without a blank between, if it is another one.
    may_skip = op.Not(op.Or(op.Equal(states, blank), op.Equal(states, _later(op, states, 2, blank))))
    first = op.Where(op.Equal(sizes.arange(op, width), 0), op.constant(0.0, scores.dtype), -math.inf)

    def step(op: Builder, carried: list[ir.Value], t: ir.Value) -> list[ir.Value]:
        (before,) = carried
        skipped = op.Where(may_skip, _later(op, before, 2, -math.inf), -math.inf)
        after = _log_of_sum(op, [before, _later(op, before, 1, -math.inf), skipped]) + op.Gather(emitted, t, axis=0)
        return [op.Where(op.Less(t, input_length), after, before)]

    (likelihood,) = repeat(op, time, [op.Expand(first, op.vector(op.sizes(states)))], step)
    return likelihood


def _later(op: Builder, x: ir.Value, by: int, fill: float) -> ir.Value:
    """Every row moved to the right."""
    moved = op.Slice(op.Pad(x, [0, by, 0, 0], op.constant(fill, x.dtype)), [0], [-by], [1])
    moved.shape = x.shape
    return moved


def _log_of_sum(op: Builder, terms: Sequence[ir.Value]) -> ir.Value:
    """log of a sum, of logarithms: also where all of them are -inf."""
    largest = op.Max(reduce(op.Max, terms), -1e30)
    return op.Log(reduce(op.Add, [op.Exp(term - largest) for term in terms])) + largest
