"""Lists: Python's own as long as their length is known, values that hold all elements when it is not."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import reduce
from typing import TYPE_CHECKING, Any

import onnx_ir as ir

from tonnx.errors import LoweringError
from tonnx.frontends.torch.script import numbers
from tonnx.frontends.torch.script.store import holds, link
from tonnx.frontends.torch.script.values import List, Tensor
from tonnx.ir.infer import joined_dims, same_dims
from tonnx.lowering.regions.forms import is_number, number_dtype
from tonnx.lowering.regions.lists import (
    DynamicList,
    as_number,
    gathered,
    number_value,
    shape_of,
)

if TYPE_CHECKING:
    from tonnx.frontends.torch.script.walk import ScriptWalk


def elements_of(walk: ScriptWalk, cell: Any, doing: str) -> list[Any]:
    """The elements of a list whose length is known."""
    content = walk.store.content(cell) if isinstance(cell, List) else list(cell)
    if isinstance(content, DynamicList):
        if content.count is not None:
            return [taken(cell, content, content.element(walk.op, i)) for i in range(content.count)]
        raise LoweringError(
            f"{doing} needs a list whose length is known",
            why="this list grows in a loop or a branch whose course is known only at run time",
            hint="make a tensor of it with torch.stack or torch.cat",
        )
    return content


def taken(cell: Any, grown: DynamicList, value: ir.Value) -> Any:
    """An element that was taken out of a list: who writes to it writes to the list as well."""
    if grown.numbers:
        return as_number(value)
    taken = Tensor(value)
    if isinstance(cell, List):
        link(taken, cell)
    return taken


def held(walk: ScriptWalk, grown: DynamicList, item: Any) -> Any:
    """An element as it is put into a list that grows."""
    if grown.numbers:
        if not is_number(item):
            raise LoweringError("a list of numbers gets something else")
        return item
    if not isinstance(item, Tensor):
        raise LoweringError("a list of tensors gets something else")
    return walk.store.read(walk.op, item)


def as_grown(walk: ScriptWalk, content: list[Any], like: DynamicList) -> DynamicList:
    """Known elements in the form of another list."""
    items = [held(walk, like, item) for item in content]
    alike = like.numbers or all(same_dims(shape_of(item), like.dims) for item in items)
    return gathered(walk.op, items, like.dtype, like.dims, like.stacked and alike, like.numbers)


def taking(walk: ScriptWalk, grown: DynamicList, item: Any) -> DynamicList:
    """A list that can take ``item``: a sequence, if the shape of the item is not that of the others."""
    if grown.numbers or not isinstance(item, Tensor):
        return grown
    value = walk.store.read(walk.op, item)
    if grown.stacked and joined_dims(shape_of(value), grown.dims) is None:
        raise LoweringError("a list holds tensors of different ranks, and its length is known only at run time")
    return grown.taking(walk.op, value)


def change(walk: ScriptWalk, cell: List, item: Any, put: Callable[[DynamicList, Any], DynamicList]) -> None:
    """A list that grows gets ``item``: ``put`` says where."""
    content = taking(walk, walk.store.content(cell), item)
    walk.store.set_content(cell, put(content, held(walk, content, item)))
    _keep(cell, [item])


def _keep(cell: List, items: Iterable[Any]) -> None:
    """A list that grows holds the values of tensors, not the tensors: a write to one is not seen in the other."""
    for item in items:
        if isinstance(cell.content, DynamicList) and isinstance(item, Tensor):
            holds(cell, item)


def list_unpack(walk: ScriptWalk, node: Any, cell: List) -> Any:
    count = node.outputsSize()
    content = walk.store.content(cell)
    if isinstance(content, DynamicList):
        items = [taken(cell, content, content.element(walk.op, i)) for i in range(count)]
    else:
        items = list(content)
    if len(items) != count:
        raise LoweringError(f"{len(items)} values are unpacked into {count} variables")
    return items[0] if count == 1 else items


def append(walk: ScriptWalk, node: Any, cell: List, item: Any) -> List:
    content = walk.store.content(cell)
    if isinstance(content, DynamicList):
        change(walk, cell, item, lambda items, value: items.append(walk.op, value))
    else:
        walk.store.set_content(cell, [*content, item])
    return cell


def extend(walk: ScriptWalk, node: Any, cell: List, more: Any) -> List:
    before, added = walk.store.content(cell), walk.store.content(more)
    walk.store.set_content(cell, _concatenated(walk, before, added))
    return _keeping(cell, before, added)


def _keeping(cell: List, *contents: Any) -> List:
    for content in contents:
        _keep(cell, () if isinstance(content, DynamicList) else content)
    return cell


def _concatenated(walk: ScriptWalk, a: Any, b: Any) -> Any:
    if isinstance(a, DynamicList) and isinstance(b, DynamicList):
        return a.extend(walk.op, b)
    if isinstance(a, DynamicList) and not isinstance(b, DynamicList):
        for item in b:
            a = taking(walk, a, item)
            a = a.append(walk.op, held(walk, a, item))
        return a
    if isinstance(b, DynamicList):
        return as_grown(walk, a, b).extend(walk.op, b)
    return [*a, *b]


def insert(walk: ScriptWalk, node: Any, cell: List, index: Any, item: Any) -> None:
    content = walk.store.content(cell)
    if isinstance(content, DynamicList):
        change(walk, cell, item, lambda items, value: items.insert(walk.op, index, value))
        return
    index = numbers.as_constant(index)
    if isinstance(index, ir.Value):
        walk.store.set_content(cell, stacked(walk, content))
        insert(walk, node, cell, index, item)
        return
    content = list(content)
    content.insert(index, item)
    walk.store.set_content(cell, content)


def fixed(index: Any, doing: str) -> int:
    index = numbers.as_constant(index)
    if isinstance(index, ir.Value):
        raise LoweringError(f"{doing} at a place of a list that is known only at run time")
    return int(index)


def reverse(walk: ScriptWalk, node: Any, cell: List) -> None:
    content = walk.store.content(cell)
    if isinstance(content, DynamicList):
        walk.store.set_content(cell, content.part(walk.op, None, None, -1))
    else:
        walk.store.set_content(cell, content[::-1])


def stacked(walk: ScriptWalk, content: list[Any]) -> DynamicList:
    """Known elements of one kind as one tensor, so that one of them can be picked at run time."""
    if content and all(map(is_number, content)):
        kind = number_dtype(content[0])
        if all(number_dtype(item) == kind for item in content):
            return gathered(walk.op, content, kind, (), stacked=True, numbers=True)
    if content and all(isinstance(item, Tensor) for item in content):
        values = [walk.store.read(walk.op, item) for item in content]
        dtype, shapes = values[0].dtype, [shape_of(value) for value in values]
        dims = reduce(joined_dims, shapes)
        if dims is not None and dtype is not None and all(value.dtype == dtype for value in values):
            alike = all(same_dims(shapes[0], shape) for shape in shapes[1:])
            return gathered(walk.op, values, dtype, dims, alike, numbers=False)
    raise LoweringError(
        "an element of a list is picked by an index that is known only at run time",
        why="the elements are not tensors of one dtype, nor numbers of one type",
    )


def equals(walk: ScriptWalk, a: Any, b: Any) -> Any:
    if is_number(a) and is_number(b):
        return numbers.compute(walk.op, "aten::eq", [a, b])
    return type(a) is type(b) and a == b


def any_true(walk: ScriptWalk, conditions: list[Any]) -> Any:
    result: Any = False
    for condition in conditions:
        result = numbers.compute(walk.op, "aten::__or__", [result, condition])
    return result


def add(walk: ScriptWalk, node: Any, one: Any, other: Any) -> Any:
    if isinstance(one, str):
        return one + other
    a, b = walk.store.content(one), walk.store.content(other)
    return _keeping(List(_concatenated(walk, a, b)), a, b)


def multiply(walk: ScriptWalk, node: Any, one: Any, other: Any) -> Any:
    cell, count = (one, other) if isinstance(one, (List, str)) else (other, one)
    count = numbers.as_constant(count)
    if isinstance(cell, str):
        return cell * count
    content = elements_of(walk, cell, "repeating a list")
    if not isinstance(count, ir.Value):
        return List(content * count)
    if len(content) != 1 or not is_number(content[0]):
        raise LoweringError("a list is repeated a number of times that is known only at run time")
    dtype = number_dtype(content[0])
    value = walk.op.Expand(number_value(walk.op, content[0], dtype), count)
    return List(DynamicList(value, dtype, (), numbers=True))


def rangelist(walk: ScriptWalk, node: Any, count: Any) -> List:
    count = numbers.as_constant(count)
    if isinstance(count, ir.Value):
        value = walk.op.Range(0, walk.op.scalar(count), 1)
        return List(DynamicList(value, ir.DataType.INT64, (), numbers=True))
    return List(range(count))
