"""Which value of a file is which of the model's: by what the file says, by names, and by contents."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
import onnx.parser
import onnx_ir as ir
import pytest

from tonnx.io import read
from tonnx.ir.facts import VALUE
from tonnx.proof.locate.align import Mark, by_contents, mark_of, stamped, unmatched
from tonnx.proof.locate.cut import Cutter
from tonnx.proof.locate.onnx_trace import OnnxTrace
from tonnx.proof.locate.trace import Step, Take

RNG = np.random.default_rng(0)
A = RNG.standard_normal((5, 7)).astype(np.float32)
LONG = RNG.standard_normal(100_000).astype(np.float32)


# Marks of contents

SAME = {
    "itself": (A, A.copy()),
    "rounded otherwise": (A, A * (1 + 1e-6)),
    "one rounding in a long one": (LONG, LONG + np.float32(1e-7)),
    "not a number at the same places": (np.where(A > 1, np.nan, A), np.where(A > 1, np.nan, A)),
    "integers": (np.arange(12), np.arange(12)),
}
OTHER = {
    "another order": (A, A[::-1].copy()),
    "two elements exchanged": (A, np.concatenate([A.reshape(-1)[[1, 0]], A.reshape(-1)[2:]]).reshape(5, 7)),
    "scaled": (A, A * 1.01),
    "shifted": (A, A + 0.1),
    "one element": (A, np.where(A.argmax() == np.arange(35).reshape(5, 7), 0, A)),
    "negative": (A, -A),
    "another shape": (A, A.reshape(7, 5)),
    "another dtype": (A, A.astype(np.float64)),
    "integers": (np.arange(12), np.arange(12)[::-1].copy()),
    "a long one in another order": (LONG, np.roll(LONG, 1)),
}


@pytest.mark.parametrize("name", SAME)
def test_same(name: str) -> None:
    one, two = (mark_of(np.asarray(array).astype(SAME[name][0].dtype)) for array in SAME[name])
    assert one.telling and one.same(two) and two.same(one)


@pytest.mark.parametrize("name", OTHER)
def test_other(name: str) -> None:
    one, two = map(mark_of, OTHER[name])
    assert not one.same(two) and not two.same(one)


@pytest.mark.parametrize(
    "array", [np.zeros((2, 3)), np.ones(4), np.array(3.0), np.empty((0, 2)), np.array(["a", "b"]), np.array([1j, 2j])],
    ids=["zeros", "equal", "one number", "nothing", "texts", "complex"],
)  # fmt: skip
def test_what_tells_nothing(array: np.ndarray) -> None:
    assert not mark_of(array).telling


def test_no_figures_are_no_difference() -> None:
    empty = mark_of(np.empty((0, 2)))
    assert isinstance(empty, Mark) and empty.distance(empty) == 0.0


# Two files

MODEL = """t1 = MatMul(x, w)
t2 = Relu(t1)
t3 = Sigmoid(t2)
y = Neg(t3)"""


def cutter(body: str) -> Cutter:
    numbers = ", ".join(str(0.7 * (i - 3.5)) for i in range(9))
    head = '<ir_version: 8, opset_import: ["" : 18]>'
    graph = f"g (float[4,3] x) => (float[4,3] y) <float[3,3] w = {{{numbers}}}> {{\n{body}\n}}"
    model = read.reader(onnx.parser.parse_model(f"{head}\n{graph}"))()
    read.infer(model)
    return Cutter(model)


X = RNG.standard_normal((4, 3)).astype(np.float32)


def aligned(body: str, original: str = MODEL) -> dict[str, str]:
    """The other file's values → those of the original."""
    model = cutter(original)
    trace = OnnxTrace(model.model, {"x": "x"})
    steps = {step.name: step for step in trace.steps()}
    outputs: dict[str, np.ndarray] = {}
    trace.run({"x": X}, ["y"], outputs.__setitem__)
    found = by_contents(cutter(body), trace, {"x": X}, outputs, steps)
    assert found.ends == {"y": "y"}
    assert found.ours["t1"] == ("float32", (4, 3)) and set(found.kinds) >= {"y"}
    return found.names


def test_by_contents() -> None:
    names = aligned("a = MatMul(x, w)\nb = Relu(a)\nc = Sigmoid(b)\ny = Neg(c)")
    assert names == {"a": "t1", "b": "t2", "c": "t3", "y": "y"}


