"""Random damage to real files: the readers either read them or raise InvalidModel, quickly and in little memory."""

from __future__ import annotations

import copy
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.frontends.paddle.harness import check
from tonnx.errors import InvalidModel
from tonnx.frontends.paddle.read import params, pir, program
from tonnx.frontends.paddle.read.graph import Program

FIXTURES = Path(__file__).parent / "fixtures"
OLD = [(FIXTURES / "old" / name).read_bytes() for name in ("control.pdmodel", "lenet.pdmodel", "separate/__model__")]
PIR = [(FIXTURES / name).read_bytes() for name in ("control.json", "array.json", "lstm.json", "plain.json")]
TREES = [json.loads(data) for data in PIR]
WEIGHTS = [(FIXTURES / name).read_bytes() for name in ("lenet.pdiparams", "bf16.pdiparams", "linear.pdiparams")]
NAMES = [f"p{i:02}" for i in range(22)]

light = settings(
    max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
JUNK = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 3), st.integers(), st.floats(), st.text(max_size=4),
    st.sampled_from(["1.while", "1.if", "2.yield", "p", "1.data", "1.array_write_", "0.t_vec", "0.a_array", "NULL"]),
    st.lists(st.integers(-3, 3), max_size=2), st.builds(dict), st.just({"%": 1}), st.just({"#": "0.t_f32"}),
)  # fmt: skip


@st.composite
def mutated(draw: st.DrawFn, originals: list[bytes]) -> bytes:
    """A file with a few bytes changed, dropped, doubled, or its end missing."""
    data = bytearray(draw(st.sampled_from(originals)))
    for _ in range(draw(st.integers(1, 4))):
        where = draw(st.integers(0, max(len(data) - 1, 0)))
        match draw(st.integers(0, 4)):
            case 0:
                data[where : where + 1] = draw(st.binary(min_size=1, max_size=1))
            case 1:
                data[where : where + draw(st.integers(1, 40))] = b""
            case 2:
                data[where:where] = draw(st.binary(max_size=12))
            case 3:
                data[where:where] = data[where : where + draw(st.integers(1, 200))]
            case _:
                del data[where:]
    return bytes(data)


def _read(read: Callable[[], Program]) -> None:
    start = time.process_time()
    try:
        found = read()
    except InvalidModel as error:
        assert error.why and len(str(error)) < 2000
    else:
        check(found)
    assert time.process_time() - start < 5


@light
@given(mutated(OLD))
def test_old_programs(data: bytes) -> None:
    _read(lambda: program.read(memoryview(data)))


@light
@given(mutated(PIR))
def test_pir_programs(data: bytes) -> None:
    _read(lambda: pir.read(data))


@light
@given(st.binary(max_size=200))
@example(b"\x0a\x00")
def test_arbitrary_bytes(data: bytes) -> None:
    _read(lambda: program.read(memoryview(data)))
    _read(lambda: pir.read(data))


@light
@given(st.sampled_from(TREES), st.lists(st.tuples(st.lists(st.integers(0, 40), max_size=14), JUNK), max_size=3))
def test_pir_with_values_of_other_types(tree: Any, edits: list[tuple[list[int], Any]]) -> None:
    """JSON that stays JSON: an entry anywhere in the tree becomes something else."""
    tree = copy.deepcopy(tree)
    for path, junk in edits:
        holder: Any = tree
        for step in path:
            keys = list(holder) if isinstance(holder, dict) else range(len(holder))
            if not keys:
                break
            key = keys[step % len(keys)]
            if not isinstance(holder[key], (dict, list)) or step == 40:
                holder[key] = copy.deepcopy(junk)  # hypothesis may hand out one object twice: a tree has no cycles
                break
            holder = holder[key]
        else:
            if isinstance(holder, list):
                holder.append(copy.deepcopy(junk))
    data = json.dumps(tree).encode()
    _read(lambda: pir.read(data))


@light
@given(mutated(WEIGHTS), st.integers(0, 22))
def test_weights(data: bytes, count: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "w.pdiparams"
        path.write_bytes(data)
        try:
            tensors = params.combined(path, NAMES[:count])
        except InvalidModel as error:
            assert error.why and error.where
        else:
            assert sum(tensor.nbytes for tensor in tensors.values()) <= len(data)
            for tensor in tensors.values():
                assert len(tensor.tobytes()) == tensor.nbytes


@pytest.mark.parametrize("cut", range(1, 60))
def test_every_way_to_cut_a_file_short(cut: int) -> None:
    for data in OLD:
        _read(lambda data=data: program.read(memoryview(data[: len(data) * cut // 60])))  # type: ignore[misc]
    for data in PIR:
        with pytest.raises(InvalidModel):
            pir.read(data[: len(data) * cut // 60])
