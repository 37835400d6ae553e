"""The arithmetic that models do with sizes, as nodes: beside Python's, at many sizes."""

from __future__ import annotations

import builtins
import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
import sympy
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext

from tonnx.errors import LoweringError
from tonnx.frontends.torch.operators import symbolic_sizes
from tonnx.frontends.torch.operators.fast_lengths import fast_length
from tonnx.io import write
from tonnx.ir.build import Builder, Names
from tonnx.passes import clean_up
from tonnx.proof.session import Session

SIZES = [(7, 3), (3, 7), (12, 4), (1, 5), (8, 8), (2, 1)]
T = ir.DataType


class Sizes:
    """A graph of the sizes n and m, to which results are added."""

    def __init__(self) -> None:
        graph = ir.Graph([], [], nodes=[], opset_imports={"": 21}, name="sizes")
        x = ir.Value(name="x", type=ir.TensorType(T.FLOAT), shape=ir.Shape([ir.SymbolicDim("n"), ir.SymbolicDim("m")]))
        graph.inputs.append(x)
        self.op = Builder(graph, names=Names(["x"]), opset=21)
        with self.op:
            self.n, self.m = self.op.size(x, 0), self.op.size(x, 1)
        self.results: list[Any] = []

    def run(self) -> list[list[Any]]:
        """The results at each of SIZES."""
        with self.op:
            for i, result in enumerate(self.results):
                value = result if isinstance(result, ir.Value) else self.op.constant(result)
                value = self.op.Identity(value)
                value.name = f"out{i}"
                self.op.graph.outputs.append(value)
        model = ir.Model(self.op.graph, ir_version=10)
        clean_up(model)
        session = Session(write.to_bytes(model))
        runs = [session.run({"x": np.zeros(size, np.float32)}) for size in SIZES]
        return [[run[f"out{i}"].reshape(-1)[0].item() for run in runs] for i in range(len(self.results))]


def half(n: Any) -> Any:
    return n / 2


# A function, and its arguments in terms of n and m: each is a number, n, m, or a function of both.
ROWS: list[tuple[Callable[..., Any], tuple[Any, ...]]] = [
    *((f, ("n", "m")) for f in (operator.add, operator.sub, operator.mul, operator.floordiv, operator.truediv)),
    *((f, ("n", "m")) for f in (operator.mod, operator.eq, operator.ne, operator.lt, operator.le, operator.gt)),
    *((f, ("n", "m")) for f in (operator.ge, torch.sym_max, torch.sym_min, builtins.max, builtins.min)),
    *((f, ("n", 3)) for f in (operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod, operator.pow)),
    *((f, (20, "m")) for f in (operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod)),
    *((f, ("n-m", "m")) for f in (operator.floordiv, operator.mod, operator.truediv)),
    *((f, ("n-m", 4)) for f in (operator.floordiv, operator.mod, operator.mul)),
    *((f, ("n", -2)) for f in (operator.floordiv, operator.mod)),
    *((f, ("n/2", "m")) for f in (operator.add, operator.sub, operator.mul, operator.truediv, operator.lt, max, min)),
    *((f, ("n/2", 1.5)) for f in (operator.floordiv, operator.add, operator.pow)),
    *((f, ("n", 0.5)) for f in (operator.mul, operator.pow, operator.floordiv)),
    (operator.floordiv, ("n/2", "m")),
    (operator.mod, ("n/2", "m")),
    (operator.mod, ("n-m", 2.5)),
    (operator.pow, (2, "m")),
    (operator.neg, ("n-m",)),
    (operator.pos, ("n-m",)),
    (operator.abs, ("n-m",)),
    (operator.and_, ("n<m", "n>1")),
    (operator.or_, ("n<m", "n>1")),
    (torch.sym_not, ("n<m",)),
    (torch.sym_float, ("n",)),
    (torch.sym_int, ("n/2",)),
    (torch.sym_ite, ("n<m", "n", "m")),
    (torch.sym_sqrt, ("n",)),
    (torch._sym_log2, ("n",)),
    (torch.sym_sum, (["n", "m", 3],)),
    (math.floor, ("n/2",)),
    (math.ceil, ("n/2",)),
    (math.trunc, ("(n-m)/2",)),
    (math.floor, ("(n-m)/2",)),
    (math.sqrt, ("n",)),
    (math.pow, ("n", "m")),
    (builtins.round, ("n/2",)),
    (builtins.round, ("n/8", 1)),
    *((fast_length, ("n*m", prime)) for prime in (5, 11)),
]


def argument(text: Any, n: Any, m: Any, call: Callable[..., Any]) -> Any:
    """``call`` applies a function to plain numbers, or makes its nodes."""
    if isinstance(text, list):
        return [argument(part, n, m, call) for part in text]
    less, minus = (lambda: call(operator.sub, n, m)), {"n": n, "m": m}
    forms: dict[Any, Callable[[], Any]] = {
        "n-m": less,
        "n*m": lambda: call(operator.mul, n, m),
        "n/2": lambda: call(operator.truediv, n, 2),
        "n/8": lambda: call(operator.truediv, n, 8),
        "(n-m)/2": lambda: call(operator.truediv, less(), 2),
        "n<m": lambda: call(operator.lt, n, m),
        "n>1": lambda: call(operator.gt, n, 1),
    }
    return forms[text]() if text in forms else minus.get(text, text)


