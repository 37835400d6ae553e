"""Decoding: the best way through the tags of a sentence, what an alignment spells, what a beam search found."""

from __future__ import annotations

import onnx_ir as ir

from tonnx.errors import UnsupportedArgument
from tonnx.frontends.paddle.lower.rules import Value, lower
from tonnx.ir.build import Builder, T
from tonnx.ir.infer import dims_of
from tonnx.lowering import sizes
from tonnx.lowering.regions.emit import LoopBody, tensor


@lower("viterbi_decode")
def viterbi_decode(
    op: Builder, potentials: Value, transition_params: Value, lengths: Value, *, include_bos_eos_tag: bool = True
) -> tuple[ir.Value, ir.Value]:
    """The best score of each sentence and its tags."""
    lengths = op.cast(lengths, T.INT64)
    words = op.Transpose(potentials, perm=[1, 0, 2])  # (words, sentences, tags)
    first = op.Gather(words, 0, axis=0)
    stop: ir.Value | None = None
    if include_bos_eos_tag:  # the last row leads from the start, the one before to the end
        first = op.Add(first, op.Gather(transition_params, -1, axis=0))
        stop = op.Gather(transition_params, -2, axis=0)
        first = _ended(op, first, stop, op.Equal(lengths, 1))
    return _best_way(op, words, transition_params, lengths, first, stop)


def _best_way(
    op: Builder, words: ir.Value, steps: ir.Value, lengths: ir.Value, first: ir.Value, stop: ir.Value | None
) -> tuple[ir.Value, ir.Value]:
    """The best scores, and the tags: one loop forwards over the words, one back through them."""
    longest = op.ReduceMax(lengths, keepdims=0)
    last, back = _forwards(op, words, steps, lengths, longest, first, stop)
    # With sentences of one word only there are no origins: a row of zeros keeps the lookup valid.
    none = op.Expand(op.constant(0, T.INT64), op.Shape(last), _shape=last.shape.dims)  # type: ignore[union-attr]
    back = op.Concat(back, op.Unsqueeze(none, [0]), axis=0)
    scores = op.ReduceMax(last, [1], keepdims=0)
    tags = op.ArgMax(last, axis=1, keepdims=0)
    return scores, _backwards(op, back, tags, lengths, longest)


@lower("crf_decoding")
def crf_decoding(
    op: Builder, emission: Value, transition: Value, label: Value | None = None, length: Value | None = None
) -> ir.Value:
    """Of the transitions, the first row leads from the start and the second to the end."""
    if length is None or label is not None:
        raise UnsupportedArgument(
            "crf_decoding of sentences without their lengths, or beside their labels",
            why="where a sentence ends is not in the tensor (LoD)",
        )
    lengths = op.reshape(op.cast(length, T.INT64), [-1])
    words = op.Transpose(emission, perm=[1, 0, 2])
    start, stop = (op.Gather(transition, i, axis=0) for i in (0, 1))
    first = _ended(op, op.Add(op.Gather(words, 0, axis=0), start), stop, op.Equal(lengths, 1))
    _, path = _best_way(op, words, sizes.cut(op, transition, 0, 2), lengths, first, stop)
    longest = op.ReduceMax(lengths, keepdims=0)
    rest = op.Sub(op.vector([op.size(emission, 1)]), op.Unsqueeze(longest, [0]))
    pads = op.Concat(op.constant([0, 0, 0], T.INT64), rest, axis=0)
    return op.Pad(path, pads, op.constant(0, T.INT64))


@lower("ctc_align")
def ctc_align(
    op: Builder,
    input: Value,
    input_length: Value | None = None,
    *,
    blank: int = 0,
    merge_repeated: bool = True,
    padding_value: int = 0,
) -> tuple[ir.Value, ir.Value]:
    """Without blanks, and of the same in a row only one: moved to the left, padded, and how many there are."""
    if input_length is None or input.dtype is None:
        raise UnsupportedArgument("ctc_align without lengths: where a row ends is not in the tensor (LoD)")
    steps = op.size(input, 1)
    inside = op.Less(sizes.arange(op, steps), op.reshape(op.cast(input_length, T.INT64), [-1, 1]))
    kept = op.And(inside, op.Not(op.Equal(input, blank)))
    if merge_repeated:
        before = op.Pad(sizes.cut(op, input, 1, 0, -1), [0, 1, 0, 0], op.constant(-1, input.dtype))
        kept = op.And(kept, op.Not(op.Equal(input, before)))
    counted = op.CumSum(op.cast(kept, T.INT64), op.constant(1, T.INT64))
    # What is dropped goes to a column behind the others.
    place = op.Where(kept, op.Sub(counted, 1), op.scalar(steps))
    empty = op.Expand(op.constant(padding_value, input.dtype), op.vector([op.size(input, 0), sizes.add(op, steps, 1)]))
    written = op.ScatterElements(empty, place, input, axis=1)
    count = op.cast(op.ReduceMax(counted, [1]), input.dtype)
    return sizes.cut(op, written, 1, 0, -1), count


