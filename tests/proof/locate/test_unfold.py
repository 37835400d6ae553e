"""Branches, loops and functions written out for one run: the flat graph computes the same, and knows its places."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx.reference import ReferenceEvaluator

from tonnx.io import read, write
from tonnx.proof.locate.cut import Cutter
from tonnx.proof.locate.unfold import has_inside, unfold
from tonnx.proof.session import Session

HEAD = '<ir_version: 8, opset_import: ["" : {opset}, "local" : 1]>\n'
X = np.array([[1.0, -2.0, 3.0], [0.5, 4.0, -1.0]], np.float32)


@dataclass
class Case:
    """A graph from x (and c, a flag; n, a number) to y, runs of it, and what its places must say."""

    body: str
    runs: list[dict[str, Any]]
    inside: list[str] = field(default_factory=list)
    """What the places of the last run say of where inside they were; those of nodes outside say nothing."""
    passes: int | None = None
    """How often its loop runs, if the body decides that."""
    functions: str = ""
    opset: int = 18
    turns: list[str] | None = None


def run(c: bool = True, n: int = 3) -> dict[str, Any]:
    return {"x": X, "c": np.array(c), "n": np.array(n)}


TWICE = "if that gives one value twice, and a constant"
CASES = {
    "if": Case(
        """t = Relu(x)
        z = If(c) <then_branch = one () => (float[2,3] a) { s = Neg(t) a = Exp(s) },
                   else_branch = two () => (float[2,3] b) { b = Abs(x) }>
        y = Add(z, t)""",
        [run(True), run(False)],
        ["", "else_branch of If (node 1), node 0", ""],
        turns=["", "0", ""],
    ),
    TWICE: Case(
        """z, w, v = If(c) <then_branch = one () => (float[2,3] a, float[2,3] a2, float[1] x2)
                               { a = Neg(x) a2 = Exp(a) x2 = Constant<value_floats = [2.0]>() },
                            else_branch = two () => (float[2,3] b, float[2,3] b, float[1] k)
                               <float[1] k = {5.0}> { b = Abs(x) }>
        s = Add(z, w)
        y = Mul(s, v)""",
        [run(True), run(False)],
        ["else_branch of If (node 0), node 0", *["else_branch of If (node 0)"] * 2, "", ""],
    ),
    "loop of a number of passes": Case(
        """last, rows = Loop(n, , x) <body = body (int64 i, bool go, float[2,3] h)
               => (bool go2, float[2,3] h2, float[2,3] row)
               { go2 = Identity(go) f = Cast<to = 1>(i) h2 = Add(h, f) row = Mul(h2, x) }>
        s = ReduceSum<keepdims = 0>(rows)
        y = Add(last, s)""",
        [run(n=3), run(n=1)],
        [*[f"pass 1 of Loop (node 0), node {i}" for i in range(4)], "", "", "", "", ""],
    ),
    "loop below opset 13": Case(
        """last, rows = Loop(n, , x) <body = body (int64 i, bool go, float[2,3] h)
               => (bool go2, float[2,3] h2, float[2,3] row)
               { go2 = Identity(go) h2 = Neg(h) row = Identity(h2) }>
        s = ReduceSum<keepdims = 0>(rows)
        y = Add(last, s)""",
        [run(n=3)],
        opset=11,
    ),
    "loop whose body decides": Case(
        """last = Loop(, c, x) <body = body (int64 i, bool go, float[2,3] h) => (bool more, float[2,3] h2)
               { h2 = Add(h, h) s = ReduceMax<keepdims = 0>(h2) m = Constant<value_float = 20.0>() more = Less(s, m) }>
        y = Relu(last)""",
        [run()],
        passes=3,
    ),
    "a branch in a loop": Case(
        """last = Loop(n, , x) <body = body (int64 i, bool go, float[2,3] h) => (bool go2, float[2,3] h2)
               { go2 = Identity(go)
                 h2 = If(c) <then_branch = one () => (float[2,3] a) { a = Add(h, x) },
                             else_branch = two () => (float[2,3] b) { b = Sub(h, x) }> }>
        y = Relu(last)""",
        [run(True, 2), run(False, 2)],
    ),
    "a function": Case(
        """t = local.twice<by = 3.0>(x)
        y = Neg(t)""",
        [run()],
        ["the function twice (node 0), node 0", "the function twice (node 0), node 1", ""],
        functions='<domain: "local", opset_import: ["" : 18]> twice <by> (a) => (b)'
        "{ k = Constant<value_float : float = @by>() b = Mul(a, k) }",
        turns=["", "", ""],
    ),
    "names that are hidden inside": Case(
        """t = Relu(x)
        z = If(c) <then_branch = one () => (float[2,3] a)
               { s = Neg(t)
                 a = If(c) <then_branch = three () => (float[2,3] r) { u = Exp(s) r = Add(u, t) },
                            else_branch = four () => (float[2,3] q) { q = Neg(s) }> },
                   else_branch = two () => (float[2,3] b) { b = Abs(x) }>
        y = Add(z, t)""",
        [run(True)],
    ),
}


def model_of(case: Case) -> onnx.ModelProto:
    graph = f"g (float[2,3] x, bool c, int64 n) => (float[2,3] y) {{\n{case.body}\n}}\n"
    return onnx.parser.parse_model(HEAD.format(opset=case.opset) + graph + case.functions)


def unfolded(case: Case, feeds: dict[str, Any], wanted: str = "y") -> Any:
    model = read.reader(model_of(case))()
    read.infer(model)
    cutter = Cutter(model)
    nodes = cutter.between([wanted], feeds)
    return unfold(cutter, nodes, feeds, wanted, lambda index: case.passes)


@pytest.mark.parametrize("name", CASES)
def test_the_flat_graph_computes_the_same(name: str) -> None:
    case = CASES[name]
    session = Session(model_of(case).SerializeToString())
    for feeds in case.runs:
        flat = unfolded(case, feeds)
        kinds = [node.op_type for node in flat.model.graph]
        assert "Loop" not in kinds and "twice" not in kinds and len(kinds) == len(flat.places)
        nested = name in ("a branch in a loop", "names that are hidden inside")
        assert ("If" in kinds) == nested  # one level at a time
        flat_session = Session(write.to_bytes(flat.model))
        given = {key: array for key, array in feeds.items() if key in flat_session.inputs}
        wanted = session.run(feeds)["y"]
        if name == TWICE:  # which ONNX Runtime (1.31) gets wrong
            wanted = ReferenceEvaluator(model_of(case)).run(None, feeds)[0]
        np.testing.assert_allclose(flat_session.run(given)["y"], wanted, rtol=1e-6)
    if case.inside:
        assert [place.inside for place in flat.places] == case.inside
    if case.turns is not None:
        assert [place.turn for place in flat.places] == case.turns


def test_values_know_their_names_and_passes() -> None:
    flat = unfolded(CASES["loop of a number of passes"], run(n=2))
    told = [flat.values[str(value.name)] for node in flat.model.graph for value in node.outputs
            if str(value.name) in flat.values]  # fmt: skip
    assert told == [(name, turn) for turn in ("0", "1") for name in ("go2", "f", "h2", "row")]


def test_again_until_nothing_is_inside() -> None:
    """The branches in a loop become plain nodes in a second step."""
    case = CASES["a branch in a loop"]
    flat = unfolded(case, run(True, 2))
    cutter = Cutter(flat.model)
    feeds = {key: array for key, array in run(True, 2).items() if key in cutter.inputs}
    again = unfold(cutter, cutter.between(["y"], feeds), feeds, "y", lambda index: None, lambda index: "7")
    assert again is not None and not any(has_inside(Cutter(again.model), i) for i in range(len(again.places)))
    assert {place.turn for place in again.places} == {"", "7.0"}
    np.testing.assert_array_equal(Session(write.to_bytes(again.model)).run({"x": X})["y"], np.maximum(3 * X, 0))


PLAIN = {
    "nothing is inside": ("t = Relu(x)\ny = Neg(t)", run()),
    "a loop of no pass": (CASES["loop of a number of passes"].body, run(n=0)),
    "a loop that never ends is not known to end": (CASES["loop whose body decides"].body, run()),
    "too many nodes": (CASES["loop of a number of passes"].body, run(n=2000)),
}


@pytest.mark.parametrize("name", PLAIN)
def test_what_is_not_unfolded(name: str) -> None:
    body, feeds = PLAIN[name]
    assert unfolded(Case(body, []), feeds) is None
