"""What is computed of all elements of a list: extremes, sums, order, and where one of them is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import onnx_ir as ir

from tonnx.errors import LoweringError
from tonnx.frontends.torch.script import numbers
from tonnx.frontends.torch.script.lists import any_true, elements_of, equals, stacked
from tonnx.frontends.torch.script.values import List, Tensor
from tonnx.ir.build import T
from tonnx.lowering.regions.lists import DynamicList, as_number, number_value

if TYPE_CHECKING:
    from tonnx.frontends.torch.script.walk import ScriptWalk


def _at_run_time(content: Any, *more: Any) -> bool:
    """Whether the run alone knows the elements."""
    return isinstance(content, DynamicList) or any(isinstance(item, (ir.Value, Tensor)) for item in [*content, *more])


def _numbers(walk: ScriptWalk, content: Any, doing: str) -> ir.Value:
    """The elements of a list of numbers, side by side."""
    grown = content if isinstance(content, DynamicList) else stacked(walk, content)
    if not grown.numbers:
        raise LoweringError(f"{doing} of a list of tensors", hint="use a tensor (torch.stack) instead of the list")
    return grown.value


def extreme(walk: ScriptWalk, node: Any, one: Any, *other: Any) -> Any:
    """max and min of a list of numbers."""
    kind = node.kind()
    content = walk.store.content(one)
    if isinstance(content, DynamicList):
        reduce = walk.op.ReduceMax if kind == "prim::max" else walk.op.ReduceMin
        return as_number(reduce(_numbers(walk, content, "max() or min()"), [0], keepdims=1))
    return content[0] if len(content) == 1 else numbers.compute(walk.op, kind, content)


def total(walk: ScriptWalk, node: Any, cell: Any) -> Any:
    content = walk.store.content(cell)
    if isinstance(content, DynamicList):
        value = _numbers(walk, content, "sum()")
        if value.dtype == T.BOOL:
            value = walk.op.cast(value, T.INT64)
        return as_number(walk.op.ReduceSum(value, [0], keepdims=1))
    result: Any = 0
    for item in content:
        result = numbers.compute(walk.op, "aten::add", [result, item])
    return result


def any_of(walk: ScriptWalk, node: Any, cell: Any) -> Any:
    content = walk.store.content(cell)
    if isinstance(content, DynamicList):
        return as_number(walk.op.Greater(_how_many(walk, _truth(walk, content)), 0))
    return any_true(walk, [numbers.compute(walk.op, "aten::Bool", [item]) for item in content])


def all_of(walk: ScriptWalk, node: Any, cell: Any) -> Any:
    content = walk.store.content(cell)
    if isinstance(content, DynamicList):
        return as_number(walk.op.Equal(_how_many(walk, walk.op.Not(_truth(walk, content))), 0))
    result: Any = True
    for item in content:
        result = numbers.compute(walk.op, "aten::__and__", [result, numbers.compute(walk.op, "aten::Bool", [item])])
    return result


def _truth(walk: ScriptWalk, content: DynamicList) -> ir.Value:
    value = _numbers(walk, content, "any() or all()")
    return value if value.dtype == T.BOOL else walk.op.Not(walk.op.Equal(value, 0))


def _how_many(walk: ScriptWalk, marks: ir.Value) -> ir.Value:
    return walk.op.ReduceSum(walk.op.cast(marks, T.INT64), [0], keepdims=1)


def sort(walk: ScriptWalk, node: Any, cell: Any, reverse: Any = False) -> Any:
    content = walk.store.content(cell)
    reverse = numbers.as_constant(reverse)
    ordered: Any
    if _at_run_time(content, reverse):
        ordered = _ordered(walk, _numbers(walk, content, "sorting"), reverse)
    else:
        ordered = sorted(content, reverse=bool(reverse))
    if node.kind() == "aten::sorted":
        return List(ordered)
    walk.store.set_content(cell, ordered)
    return None


def _ordered(walk: ScriptWalk, value: ir.Value, reverse: Any) -> DynamicList:
    op, dtype = walk.op, value.dtype
    assert dtype is not None
    kept = op.cast(value, T.INT64) if dtype == T.BOOL else value
    count = op.vector([op.size(value, 0)])
    if isinstance(reverse, ir.Value):
        down, up = (op.TopK(kept, count, axis=0, largest=largest, sorted=1)[0] for largest in (1, 0))
        ordered = op.Where(number_value(op, reverse, T.BOOL), down, up)
    else:
        ordered, _ = op.TopK(kept, count, axis=0, largest=int(bool(reverse)), sorted=1)
    return DynamicList(op.cast(ordered, dtype), dtype, (), numbers=True)


def _marks(walk: ScriptWalk, content: Any, item: Any, doing: str) -> ir.Value:
    """Which elements are equal to ``item``."""
    value = _numbers(walk, content, doing)
    assert value.dtype is not None
    return walk.op.Equal(value, number_value(walk.op, item, value.dtype))


def index_of(walk: ScriptWalk, node: Any, cell: Any, item: Any, *limits: Any) -> Any:
    """The place of the first element that is equal to ``item``; Python fails if there is none."""
    if isinstance(cell, str):
        return cell.index(item, *map(numbers.as_constant, limits))
    content = walk.store.content(cell)
    if _at_run_time(content, item):
        marks = walk.op.cast(_marks(walk, content, item, "index()"), T.INT32)
        return as_number(walk.op.ArgMax(marks, axis=0, keepdims=1))
    if item not in content:
        raise LoweringError(f"{item!r} is not in the list", why=f"it has {', '.join(map(repr, content)) or 'nothing'}")
    return content.index(item)


def count_of(walk: ScriptWalk, cell: Any, item: Any) -> Any:
    content = walk.store.content(cell)
    if _at_run_time(content, item):
        return as_number(_how_many(walk, _marks(walk, content, item, "count()")))
    return content.count(item)


def equal(walk: ScriptWalk, node: Any, one: Any, other: Any) -> Any:
    if isinstance(one, str) or isinstance(other, str):
        return one == other
    a, b = elements_of(walk, one, "comparing lists"), elements_of(walk, other, "comparing lists")
    if len(a) != len(b):
        return False
    result: Any = True
    for x, y in zip(a, b, strict=True):
        result = numbers.compute(walk.op, "aten::__and__", [result, equals(walk, x, y)])
    return result


def unequal(walk: ScriptWalk, node: Any, one: Any, other: Any) -> Any:
    return numbers.compute(walk.op, "aten::__not__", [equal(walk, node, one, other)])
