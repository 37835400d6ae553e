"""Rows that are ranked by scores, as those of a detector: equal scores may stand in any order.

Where a file and its model put rows in different orders, the rows are compared as a set, each with one of the other
side. That is right only for what was ranked, and where equal scores are the reason: the scores are among the outputs,
sorted on both sides and the same in place; or rounding its inputs reorders the model's own rows. Nothing is said of
rows that change if the scores inside the file are moved by their last bits: any of several zeros may be chosen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np
import onnx

from tonnx.errors import TonnxError
from tonnx.io.read import from_proto
from tonnx.proof.compare import Comparison
from tonnx.proof.judge import open_session
from tonnx.proof.session import Model, Session
from tonnx.proof.trials.descent import outputs_after
from tonnx.proof.upward import load_proto

_SCORES = {"TopK": 0, "NonMaxSuppression": 1}
"""The operators that rank, and which of their inputs they rank by."""
_LAST_BITS = {onnx.TensorProto.FLOAT: 2.0**-21, onnx.TensorProto.DOUBLE: 2.0**-21, onnx.TensorProto.FLOAT16: 2.0**-9}
"""By the element type of scores: how much of one its last bits are. Float64 may be computed in less."""
_BESIDE_ZERO = 1e-20
_SHAKEN = 16
"""How often a file is run with its scores moved."""
_MOST = 2000
"""Rows out of place that are looked for; each is compared with all others."""


class Ranked:
    """What a file ranks by scores; looked at when first asked for."""

    def __init__(self, model: Model) -> None:
        self._model = model

    @cached_property
    def outputs(self) -> frozenset[str]:
        """The names of the outputs whose rows something has put in order."""
        model = from_proto(load_proto(self._model, weights=False))
        return outputs_after(model, lambda node: node.domain == "" and node.op_type in _SCORES)

    @cached_property
    def _shaken(self) -> Session | None:
        """The file with all scores moved by their last bits, otherwise in every run."""
        proto = load_proto(self._model)
        types = _element_types(onnx.shape_inference.infer_shapes(proto).graph)
        _shake(proto.graph, types)
        try:
            return open_session(proto.SerializeToString())
        except (TonnxError, ValueError):  # too large for a message
            return None

    def hangs_on_last_bits(
        self,
        inputs: Mapping[str, np.ndarray],
        failed: Sequence[tuple[Comparison, np.ndarray]],
        actual: Mapping[str, np.ndarray],
    ) -> bool:
        """Whether all ``failed`` outputs, beside what the model gives, are ranked, and differ from what the file gives
        only in rows that are others if scores are moved by their last bits.
        """
        if not all(one.name in self.outputs for one, _ in failed) or self._shaken is None:
            return False
        runs = [self._shaken.run(inputs) for _ in range(_SHAKEN)]
        return all(_explained(want, actual[one.name], [run[one.name] for run in runs], one) for one, want in failed)


def _explained(want: np.ndarray, have: np.ndarray, shaken: Sequence[np.ndarray], comparison: Comparison) -> bool:
    if any(array.shape != shaken[0].shape for array in shaken):
        return True  # how many are chosen hangs on them
    if want.shape != have.shape or have.shape != shaken[0].shape:
        return False
    moved = ~np.logical_and.reduce([_close(shaken[0], array, comparison) for array in shaken[1:]])
    if moved.ndim > 2:  # of a row of a batch, some elements may be the same by chance
        moved |= moved.any(axis=-1, keepdims=True)
    return bool((_close(want, have, comparison) | moved).all())


def _element_types(graph: onnx.GraphProto) -> dict[str, int]:
    types = {tensor.name: tensor.data_type for tensor in graph.initializer}
    for value in (*graph.input, *graph.value_info, *graph.output):
        types[value.name] = value.type.tensor_type.elem_type
    for node in graph.node:
        for attribute in node.attribute:
            types.update(_element_types(attribute.g) if attribute.HasField("g") else {})
    return types


def _shake(graph: onnx.GraphProto, types: Mapping[str, int]) -> None:
    nodes: list[onnx.NodeProto] = []
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                _shake(attribute.g, types)
        place = _SCORES.get(node.op_type)
        if place is not None and (last_bits := _LAST_BITS.get(types.get(node.input[place], 0))) is not None:
            scores, noise = node.input[place], f"{node.output[0]}.noise"
            low, high = 1 - last_bits, 1 + last_bits
            moved, beside = f"{node.output[0]}.moved", f"{node.output[0]}.beside"
            nodes += [
                onnx.helper.make_node("RandomUniformLike", [scores], [noise], low=low, high=high, seed=7.0),
                onnx.helper.make_node("Mul", [scores, noise], [moved]),
                onnx.helper.make_node(  # zeros that are multiplied stay equal
                    "RandomUniformLike", [scores], [beside], low=-_BESIDE_ZERO, high=_BESIDE_ZERO, seed=9.0
                ),
                onnx.helper.make_node("Add", [moved, beside], [f"{node.output[0]}.shaken"]),
            ]
            node.input[place] = f"{node.output[0]}.shaken"
        nodes.append(node)
    kept = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del graph.node[:]
    graph.node.extend(kept)


def in_order(
    expected: Sequence[np.ndarray],
    actual: Sequence[np.ndarray],
    comparisons: Sequence[Comparison],
    ranked: Sequence[int],
    compare: Callable[[int, np.ndarray], Comparison],
    reorders: Callable[[Sequence[int]], bool],
) -> list[Comparison]:
    """The comparisons, those of ``ranked`` outputs made anew where rows of equal scores are out of place.

    ``compare`` compares an output with another array; ``reorders`` says whether the model itself puts the rows of
    these outputs in another order if its inputs are rounded.
    """
    settled = list(comparisons)
    for group, depth in _groups(comparisons, ranked):
        if all(settled[i].ok for i in group):
            continue
        places = _places([(expected[i], actual[i], comparisons[i]) for i in group], depth)
        if places is None:
            continue
        again = {i: compare(i, _permuted(actual[i], places, depth)) for i in group}
        scored = any(_has_scores(expected[i], actual[i], comparisons[i], depth) for i in group)
        if all(one.ok for one in again.values()) and (scored or reorders(group)):
            for i, one in again.items():
                settled[i] = replace(one, reordered=not comparisons[i].ok)
    return settled


def _groups(comparisons: Sequence[Comparison], ranked: Sequence[int]) -> Iterator[tuple[list[int], int]]:
    """Outputs that have as many rows: along the first axis, or along the second one of a batch."""
    for depth in (0, 1):
        by_shape: dict[tuple[int, ...], list[int]] = {}
        for i in ranked:
            shape = comparisons[i].shape
            if comparisons[i].measured and len(shape) > depth and shape[depth] > 1:
                by_shape.setdefault(shape[: depth + 1], []).append(i)
        yield from ((group, depth) for group in by_shape.values())


def _rows(array: np.ndarray, depth: int) -> np.ndarray:
    batch, count = int(np.prod(array.shape[:depth])), array.shape[depth]
    return array.reshape(batch, count, -1)


def _close(expected: np.ndarray, actual: np.ndarray, comparison: Comparison) -> np.ndarray:
    tolerance = comparison.tolerance
    if expected.dtype.kind not in "fc":
        return np.asarray(expected == actual)
    return np.isclose(actual, expected, rtol=tolerance.rtol, atol=tolerance.atol, equal_nan=True)


def _places(outputs: Sequence[tuple[np.ndarray, np.ndarray, Comparison]], depth: int) -> list[np.ndarray] | None:
    """For each of a batch, where the file has each row of the model; None if it has not all of them."""
    sides = [(_rows(want, depth), _rows(have, depth), comparison) for want, have, comparison in outputs]
    batch, count = sides[0][0].shape[:2]
    in_place = np.ones((batch, count), bool)
    for want, have, comparison in sides:
        in_place &= _close(want, have, comparison).all(axis=2)
    places = []
    for number in range(batch):
        moved = np.flatnonzero(~in_place[number])
        place = np.arange(count)
        if len(moved) > _MOST:
            return None
        fits = [
            np.logical_and.reduce(
                [_close(want[number, row], have[number, moved], c).all(axis=1) for want, have, c in sides]
            )
            for row in moved
        ]
        partner = _matched([np.flatnonzero(fit).tolist() for fit in fits])
        if partner is None:
            return None
        place[moved] = moved[partner]
        places.append(place)
    return places


def _matched(choices: list[list[int]]) -> list[int] | None:
    """One of its choices for each, none taken twice; None if there is no such way."""
    owner: dict[int, int] = {}

    def assign(row: int, seen: set[int]) -> bool:
        for choice in sorted(choices[row], key=owner.__contains__):  # a free one first: else chains grow with the rows
            if choice not in seen:
                seen.add(choice)
                if choice not in owner or assign(owner[choice], seen):
                    owner[choice] = row
                    return True
        return False

    if not all(assign(row, set()) for row in range(len(choices))):
        return None
    partner = {row: choice for choice, row in owner.items()}
    return [partner[row] for row in range(len(choices))]


def _permuted(array: np.ndarray, places: Sequence[np.ndarray], depth: int) -> np.ndarray:
    rows = _rows(array, depth)
    return np.stack([rows[number, place] for number, place in enumerate(places)]).reshape(array.shape)


def _has_scores(expected: np.ndarray, actual: np.ndarray, comparison: Comparison, depth: int) -> bool:
    """Whether the rows of an output are sorted by one of its columns, which is the same on both sides."""
    want, have = _rows(expected, depth), _rows(actual, depth)
    if want.dtype.kind != "f":
        return False
    alike = _close(want, have, comparison).all(axis=(0, 1)) & (want.max(axis=(0, 1)) > want.min(axis=(0, 1)))
    return bool((alike & _falls(want) & _falls(have)).any())


def _falls(rows: np.ndarray) -> np.ndarray:
    """For each column, whether no number is larger than the one in the row before it."""
    return np.asarray((rows[:, 1:] <= rows[:, :-1]).all(axis=(0, 1)))