def test_what_is_computed_otherwise_has_no_twin() -> None:
    names = aligned("a = MatMul(x, w)\nn = Neg(a)\nb = Relu(a)\nc = Sigmoid(b)\ny = Neg(c)")
    assert names == {"a": "t1", "b": "t2", "c": "t3", "y": "y"}


def test_after_a_fault_contents_say_nothing_but_names_do() -> None:
    wrong = "t1 = MatMul(x, w)\nt2 = Abs(t1)\nt3 = Sigmoid(t2)\ny = Neg(t3)"
    assert aligned(wrong) == {"t1": "t1", "t2": "t2", "t3": "t3"}
    renamed = "a = MatMul(x, w)\nb = Abs(a)\nc = Sigmoid(b)\ny = Neg(c)"
    assert aligned(renamed) == {"a": "t1"}


def test_names_that_mean_something_else_are_not_trusted() -> None:
    """Each of them holds what another one should."""
    original = "t1 = Relu(x)\nt2 = Abs(x)\nt3 = Neg(x)\nt4 = Exp(x)\ny = Sum(t1, t2, t3, t4)"
    twisted = "t2 = Relu(x)\nt3 = Abs(x)\nt4 = Neg(x)\nt1 = Exp(x)\ny = Sum(t1, t2, t3, t4)"
    assert aligned(twisted, original) == {"t2": "t1", "t3": "t2", "t4": "t3", "t1": "t4", "y": "y"}


# What a file says of itself


def told(operators: list[str]) -> dict[str, str]:
    file = cutter(MODEL)
    for number, (node, operator) in enumerate(zip(file.nodes, operators, strict=True)):
        VALUE[node.outputs[0]] = f"v{number}"
        node.metadata_props["tonnx.op"] = operator
    steps = {f"v{i}": Step(f"v{i}", f"aten.op{i}", inputs=(f"v{i - 1}",) if i else ()) for i in range(4)}
    return stamped(file, steps)


def test_stamped() -> None:
    everything = {"t1": "v0", "t2": "v1", "t3": "v2", "y": "v3"}
    assert told([f"aten.op{i}" for i in range(4)]) == everything
    assert told(["aten.op0", "aten.op0", "aten.op1", "aten.op3"]) == everything  # a layer with what comes before it
    assert told(["", "", "", ""]) == everything  # says nothing of operators
    assert told(["aten.op0", "aten.else", "aten.other", "aten.op3"]) == everything  # two may be strange
    assert told(["aten.op0", "aten.else", "aten.other", "aten.third"]) == {}  # not made from this model


def test_a_stamp_that_the_model_does_not_have() -> None:
    file = cutter(MODEL)
    VALUE[file.nodes[0].outputs[0]] = "gone"
    assert stamped(file, {"v0": Step("v0")}) == {}


# What is left


class Chain:
    """x → a → b → c, and d beside it."""

    framework = "none"

    def steps(self) -> list[Step]:
        return [Step("a", inputs=("x",)), Step("b", inputs=("a",)), Step("d", inputs=("x",)), Step("c", inputs=("b",))]

    def run(self, feeds: dict[str, Any], wanted: Collection[str], take: Take) -> None:
        raise NotImplementedError


@pytest.mark.parametrize(
    ("matched", "end", "left"),
    [
        ([], "c", ["a", "b"]),
        ([], None, ["a", "b", "d", "c"]),
        (["a"], "c", ["b"]),
        (["b"], "c", []),
        (["a"], None, ["b", "d", "c"]),
        (["c", "d"], None, []),
    ],
)
def test_unmatched(matched: list[str], end: str | None, left: list[str]) -> None:
    steps = {step.name: step for step in Chain().steps()}
    assert [step.name for step in unmatched(steps, matched, end)] == left


def test_graph_of_the_tests() -> None:
    """The files above are what their texts say: otherwise nothing here would mean anything."""
    file = cutter(MODEL)
    assert [node.op_type for node in file.nodes] == ["MatMul", "Relu", "Sigmoid", "Neg"]
    assert isinstance(file.model, ir.Model) and file.inputs == ["x"] and file.outputs == ["y"]
