"""PIR programs: the ``.json`` files of Paddle 3.

JSON is read by the standard library, then taken apart with every type checked: a file is free to say anything.
"""

from __future__ import annotations

import json
from typing import Any

from tonnx.frontends.paddle.read.damaged_file import at, damaged, quoted
from tonnx.frontends.paddle.read.graph import POSITIONAL, Program, Type
from tonnx.frontends.paddle.read.pir_attributes import attribute_of, item, text, type_of
from tonnx.frontends.paddle.read.ssa import MAX_DEPTH, Key, RawBlock, RawOp, Variable, Versions

MAX_BYTES = 256 * 1024**2
"""A program of 10,000 operators takes 10 MB; Python needs some 15 times a file's size to take it apart."""

_DIALECTS = {"0": "builtin", "1": "pd_op", "2": "cf", "3": "custom_op", "4": "dist"}
_UNSAVED = "__non_persistable"  # paddle/pir/core.py
_IN_PLACE = {"pd_op.assign_out_": 1, "pd_op.array_pop": 0}
"""Operators whose first result is an operand, changed: its place, where that is not 0 or the name has no ``_``."""
_NOT_IN_PLACE = frozenset({"pd_op.batch_norm_", "pd_op.sync_batch_norm_"})
"""Their statistics are what they change, and only in training."""


def read(data: bytes) -> Program:
    """The program in the bytes of a file."""
    if len(data) > MAX_BYTES:
        raise damaged(f"the program takes {len(data)} bytes; at most {MAX_BYTES} are read")
    try:
        document = json.loads(data)
    except RecursionError:
        raise damaged("its JSON is nested too deep") from None
    except ValueError as error:  # of JSON, of UTF-8, or of a number with thousands of digits
        raise damaged(f"it is not JSON: {str(error)[:200]}") from None
    base = item(document, "base_code", dict)
    if base.get("magic") != "pir":
        raise damaged(f"it is JSON, but no PIR program: its magic is {quoted(base.get('magic'))}")
    version = base.get("version", 0)
    regions = item(item(document, "program", dict), "regions", list)
    if len(regions) != 1:
        raise damaged(f"the program has {len(regions)} regions, not one")
    reader = _Reader()
    with at("program"):
        root = reader.region(regions[0], 0)
    outputs = sorted(reader.outputs.items(), key=lambda output: output[1][0])
    root.results = [key for _, (_, key) in outputs]
    versions = Versions(root)
    block = versions.program()
    return Program(
        "pir",
        version if type(version) is int else 0,
        block,
        dict(zip(reader.inputs, block.arguments, strict=True)),
        {name: value for (name, _), value in zip(outputs, block.results, strict=True) if value is not None},
        {value.name: value for value in versions.parameters.values()},
        frozenset(reader.unsaved),
    )


