"""Old programs and their wire format, made by hand: all attribute types, scopes, and every kind of damage."""

from __future__ import annotations

import math
import struct
from typing import Any

import pytest

from tests.frontends.paddle import encode as e
from tests.frontends.paddle.harness import check, only
from tonnx.errors import InvalidModel
from tonnx.frontends.paddle.read import program
from tonnx.frontends.paddle.read.graph import Op, Opaque
from tonnx.frontends.paddle.read.wire import BOOL, DOUBLE, FLOAT, INT32, INT64, Field, decode


def test_wire_kinds() -> None:
    spec = {
        1: Field("a", INT32), 2: Field("b", INT64), 3: Field("c", FLOAT), 4: Field("d", DOUBLE, True),
        5: Field("e", INT64, True), 6: Field("f", BOOL, True),
    }  # fmt: skip
    data = e.message(
        (1, -1), (2, -(1 << 63)), (3, 0.5), (5, 7), (5, e.varint(1) + e.varint(-2)), (6, b"\1\0"), (99, "x")
    )
    data += e.field(4, struct.pack("<2d", 1.5, math.inf)) + e.field(1, 0xFFFFFFFE)
    assert decode(memoryview(data), spec) == {
        "a": -2, "b": -(1 << 63), "c": 0.5, "d": [1.5, math.inf], "e": [7, 1, -2], "f": [True, False],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"\x80", "ends inside a number"),
        (b"\xff" * 11, "more than ten bytes"),
        (b"\x0a\x05abc", "claims 5 bytes"),
        (b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\x7f", "claims"),
        (b"\x0b", "wire type 3"),
        (b"\x00\x00", "number 0"),
        (b"\x0d\x00", "claims 4 bytes"),
        (b"\x08\x01", "wire type 0"),
        (b"not a program at all", "wire type|claims|blocks"),
        (b"\x22\x00", "no blocks"),
    ],
)
def test_bytes_that_are_no_program(data: bytes, why: str) -> None:
    with pytest.raises(InvalidModel, match=why):
        program.read(memoryview(data))


# Old programs by hand

X, Y = e.variable("x", 2, 3), e.variable("y", 2, 3)
RELU = e.op("relu", {"X": ["x"]}, {"Out": ["y"]})


def _attributes(*attrs: bytes) -> Op:
    net = e.op("relu", {"X": ["x"]}, {"Out": ["y"]}, *attrs)
    found = program.read(memoryview(e.program(e.block(0, -1, [X, Y], [e.feed("x"), net, e.fetch("y")]))))
    check(found)
    return found.block.ops[0]


SCALAR = e.message((1, 2), (3, -5))
COMPLEX = e.message((1, 4), (5, b"\x09" + struct.pack("<d", 1) + b"\x11" + struct.pack("<d", 2)))


@pytest.mark.parametrize(
    ("attribute", "value"),
    [
        (e.attr("a", 0, (3, -7)), -7),
        (e.attr("a", 0), 0),
        (e.attr("a", 1, (4, 0.25)), 0.25),
        (e.attr("a", 2, (5, "text")), "text"),
        (e.attr("a", 2, (5, b"\xff\xfe")), b"\xff\xfe"),
        (e.attr("a", 3, (6, 1), (6, -1)), [1, -1]),
        (e.attr("a", 3), []),
        (e.attr("a", 4, (7, 0.5)), [0.5]),
        (e.attr("a", 5, (8, "p"), (8, "q")), ["p", "q"]),
        (e.attr("a", 6, (10, 1)), True),
        (e.attr("a", 7, (11, 1), (11, 0)), [True, False]),
        (e.attr("a", 9, (13, 1 << 40)), 1 << 40),
        (e.attr("a", 11, (15, -(1 << 40))), [-(1 << 40)]),
        (e.attr("a", 12, (16, struct.pack("<2d", 1, 2))), [1.0, 2.0]),
        (e.attr("a", 16, (20, SCALAR)), -5),
        (e.attr("a", 16, (20, COMPLEX)), 1 + 2j),
        (e.attr("a", 17, (21, SCALAR), (21, SCALAR)), [-5, -5]),
        (e.attr("a", 77), Opaque("AttrType 77")),
    ],
)
def test_old_attribute(attribute: bytes, value: Any) -> None:
    assert _attributes(attribute).attributes == {"a": value}


def test_attribute_that_is_a_variable() -> None:
    op = _attributes(e.attr("shape", 14, (18, "x"), (18, "x")), e.attr("axis", 13, (17, "x")))
    assert [v and v.name for v in op.inputs["shape"] + op.inputs["axis"]] == ["x"] * 3


def test_source_is_the_users_line() -> None:
    frames = [
        '  File "/home/me/net.py", line 7, in forward',
        "    return relu(x)",
        '  File "/usr/lib/python3/site-packages/paddle/nn/functional.py", line 99, in relu',
    ]
    op = _attributes(e.attr("op_callstack", 5, *((8, frame) for frame in frames)))
    assert op.source == "/home/me/net.py:7" and not op.attributes


def _one(*ops: bytes, variables: list[bytes] | None = None) -> bytes:
    return e.program(e.block(0, -1, variables or [X, Y], [e.feed("x"), *ops]))


def _nested(depth: int) -> bytes:
    blocks = []
    for i in range(depth):
        inner = [e.op("conditional_block", {"Cond": ["x"]}, {}, e.attr("sub_block", 8, (12, i + 1)))]
        blocks.append(e.block(i, i - 1, [X] if not i else [], [e.feed("x"), *inner] if not i else inner))
    return e.program(*blocks, e.block(depth, depth - 1, [], []))