@pytest.fixture(scope="module")
def computed() -> list[list[Any]]:
    sizes = Sizes()

    def call(function: Any, *arguments: Any) -> Any:
        return symbolic_sizes.compute(sizes.op, function, arguments)

    with sizes.op:
        for function, texts in ROWS:
            sizes.results.append(call(function, *(argument(text, sizes.n, sizes.m, call) for text in texts)))
    return sizes.run()


@pytest.mark.parametrize("row", range(len(ROWS)), ids=[f"{f.__name__}{args}" for f, args in ROWS])
def test_as_python(row: int, computed: list[list[Any]]) -> None:
    function, texts = ROWS[row]
    for (n, m), got in zip(SIZES, computed[row], strict=True):
        want = function(*(argument(text, n, m, lambda f, *args: f(*args)) for text in texts))
        assert type(got) is type(want) or function in (max, min), f"{got!r} is not {want!r} at n={n} m={m}"
        assert got == pytest.approx(want), f"at n={n} m={m}"


def test_every_function_has_a_row() -> None:
    assert {function for function, _ in ROWS} >= set(symbolic_sizes._FUNCTIONS)


def test_plain_numbers_stay_plain() -> None:
    sizes = Sizes()
    assert symbolic_sizes.compute(sizes.op, operator.floordiv, [-7, 2]) == -4
    with pytest.raises(LoweringError, match="the function gcd on a dynamic size has no rule"):
        symbolic_sizes.compute(sizes.op, math.gcd, [sizes.n, 3])


# Expressions that stand in a graph instead of nodes

EXPRESSIONS: list[Callable[[Any, Any], Any]] = [
    lambda n, m: n + m,
    lambda n, m: 3 * n - 2 * m + 1,
    lambda n, m: n * m * 2,
    lambda n, m: n // 2,
    lambda n, m: (n - m) // 3,
    lambda n, m: (n * 5 + 1) // m,
    lambda n, m: -n // 4,
    lambda n, m: n % 3,
    lambda n, m: (n - 2 * m) % 5,
    lambda n, m: n**2,
    lambda n, m: (n + 1) ** 3 // (m + 1),
    lambda n, m: torch.sym_max(n, m) if isinstance(n, torch.SymInt) else max(n, m),
    lambda n, m: torch.sym_min(n, 2 * m) if isinstance(n, torch.SymInt) else min(n, 2 * m),
    lambda n, m: torch.sym_int(n * 0.5) if isinstance(n, torch.SymInt) else int(n * 0.5),
    lambda n, m: math.floor(n / m),
    lambda n, m: math.ceil(n / m),
    lambda n, m: torch.sym_int((n - m) / 2) if isinstance(n, torch.SymInt) else int((n - m) / 2),
    lambda n, m: (n + 31) // 32 * 32,
    lambda n, m: ((n + 1) // 2 + 1) // 2,
]


def symbols() -> tuple[torch.SymInt, torch.SymInt, symbolic_sizes.DimNames]:
    mode = FakeTensorMode(shape_env=ShapeEnv())
    context = StatelessSymbolicContext(dynamic_sizes=[DimDynamic.DYNAMIC] * 2)
    fake = mode.from_tensor(torch.empty(17, 13), static_shapes=False, symbolic_context=context)
    n, m = fake.shape
    return n, m, symbolic_sizes.DimNames({n.node.expr: "n", m.node.expr: "m"})  # type: ignore[attr-defined]


def test_expressions() -> None:
    sizes = Sizes()
    n, m, dims = symbols()
    with sizes.op:
        sizes.results = [symbolic_sizes.materialise(sizes.op, dims, make(n, m)) for make in EXPRESSIONS]
    for number, (make, results) in enumerate(zip(EXPRESSIONS, sizes.run(), strict=True)):
        assert results == [make(*size) for size in SIZES], f"expression {number}: {make(n, m)}"


def test_names_are_the_users() -> None:
    n, m, dims = symbols()
    assert dims.text(n) == "n" and sympy.sympify(dims.text(2 * n - m)) == sympy.sympify("2*n - m")
    assert [str(dim) for dim in dims.of_tensor(torch.empty(2, 3))] == ["2", "3"]
    assert dims.of_size(n) == ir.SymbolicDim("n") and dims.of_size(4) == 4


def test_a_size_is_read_once() -> None:
    sizes = Sizes()
    n, m, dims = symbols()
    with sizes.op:
        one = symbolic_sizes.materialise(sizes.op, dims, n + m)
        named = symbolic_sizes.named(sizes.op, dims, one, n + m)
        assert symbolic_sizes.materialise(sizes.op, dims, m + n) is named
        assert symbolic_sizes.materialise(sizes.op, dims, n) is sizes.n


def test_a_size_that_nobody_has_yet() -> None:
    graph = ir.Graph([], [], nodes=[], opset_imports={"": 21}, name="nothing")
    n, m, dims = symbols()
    with Builder(graph, names=Names([]), opset=21) as op, pytest.raises(LoweringError, match="n is used before"):
        symbolic_sizes.materialise(op, dims, n + m)
