"""What every program has to be, however it was read."""

from __future__ import annotations

from tonnx.frontends.paddle.read.graph import Block, Op, Program, Value


def ops(block: Block, name: str) -> list[Op]:
    return [op for op in block.ops if op.name == name]


def only(block: Block, name: str) -> Op:
    (found,) = ops(block, name)
    return found


def check(found: Program) -> None:
    """Every value is assigned once, under its own name, before it is used and where it can be seen."""
    names = [value.name for value in found.parameters.values()]
    seen: set[int] = {id(value) for value in found.parameters.values()}

    def define(values: list[Value | None]) -> None:
        for value in values:
            if value is not None:
                assert id(value) not in seen
                seen.add(id(value))
                names.append(value.name)

    def visit(block: Block) -> None:
        define(list(block.arguments))
        for op in block.ops:
            used = [value for values in op.inputs.values() for value in values] + [w.before for w in op.writes]
            assert all(value is None or id(value) in seen for value in used), op.place
            for inner in op.blocks:
                assert inner.parent is block
                visit(inner)
                assert all(value is None or id(value) in seen for value in inner.results), op.place
            define([value for values in op.outputs.values() for value in values])
            define([write.after for write in op.writes])

    visit(found.block)
    assert len(names) == len(set(names))