class _Reader:
    """Takes one document apart."""

    def __init__(self) -> None:
        self.inputs: list[str] = []
        self.outputs: dict[str, tuple[int, Key]] = {}
        """By name, with the column, which is the order."""
        self.unsaved: set[str] = set()
        self._names: set[str] = set()
        self._variables: dict[int, int] = {}
        """From a value's id to the id of the variable that it is: the operand that was changed in place."""
        self._count = 0

    def region(self, region: Any, depth: int) -> RawBlock:
        if depth > MAX_DEPTH:
            raise damaged(f"regions are nested more than {MAX_DEPTH} deep")
        blocks = item(region, "blocks", list)
        if not blocks and depth:
            return RawBlock()
        if len(blocks) != 1:
            raise damaged(f"a region has {len(blocks)} blocks, not one")
        number, self._count = self._count, self._count + 1
        block = blocks[0]
        raw = RawBlock()
        with at(f"block {number}"):
            self._arguments(block, raw)
            ops = item(block, "ops", list)
        for i, op in enumerate(ops):
            name = op.get("#") if isinstance(op, dict) else None
            shown = full_name(name) if isinstance(name, str) else "?"
            place = f"block {number}, op {i} ({shown[:80]})"
            with at(place):
                if not isinstance(name, str):
                    raise damaged("the operator has no name")
                if name == "p" or shown == "builtin.parameter":
                    self._parameter(op, raw, depth)
                else:
                    self._op(op, shown, raw, place, depth)
        return raw

    def _arguments(self, block: Any, raw: RawBlock) -> None:
        for argument in item(block, "args", list):
            raw.arguments.append(self._define(argument, raw))
        named = block.get("kwargs", [])
        for argument in named if isinstance(named, list) else ():
            # 3.3 writes the positional arguments again in the place of the named ones.
            if _id(argument) not in self._variables:
                raw.arguments.append(self._define(argument, raw))

    def _define(self, value: Any, raw: RawBlock, name: str | None = None, parameter: bool = False) -> Key:
        number = _id(value)
        if number == 0 or number in self._variables:
            raise damaged(f"two values have the id {number}" if number else "an argument has the id 0")
        self._variables[number] = number
        name = name or f"%{number}"
        if name in self._names:
            raise damaged(f"two values have the name {quoted(name)}")
        self._names.add(name)
        raw.variables[number] = Variable(name, _type(value), parameter)
        return number

    def _parameter(self, op: dict[str, Any], raw: RawBlock, depth: int) -> None:
        if depth:
            raise damaged("a parameter is inside of a region")
        output = op.get("O")
        output = output[0] if isinstance(output, list) and output else output
        attributes, more = item(op, "A", list), op.get("OA")
        if op["#"] == "p":
            if len(attributes) < 4:
                raise damaged("a parameter has no name")
            name = text(attributes[3])
            persistable = more[0] if isinstance(more, list) and more and type(more[0]) is int else 1
        else:  # the long form of early writers
            decoded = _attributes(op)
            name, persistable = text(decoded.get("parameter_name")), decoded.get("persistable", 1)
            persistable = persistable[0] if isinstance(persistable, list) and persistable else persistable
        self._define(output, raw, name, parameter=True)
        if not persistable or name.endswith(_UNSAVED):
            self.unsaved.add(name)

    def _op(self, op: dict[str, Any], name: str, raw: RawBlock, place: str, depth: int) -> None:
        operands = [self._use(operand) for operand in item(op, "I", list)]
        attributes = _attributes(op)
        if name == "cf.yield":
            raw.results = operands
            return
        outputs = op.get("O") or []
        if not isinstance(outputs, list):
            raise damaged("its outputs are not a list")
        if depth == 0 and name in ("pd_op.data", "pd_op.feed"):
            self._input(outputs, attributes, raw)
            return
        if depth == 0 and name in ("pd_op.fetch", "builtin.shadow_output"):
            self._output(operands, attributes)
            return
        regions = op.get("regions") or []
        if not isinstance(regions, list):
            raise damaged("its regions are not a list")
        # Before the results are defined: regions use what comes before the operator.
        blocks = [self.region(region, depth + 1) for region in regions]
        _check_control(name, blocks, len(operands), len(outputs))
        results: list[Key | None] = []
        for i, output in enumerate(outputs):
            results.append(self._result(output, raw, _changed(name, i, operands)))
        source = attributes.pop("struct_name", "")
        types = [_type(output) for output in outputs]
        source = source if isinstance(source, str) else ""
        raw.ops.append(
            RawOp(name, {POSITIONAL: operands}, {POSITIONAL: results}, attributes, blocks, place, source, types)
        )

    def _use(self, operand: Any) -> Key | None:
        number = _id(operand)
        if number == 0:
            return None
        if number not in self._variables:
            raise damaged(f"it uses the value {number}, which nothing before it defines")
        return self._variables[number]

    def _result(self, output: Any, raw: RawBlock, changed: Key | None) -> Key | None:
        number = _id(output)
        if number == 0:
            return None
        if changed is None:
            return self._define(output, raw)
        if number in self._variables:
            raise damaged(f"two values have the id {number}")
        assert isinstance(changed, int)
        self._variables[number] = changed
        return changed

    def _input(self, outputs: list[Any], attributes: dict[str, Any], raw: RawBlock) -> None:
        if len(outputs) != 1:
            raise damaged(f"an input has {len(outputs)} values")
        name = text(attributes.get("name"))
        raw.arguments.append(self._define(outputs[0], raw, name))
        self.inputs.append(name)

    def _output(self, operands: list[Key | None], attributes: dict[str, Any]) -> None:
        if len(operands) != 1 or operands[0] is None:
            raise damaged(f"an output has {len(operands)} values")
        name = text(attributes.get("name", attributes.get("output_name")))
        if name in self.outputs:
            raise damaged(f"two outputs have the name {quoted(name)}")
        column = attributes.get("col")
        self.outputs[name] = (column if type(column) is int else len(self.outputs), operands[0])


def full_name(name: str) -> str:
    """``1.conv2d`` as ``pd_op.conv2d``."""
    dialect, dot, rest = name.partition(".")
    return f"{_DIALECTS.get(dialect, dialect)}.{rest}" if dot else name


def _changed(name: str, result: int, operands: list[Key | None]) -> Key | None:
    """The operand that a result is, after an operator that works in place."""
    if result or name in _NOT_IN_PLACE:
        return None
    position = _IN_PLACE.get(name, 0 if name.startswith("pd_op.") and name.endswith("_") else None)
    return operands[position] if position is not None and position < len(operands) else None


def _check_control(name: str, blocks: list[RawBlock], operands: int, outputs: int) -> None:
    """Loops and branches have the form that ``graph`` describes."""
    if name == "pd_op.while":
        right = len(blocks) == 1 and operands == outputs + 1
        right = right and len(blocks[0].arguments) == outputs and len(blocks[0].results) == operands
    elif name == "pd_op.if":
        right = operands == 1 and 1 <= len(blocks) <= 2 and all(len(block.results) == outputs for block in blocks)
        right = right and not any(block.arguments for block in blocks)
    else:
        return
    if not right:
        raise damaged("what goes in and what comes out do not match its regions")


def _id(value: Any) -> int:
    """A value's id: under ``%``, in block arguments and in early files under ``#``."""
    if not isinstance(value, dict):
        raise damaged(f"a value is {quoted(value)}")
    number = value.get("%", value.get("#"))
    if type(number) is not int:
        raise damaged(f"a value has the id {quoted(number)}")
    return number


def _type(value: Any) -> Type:
    return type_of(item(value, "TT", dict))


def _attributes(op: dict[str, Any]) -> dict[str, Any]:
    attributes: dict[str, Any] = {}
    for attribute in item(op, "A", list):
        name = item(attribute, "N", str)
        if name in attributes:
            raise damaged(f"two attributes have the name {quoted(name)}")
        with at(f"attribute {quoted(name)}"):
            attributes[name] = attribute_of(item(attribute, "AT", dict))
    return attributes
