"""Old Paddle programs: the ProgramDesc of ``.pdmodel`` and ``__model__`` files.

The field numbers are those of Paddle's framework.proto (proto2).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tonnx.frontends.paddle.read import dtypes
from tonnx.frontends.paddle.read.damaged_file import at, damaged, quoted
from tonnx.frontends.paddle.read.graph import LOOPS, POSITIONAL, Kind, Opaque, Program, Type
from tonnx.frontends.paddle.read.ssa import MAX_DEPTH, Key, RawBlock, RawOp, Variable, Versions
from tonnx.frontends.paddle.read.wire import (
    BOOL,
    DOUBLE,
    FLOAT,
    INT32,
    INT64,
    MESSAGE,
    STRING,
    TEXT,
    Field,
    Spec,
    decode,
)

_VERSION: Spec = {1: Field("version", INT64)}
_PROGRAM: Spec = {1: Field("blocks", MESSAGE, True), 4: Field("version", MESSAGE)}
_BLOCK: Spec = {
    1: Field("idx", INT32),
    2: Field("parent", INT32),
    3: Field("vars", MESSAGE, True),
    4: Field("ops", MESSAGE, True),
}
_OP: Spec = {
    1: Field("inputs", MESSAGE, True),
    2: Field("outputs", MESSAGE, True),
    3: Field("type", TEXT),
    4: Field("attrs", MESSAGE, True),
}
_SLOT: Spec = {1: Field("name", TEXT), 2: Field("arguments", TEXT, True)}
_ATTR: Spec = {
    1: Field("name", TEXT), 2: Field("type", INT32), 3: Field("i", INT32), 4: Field("f", FLOAT),
    5: Field("s", STRING), 6: Field("ints", INT32, True), 7: Field("floats", FLOAT, True),
    8: Field("strings", STRING, True), 10: Field("b", BOOL), 11: Field("bools", BOOL, True),
    12: Field("block_idx", INT32), 13: Field("l", INT64), 14: Field("blocks_idx", INT32, True),
    15: Field("longs", INT64, True), 16: Field("float64s", DOUBLE, True), 17: Field("var_name", TEXT),
    18: Field("vars_name", TEXT, True), 19: Field("float64", DOUBLE), 20: Field("scalar", MESSAGE),
    21: Field("scalars", MESSAGE, True),
}  # fmt: skip
_SCALAR: Spec = {
    1: Field("type", INT32),
    2: Field("b", BOOL),
    3: Field("i", INT64),
    4: Field("r", DOUBLE),
    5: Field("c", MESSAGE),
}
_COMPLEX: Spec = {1: Field("r", DOUBLE), 2: Field("i", DOUBLE)}
_VAR: Spec = {1: Field("name", TEXT), 2: Field("type", MESSAGE), 3: Field("persistable", BOOL)}
_TYPE: Spec = {
    1: Field("type", INT32),
    2: Field("rows", MESSAGE),
    3: Field("tensor", MESSAGE),
    4: Field("array", MESSAGE),
}
_TENSOR: Spec = {1: Field("tensor", MESSAGE)}
TENSOR_DESC: Spec = {1: Field("dtype", INT32), 2: Field("dims", INT64, True)}
"""Shared with the weights files."""

_PLAIN = {
    0: ("i", 0), 1: ("f", 0.0), 2: ("s", ""), 3: ("ints", []), 4: ("floats", []), 5: ("strings", []),
    6: ("b", False), 7: ("bools", []), 9: ("l", 0), 11: ("longs", []), 12: ("float64s", []), 15: ("float64", 0.0),
}  # fmt: skip
"""AttrType: the field that has the value, and what C++ reads if the field is missing."""

_BLOCK_IDX, _BLOCKS_IDX, _VAR_NAME, _VAR_NAMES, _SCALAR_TYPE, _SCALARS_TYPE = 8, 10, 13, 14, 16, 17
_LOD_TENSOR, _TENSOR_ARRAY = 7, 13
_EMPTY = "@EMPTY@"
_UNUSED = frozenset({"op_role", "op_role_var", "op_namescope", "op_device", "op_callstack", "with_quant_attr"})
"""Attributes of training and of debugging, on every operator."""
_FRAME = re.compile(r'File "(.+)", line (\d+)')
_PADDLE = re.compile(r"-packages[/\\]paddle[/\\]|^<")


def read(data: memoryview) -> Program:
    """The program in the bytes of a file."""
    message = decode(data, _PROGRAM)
    if not message["blocks"]:
        raise damaged("it has no blocks", hint="is this file a Paddle program, and not encrypted?")
    version = decode(message["version"], _VERSION).get("version", 0) if "version" in message else 0
    blocks = _Blocks(message["blocks"])
    root = blocks.raw(0, None, ())
    inputs, outputs = _ports(root)
    versions = Versions(root)
    block = versions.program()
    parameters = {value.name: value for value in versions.parameters.values()}
    inputs_by_name = dict(zip(inputs, block.arguments, strict=True))
    taken = {name: value for name, value in zip(outputs, block.results, strict=True) if value is not None}
    return Program("pdmodel", version, block, inputs_by_name, taken, parameters)


@dataclass(slots=True)
class _Encoded:
    """A block whose operators are still bytes."""

    parent: int
    variables: dict[Key, Variable]
    ops: list[memoryview]
    used: bool = False


class _Blocks:
    """The blocks of a program; operators refer to them by index."""

    def __init__(self, messages: list[memoryview]) -> None:
        self._blocks: list[_Encoded] = []
        for i, message in enumerate(messages):
            with at(f"block {i}"):
                block = decode(message, _BLOCK)
                if block.get("idx", i) != i:
                    raise damaged(f"it calls itself block {block['idx']}")
                self._blocks.append(_Encoded(block.get("parent", -1), {}, block["ops"]))
                self._declare(i, block["vars"])

    def _declare(self, index: int, messages: list[memoryview]) -> None:
        own, root = self._blocks[index].variables, self._blocks[0].variables
        for i, message in enumerate(messages):
            with at(f"variable {i}"):
                desc = decode(message, _VAR)
                name = desc.get("name")
                if name is None:
                    raise damaged("it has no name")
            with at(f"variable {quoted(name)}"):
                if "type" not in desc:
                    raise damaged("it has no type")
                kind, parsed = _type(desc["type"])
                saved = bool(desc.get("persistable")) and kind == _LOD_TENSOR
                # Paddle keeps what is persistable in the outermost scope, wherever it is declared.
                target = root if saved else own
                if saved and index and name in root and root[name].is_parameter:
                    continue
                if name in target:
                    raise damaged("two variables of a block have this name")
                target[name] = Variable(name, parsed, saved)

    def raw(self, index: int, parent: int | None, around: tuple[dict[Key, Variable], ...]) -> RawBlock:
        """A block with everything inside. ``around`` are the variables of the blocks that it is in."""
        if not 0 <= index < len(self._blocks):
            raise damaged(f"block {index} does not exist; there are {len(self._blocks)}")
        block = self._blocks[index]
        if block.used or (parent is not None and block.parent != parent):
            # Once each and only inside the parent: no cycles, and no program that doubles with every level.
            why = "is used twice" if block.used else f"belongs into block {block.parent}, not {parent}"
            raise damaged(f"block {index} {why}")
        if len(around) >= MAX_DEPTH:
            raise damaged(f"blocks are nested more than {MAX_DEPTH} deep")
        block.used = True
        raw = RawBlock(block.variables)
        scopes = (*around, block.variables)
        for i, message in enumerate(block.ops):
            with at(f"block {index}, op {i}"):
                raw.ops.append(self._op(message, index, i, scopes))
        return raw

    def _op(self, message: memoryview, block: int, i: int, scopes: tuple[dict[Key, Variable], ...]) -> RawOp:
        desc = decode(message, _OP)
        name = desc.get("type")
        if not name:
            raise damaged("the operator has no type")
        op = RawOp(name, _slots(desc["inputs"]), _slots(desc["outputs"]), {}, place=f"block {block}, op {i} ({name})")
        inner: list[int] = []
        for attribute in desc["attrs"]:
            inner += _attribute(attribute, op)
        for keys in op.outputs.values():
            for key in keys:
                if key is not None and not any(key in scope for scope in scopes):
                    scopes[-1][key] = Variable(str(key), Type())
        op.blocks = [self.raw(index, block, scopes) for index in inner]
        if op.blocks:
            _control(op)
        elif name == "write_to_array":  # it changes its output, which it therefore also reads
            op.inputs["Array"] = list(op.outputs.get("Out", []))
        return op


def _control(op: RawOp) -> None:
    """Loops and branches in the form of ``graph``. What the slots X, Input and Out list is found from the blocks."""
    if op.name in LOOPS:
        condition = op.inputs.get("Condition", [])
        if len(condition) != 1 or len(op.blocks) != 1:
            raise damaged(f"a loop has {len(condition)} conditions and {len(op.blocks)} bodies")
        op.blocks[0].results = list(condition)
    else:
        condition = op.inputs.get("Cond", op.inputs.get("Condition", []))
    op.inputs = {POSITIONAL: condition}
    op.outputs = {}


def _slots(messages: Iterable[memoryview]) -> dict[str, list[Key | None]]:
    slots: dict[str, list[Key | None]] = {}
    for message in messages:
        slot = decode(message, _SLOT)
        name = slot.get("name", "")
        if name in slots:
            raise damaged(f"two slots have the name {quoted(name)}")
        slots[name] = [None if argument == _EMPTY else argument for argument in slot["arguments"]]
    return slots


def _attribute(message: memoryview, op: RawOp) -> list[int]:
    """Put an attribute into the operator; returns the blocks that it refers to."""
    desc = decode(message, _ATTR)
    name, kind = desc.get("name", ""), desc.get("type")
    if name == "op_callstack":
        op.source = _source(desc["strings"])
    if name in _UNUSED:
        return []
    if kind in (_BLOCK_IDX, _BLOCKS_IDX):
        if kind == _BLOCK_IDX and "block_idx" not in desc:
            raise damaged(f"the attribute {quoted(name)} names no block")
        return list(desc["blocks_idx"]) if kind == _BLOCKS_IDX else [desc["block_idx"]]
    if name in op.attributes:
        raise damaged(f"two attributes have the name {quoted(name)}")
    if kind in (_VAR_NAME, _VAR_NAMES):
        # Since 2.4 an attribute may be a variable: an input in all but name.
        if name in op.inputs:
            raise damaged(f"{quoted(name)} is both a slot and an attribute")
        names = desc["vars_name"] if kind == _VAR_NAMES else [desc.get("var_name")]
        op.inputs[name] = [None if item == _EMPTY else item for item in names]
    elif kind in _PLAIN:
        field, default = _PLAIN[kind]
        op.attributes[name] = desc.get(field, default)
    elif kind == _SCALAR_TYPE:
        op.attributes[name] = _scalar(desc["scalar"]) if "scalar" in desc else None
    elif kind == _SCALARS_TYPE:
        op.attributes[name] = [_scalar(item) for item in desc["scalars"]]
    else:
        op.attributes[name] = Opaque(f"AttrType {kind}")
    return []


def _scalar(message: memoryview) -> Any:
    desc = decode(message, _SCALAR)
    match desc.get("type"):
        case 1:
            return desc.get("b", False)
        case 2:
            return desc.get("i", 0)
        case 3:
            return desc.get("r", 0.0)
        case 4:
            parts = decode(desc["c"], _COMPLEX) if "c" in desc else {}
            return complex(parts.get("r", 0.0), parts.get("i", 0.0))
        case other:
            return Opaque(f"Scalar {other}")


def _source(frames: Iterable[str | bytes]) -> str:
    """The user's line in a stack trace: the innermost one outside of Paddle."""
    for frame in reversed(list(frames)):
        match = _FRAME.search(frame) if isinstance(frame, str) else None
        if match and not _PADDLE.search(match[1]):
            return f"{match[1]}:{match[2]}"
    return ""


