"""Attention, rotary embedding and cache updates, against onnx's own evaluator."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.legalise.harness import check, random, reference

B, HEADS, S, WIDTH = 2, 4, 5, 8
Q, K, V = random(B, HEADS, S, WIDTH), random(B, 2, 7, WIDTH), random(B, 2, 7, 6)
SAME = [random(B, HEADS, S, WIDTH) for _ in range(3)]
MASK = random(B, 1, S, 7, dtype=np.bool_)
MASK[0, 0, 2] = False  # a query that may look at nothing
FLAT = [random(B, S, 32), random(B, 7, 16), random(B, 7, 12)]

ATTENTION: dict[str, tuple[dict[str, Any], list[Any]]] = {
    "plain": ({}, SAME),
    "causal": ({"is_causal": 1}, SAME),
    "scale": ({"scale": 0.3, "is_causal": 1}, SAME),
    "grouped heads": ({}, [Q, K, V]),
    "grouped heads, flat": ({"q_num_heads": 4, "kv_num_heads": 2}, FLAT),
    "bool mask": ({}, [Q, K, V, MASK]),
    "bool mask, causal": ({"is_causal": 1}, [Q, K, V, MASK]),
    "float mask": ({}, [Q, K, V, random(S, 7)]),
    "float mask, causal": ({"is_causal": 1}, [Q, K, V, random(1, HEADS, S, 7)]),
    "softcap": ({"softcap": 1.5}, [Q, K, V]),
    "past": ({"is_causal": 1}, [*SAME, None, random(B, HEADS, 3, WIDTH), random(B, HEADS, 3, WIDTH)]),
}
TARGETS = (22, 18, 13, 11, 9)


def _attention(attributes: dict[str, Any], given: list[Any], outputs: int = 1) -> Any:
    def build(op: Any, *values: Any) -> Any:
        rest = iter(values)
        return op.Attention(*(None if g is None else next(rest) for g in given), _outputs=outputs, **attributes)

    return build


@pytest.mark.parametrize("case", ATTENTION)
def test_attention(case: str) -> None:
    attributes, given = ATTENTION[case]
    outputs = 3 if case == "past" else 1
    inputs = [x for x in given if x is not None]
    check(_attention(attributes, given, outputs), inputs, source=23, targets=TARGETS, oracle=reference)


@pytest.mark.parametrize("case", ["causal", "grouped heads, flat", "bool mask, causal", "past"])
def test_attention_with_dynamic_sizes(case: str) -> None:
    attributes, given = ATTENTION[case]
    inputs = [x for x in given if x is not None]
    axes = (0, 1) if "flat" in case else (0, 2)
    dynamic = dict.fromkeys(range(len(inputs)), axes)
    check(_attention(attributes, given), inputs, source=23, targets=(*TARGETS, 7), dynamic=dynamic, oracle=reference)


@pytest.mark.parametrize(
    ("lowest", "sees_all"), [(-1e9, True), (float(np.finfo(np.float32).min), True), (-np.inf, False)]
)
def test_rows_that_see_for_certain_are_not_asked(lowest: float, sees_all: bool) -> None:
    """Numbers of a table at places that an input chooses, and one number elsewhere: no row of these is blind."""
    table = random(1, 30).astype(np.float32)

    def build(op: Any, query: Any, key: Any, value: Any, places: Any, may: Any) -> Any:
        bias = op.Unsqueeze(op.Gather(op.constant(table), places, axis=1), [0])
        return op.Attention(query, key, value, op.Where(may, bias, op.constant(np.float32(lowest))))

    places = np.random.default_rng(0).integers(0, 30, (S, 7))
    asked = ["ReduceMax"] if not sees_all else []
    unasked = ["ReduceMax"] if sees_all else []
    check(build, [Q, K, V, places, MASK], targets=(22, 18), has=asked, has_not=unasked, oracle=reference)


@pytest.mark.parametrize("mode", range(4))
def test_scores_shown(mode: int) -> None:
    # Mode 0 shows the product before the soft cap; onnx's evaluator shows it after, against the specification.
    attributes = {"qk_matmul_output_mode": mode, "softcap": 2.0 if mode else 0.0, "is_causal": 1}
    given = [Q, K, V, MASK]
    check(_attention(attributes, given, 4), given, source=23, targets=(22, 13), oracle=reference)


def test_softmax_in_another_precision() -> None:
    given = [x.astype(np.float16) for x in SAME]
    attributes = {"softmax_precision": 1}
    check(_attention(attributes, given), given, source=23, targets=(22, 13), oracle=reference, rtol=5e-3, atol=5e-3)


def test_no_keys_are_copied_for_a_group() -> None:
    made = check(_attention({}, [Q, K, V]), [Q, K, V], source=23, targets=(13,), oracle=reference)
    kinds = [node.op_type for node in made[13].graph.node]
    assert not {"Expand", "Tile", "Shape"} & set(kinds)


COS, SIN = np.cos(random(9, 4)), np.sin(random(9, 4))
POSITIONS = random(B, S, dtype=np.int64, low=0, high=8)


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("turned", [0, 6])
@pytest.mark.parametrize("rank", [3, 4])
def test_rotary_embedding(rank: int, turned: int, interleaved: int) -> None:
    x = random(B, HEADS, S, WIDTH) if rank == 4 else random(B, S, HEADS * WIDTH)
    half = (turned or WIDTH) // 2
    heads = {} if rank == 4 else {"num_heads": HEADS}

    def build(op: Any, x: Any, positions: Any) -> Any:
        return op.RotaryEmbedding(
            x, COS[:, :half].copy(), SIN[:, :half].copy(), positions, interleaved=interleaved,
            rotary_embedding_dim=turned, **heads,
        )  # fmt: skip

    check(build, [x, POSITIONS], targets=(22, 13, 9, 7), oracle=reference)


def test_rotary_embedding_with_dynamic_sizes() -> None:
    cos, sin = random(B, S, WIDTH // 2), random(B, S, WIDTH // 2)
    inputs = [random(B, HEADS, S, WIDTH), cos, sin]
    dynamic = {0: (0, 2), 1: (0, 1), 2: (0, 1)}
    build = lambda op, x, cos, sin: op.RotaryEmbedding(x, cos, sin)  # noqa: E731
    check(build, inputs, targets=(22, 11, 7), dynamic=dynamic, oracle=reference)


@pytest.mark.parametrize("mode", ["linear", "circular"])
def test_tensor_scatter(mode: str) -> None:
    start = np.array([1, 3 if mode == "linear" else 5], np.int64)
    inputs = [random(2, 3, 6, 4), random(2, 3, 2, 4), start]
    build = lambda op, x, u, w: op.TensorScatter(x, u, w, mode=mode)  # noqa: E731
    check(build, inputs, targets=(23, 18, 13, 10), oracle=reference)
    check(build, inputs, targets=(23, 11), dynamic=True, oracle=reference)


def test_tensor_scatter_to_the_front() -> None:
    inputs = [random(2, 3, 6, 4), random(2, 3, 2, 4)]
    check(lambda op, x, u: op.TensorScatter(x, u), inputs, targets=(23, 13, 8), oracle=reference)