def _ended(op: Builder, scores: ir.Value, stop: ir.Value, ends: ir.Value) -> ir.Value:
    """Sentences that end here go on to the end tag."""
    return op.Add(scores, op.Mul(op.Unsqueeze(op.cast(ends, scores.dtype), [1]), stop))


def _forwards(
    op: Builder,
    words: ir.Value,
    steps: ir.Value,
    lengths: ir.Value,
    longest: ir.Value,
    first: ir.Value,
    stop: ir.Value | None,
) -> tuple[ir.Value, ir.Value]:
    """The scores of all tags at the end, and for each word but the first the best tag before each tag."""
    loop = LoopBody(op, [tensor(first.dtype, dims_of(first))])
    body, i, (before,) = loop.inner, loop.iteration, loop.carried
    with body:
        ways = body.Add(body.Unsqueeze(before, [2]), steps)  # (sentences, from, to)
        place = body.Add(i, 1)
        best = body.Add(body.ReduceMax(ways, [1], keepdims=0), body.Gather(words, place, axis=0))
        if stop is not None:
            best = _ended(body, best, stop, body.Equal(lengths, body.Add(place, 1)))
        goes_on = body.Unsqueeze(body.Greater(lengths, place), [1])
        origin = body.ArgMax(ways, axis=1, keepdims=0)
        after = body.Where(goes_on, best, before)
    last, back = loop.close(op.Sub(longest, 1), True, [first], loop.go_on, [after], [origin])
    return last, back


def _backwards(op: Builder, back: ir.Value, tags: ir.Value, lengths: ir.Value, longest: ir.Value) -> ir.Value:
    """Tags from the last to the first word; 0 behind the end of a sentence."""
    loop = LoopBody(op, [tensor(T.INT64, dims_of(tags))])
    body, i, (now,) = loop.inner, loop.iteration, loop.carried
    with body:
        place = body.Sub(body.Sub(longest, 1), i)  # the word that this tag is of
        inside = body.Less(place, lengths)
        # The origins of the word at `place`; the first word has none, and they are not used then.
        origins = body.Gather(back, body.Max(body.Sub(place, 1), 0), axis=0)
        earlier = body.Squeeze(body.GatherElements(origins, body.Unsqueeze(now, [1]), axis=1), [1])
        written = body.Where(inside, now, body.constant(0, T.INT64))
        # The last tag waits until its sentence begins to count.
        after = body.Where(inside, earlier, now)
    _, path = loop.close(longest, True, [tags], loop.go_on, [after], [written])
    return op.Slice(op.Transpose(path, perm=[1, 0]), [-1], [-sizes.END], [1], [-1])


@lower("gather_tree")
def gather_tree(op: Builder, ids: Value, parents: Value) -> ir.Value:
    """From the last step back to the first: the token of each beam, and the beam that it came from."""
    dims = dims_of(ids)
    assert dims is not None and ids.dtype is not None
    step = dims[1:]
    beams = sizes.arange(op, op.size(ids, 2))
    start = op.Expand(beams, op.vector([op.size(ids, 1), op.size(ids, 2)]), _shape=step)
    inner = op.inner("step", [("beam", T.INT64, step), ("ids", ids.dtype, step), ("parents", T.INT64, step)])
    beam, tokens, origins = inner.graph.inputs
    with inner:
        origin = inner.GatherElements(origins, beam, axis=1)
        inner.graph.outputs.extend([origin, inner.GatherElements(tokens, beam, axis=1)])
    attributes = [
        ir.AttrGraph("body", inner.graph),
        ir.AttrInt64("num_scan_inputs", 2),
        ir.AttrInt64s("scan_input_directions", [1, 1]),
        ir.AttrInt64s("scan_output_directions", [1]),
    ]
    outputs = [(T.INT64, step), (ids.dtype, dims)]
    return op.node("Scan", [start, ids, op.cast(parents, T.INT64)], attributes, outputs)[1]