def _inner(index: int, *more: bytes) -> bytes:
    branch = e.op("conditional_block", {"Cond": ["x"]}, {}, e.attr("sub_block", 8, (12, index)))
    return e.program(e.block(0, -1, [X, Y], [e.feed("x"), branch, *more]), e.block(1, 0, [], []), e.block(2, 1, [], []))


BRANCH = e.op("conditional_block", {"Cond": ["x"]}, {}, e.attr("sub_block", 8, (12, 1)))


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (_one(e.op("relu", {"X": ["y"]}, {"Out": ["y"]})), "'y' is read before it is assigned"),
        (_one(e.op("relu", {"X": ["nobody"]}, {"Out": ["y"]})), "'nobody' is read before"),
        (_one(RELU, variables=[X, X, Y]), "two variables"),
        (_one(RELU, variables=[e.variable("x", *[1] * 65), Y]), "65 dimensions"),
        (_one(e.message((1, b"\x0a\x01X"))), "no type"),
        (_one(e.feed("x")), "two inputs"),
        (_one(e.op("feed", {}, {})), "does not name one variable"),
        (_one(e.op("relu", {"X": ["x"]}, {"Out": ["y"]}, e.attr("a", 0), e.attr("a", 0))), "two attributes"),
        (_one(e.message((1, e.message((1, "X"))), (1, e.message((1, "X"))), (3, "relu"))), "two slots"),
        (_one(e.op("relu", {"X": ["x"]}, {}, e.attr("X", 13, (17, "x")))), "both a slot and an attribute"),
        (_inner(7), "block 7 does not exist"),
        (_inner(-1), "block -1 does not exist"),
        (_inner(0), "block 0 is used twice"),
        (_inner(2), "block 2 belongs into block 1, not 0"),
        (_inner(1, BRANCH), "block 1 is used twice"),
        (_nested(70), "more than 64 deep"),
        (e.program(e.block(3, -1, [], [])), "calls itself block 3"),
        (_one(e.op("while", {"Condition": []}, {}, e.attr("sub_block", 8))), "names no block"),
        (_one(e.op("while", {"Condition": []}, {}, e.attr("b", 10, (14, 0)))), "used twice"),
        (e.program(e.block(0, -1, [e.message((1, b"\xff"))], [])), "not UTF-8"),
        (e.program(e.block(0, -1, [e.message((1, "x"))], [])), "no type"),
    ],
)
def test_damaged_old_program(data: bytes, why: str) -> None:
    with pytest.raises(InvalidModel, match=why) as caught:
        program.read(memoryview(data))
    assert caught.value.why


def test_faults_have_a_place() -> None:
    with pytest.raises(InvalidModel) as caught:
        program.read(memoryview(_one(e.op("relu", {"X": ["y"]}, {"Out": ["y"]}))))
    assert caught.value.where == "block 0, op 1 (relu)"


def test_deep_but_allowed() -> None:
    check(program.read(memoryview(_nested(60))))


def test_versions_do_not_meet_other_names() -> None:
    variables = [X, Y, e.variable("y@1", 2), e.variable("y@2", 2)]
    chain = [e.op("relu", {"X": ["x"]}, {"Out": ["y@1"]}), RELU, RELU, RELU]
    found = program.read(memoryview(_one(*chain, e.fetch("y"), variables=variables)))
    check(found)
    assert [op.outputs["Out"][0].name for op in found.block.ops if op.outputs["Out"][0]] == ["y@1", "y", "y@3", "y@4"]


def test_variables_of_an_inner_block_hide_outer_ones() -> None:
    inner = e.block(1, 0, [Y], [RELU])
    found = program.read(
        memoryview(e.program(e.block(0, -1, [X, Y], [e.feed("x"), RELU, BRANCH, e.fetch("y")]), inner))
    )
    check(found)
    relu, branch = found.block.ops
    assert branch.writes == [] and found.block.results == relu.outputs["Out"]


def test_inner_blocks_write_through_two_levels() -> None:
    """A loop whose body has a branch that writes a variable of the root block."""
    condition = e.variable("c", 1, dtype=0)
    fill = e.op("fill_constant", {}, {"Out": ["c"]})
    loop = e.op("while", {"Condition": ["c"], "X": []}, {"Out": []}, e.attr("sub_block", 8, (12, 1)))
    branch = e.op("conditional_block", {"Cond": ["c"]}, {}, e.attr("sub_block", 8, (12, 2)))
    write = e.op("write_to_array", {"X": ["x"], "I": ["c"]}, {"Out": ["list"]})
    root = e.block(
        0, -1, [X, Y, condition, e.variable("list", 2, 3, kind=13)], [e.feed("x"), fill, loop, RELU, e.fetch("y")]
    )
    found = program.read(
        memoryview(e.program(root, e.block(1, 0, [], [branch, fill]), e.block(2, 1, [], [RELU, write])))
    )
    check(found)
    outer = only(found.block, "while")
    (body,) = outer.blocks
    test = only(body, "conditional_block")
    assert [w.after.name.partition("@")[0] for w in test.writes] == ["y", "list"]
    assert [w.after.name.partition("@")[0] for w in outer.writes] == ["y", "list", "c"]
    assert [w.before is None for w in outer.writes] == [True, True, False]
    assert [w.before for w in test.writes] == body.arguments[:2]
    assert body.results[1:3] == [w.after for w in test.writes]
