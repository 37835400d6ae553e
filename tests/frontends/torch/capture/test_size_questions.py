"""What PyTorch asks about sizes: answered by plain arithmetic where that is enough, and never wrongly."""

from __future__ import annotations

from typing import Any

import pytest
import sympy
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv
from torch.utils._sympy.functions import FloorDiv, Max, Min, Mod, PythonMod

from tonnx.frontends.patching import patched
from tonnx.frontends.torch.capture.patches.size_questions import size_questions
from tonnx.frontends.torch.versions import set_example_of


class _Asked(Exception):
    """PyTorch itself was asked."""


@pytest.fixture
def sizes() -> tuple[ShapeEnv, Any, Any, Any]:
    """Two sizes of the example, at least 2, and a count of which only the run knows that it is no less than 1."""
    from torch._dynamo.source import ConstantSource

    env = ShapeEnv()
    n, m = (env.create_symbol(8, ConstantSource(name), DimDynamic.DYNAMIC, None) for name in "nm")
    count = env.create_unbacked_symint()
    env.guard_or_defer_runtime_assert(sympy.Ge(count.node.expr, 1), "at least 1")
    return env, n, m, count.node.expr


ANSWERS = [
    (lambda n, m, k: sympy.Ne(3 * n * k, 0), True),
    (lambda n, m, k: n * m * k < 2, False),
    (lambda n, m, k: sympy.Eq(Max(1, n * k) * Max(1, m), n * m * k), True),
    (lambda n, m, k: sympy.Ne(Max(1, k) * n, k * n), False),
    (lambda n, m, k: sympy.Eq((n + 1) * (m + 2), n * m + 2 * n + m + 2, evaluate=False), True),
    (lambda n, m, k: sympy.Gt(n * (m + 1), n * m, evaluate=False), True),
    (lambda n, m, k: sympy.Ge(FloorDiv(n + 3, 4), 0, evaluate=False), True),
    (lambda n, m, k: sympy.Lt(PythonMod(n - m, 7), 7, evaluate=False), True),
    (lambda n, m, k: sympy.Le(Min(49, n), 49, evaluate=False), True),
    (lambda n, m, k: sympy.Or(sympy.Eq(n, 1), sympy.Eq(n * k, 0)), False),
    (lambda n, m, k: sympy.And(n * k > 0, m * k > 0), True),
    # What depends on the sizes is left to PyTorch.
    (lambda n, m, k: sympy.Eq(n, m), None),
    (lambda n, m, k: sympy.Eq(k, 1), None),
    (lambda n, m, k: sympy.Ne(FloorDiv(n, 4), 0), None),
    (lambda n, m, k: sympy.Eq(Max(3, n), n), None),
    (lambda n, m, k: sympy.Gt(n * m, 4), None),
    (lambda n, m, k: sympy.Eq(Mod(n - m, 7), 0), None),
    (lambda n, m, k: sympy.Or(sympy.Eq(n, 3), sympy.Eq(n * k, 0)), None),
]


@pytest.mark.parametrize(("condition", "answer"), ANSWERS)
def test_answered(condition: Any, answer: bool | None, sizes: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    env, *symbols = sizes

    def asked(*args: Any, **options: Any) -> Any:
        raise _Asked

    relation = condition(*symbols)
    assert relation not in (sympy.true, sympy.false), "sympy decides this by itself"
    monkeypatch.setattr(ShapeEnv, "_maybe_evaluate_static", asked)
    with patched(size_questions()):
        if answer is None:
            with pytest.raises(_Asked):
                env._maybe_evaluate_static(relation)
        else:
            assert bool(env._maybe_evaluate_static(relation)) is answer


@pytest.mark.parametrize(
    ("condition", "fallback", "is_asked"),
    [
        (lambda n, m, k: sympy.Eq(k, 5), False, False),
        (lambda n, m, k: sympy.Ne(k * n, 5 * m), True, False),
        (lambda n, m, k: sympy.Ge(k, 1), False, True),  # it is certain, whatever the kernel would take
        (lambda n, m, k: sympy.Eq(n, 8), True, True),  # a size of the example decides by the example
    ],
)
def test_what_a_kernel_falls_back_to(
    condition: Any, fallback: bool, is_asked: bool, sizes: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    env, *symbols = sizes
    set_example_of(env, symbols[-1], 9)
    number = env.create_symboolnode(condition(*symbols))
    asked: list[Any] = []
    original = ShapeEnv.evaluate_sym_node

    def counted(*args: Any, **options: Any) -> Any:
        asked.append(args)
        return original(*args, **options)

    wanted = bool(original(env, number.node, fallback_value=fallback))
    monkeypatch.setattr(ShapeEnv, "evaluate_sym_node", counted)
    with patched(size_questions()):
        assert bool(env.evaluate_sym_node(number.node, fallback_value=fallback)) is wanted
    assert bool(asked) is is_asked