def _type(message: memoryview) -> tuple[int, Type]:
    desc = decode(message, _TYPE)
    number = desc.get("type", -1)
    if number == _LOD_TENSOR:
        return number, _tensor(Kind.TENSOR, decode(desc["tensor"], _TENSOR) if "tensor" in desc else {})
    if number == _TENSOR_ARRAY:
        return number, _tensor(Kind.ARRAY, decode(desc["array"], _TENSOR) if "array" in desc else {})
    return number, Type(Kind.OTHER)


def _tensor(kind: Kind, holder: dict[str, Any]) -> Type:
    if "tensor" not in holder:
        return Type(kind)
    desc = decode(holder["tensor"], TENSOR_DESC)
    return Type(kind, dtypes.PROTO.get(desc.get("dtype", -1)), dtypes.shape(desc["dims"]))


def _ports(root: RawBlock) -> tuple[list[str], list[str]]:
    """Take feed and fetch operators out of the root block; returns the names of the inputs and of the outputs."""
    feeds, fetches, rest = list[tuple[int, Key]](), list[tuple[int, Key]](), list[RawOp]()
    for op in root.ops:
        if op.name not in ("feed", "fetch"):
            rest.append(op)
            continue
        keys = op.outputs.get("Out", []) if op.name == "feed" else op.inputs.get("X", [])
        column = op.attributes.get("col", 0)
        if len(keys) != 1 or keys[0] is None or not isinstance(column, int):
            with at(op.place):
                raise damaged("it does not name one variable and one column")
        (feeds if op.name == "feed" else fetches).append((column, keys[0]))
    root.ops = rest
    root.arguments = [key for _, key in sorted(feeds, key=lambda item: item[0])]
    root.results = [key for _, key in sorted(fetches, key=lambda item: item[0])]
    for what, keys in (("input", root.arguments), ("output", root.results)):
        if what == "input" and len(set(keys)) != len(keys):
            raise damaged("two inputs have the same name")
        if what == "input" and any(root.variables[key].is_parameter for key in keys):
            raise damaged("an input is a parameter")
    return [str(key) for key in root.arguments], _distinct(str(key) for key in root.results)


def _distinct(names: Iterable[str]) -> list[str]:
    """A variable may be fetched twice; outputs have names of their own."""
    out: dict[str, None] = {}
    for name in names:
        wish, count = name, 0
        while wish in out:
            count += 1
            wish = f"{name}_{count}"
        out[wish] = None
    return list(out)
