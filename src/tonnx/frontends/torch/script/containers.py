"""Lists, tuples, dicts and strings."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import onnx_ir as ir

from tonnx.errors import LoweringError
from tonnx.frontends.torch.script import lists, numbers, queries, reductions
from tonnx.frontends.torch.script.values import Dict, Fields, List, Tensor
from tonnx.lowering.regions.lists import DynamicList, as_number, number_value

if TYPE_CHECKING:
    from tonnx.frontends.torch.script.walk import ScriptWalk

Handler = Callable[..., Any]


def pop(walk: ScriptWalk, node: Any, cell: Any, index: Any = -1, *default: Any) -> Any:
    if isinstance(cell, Dict):
        items = dict(walk.store.content(cell))
        taken = items.pop(index, *default)
        walk.store.set_content(cell, items)
        return taken
    content = walk.store.content(cell)
    if isinstance(content, DynamicList):
        value, rest = content.pop(walk.op, index)
        walk.store.set_content(cell, rest)
        return lists.taken(cell, content, value)
    index = numbers.as_constant(index)
    if isinstance(index, ir.Value):
        walk.store.set_content(cell, lists.stacked(walk, content))
        return pop(walk, node, cell, index)
    content = list(content)
    taken = content.pop(index)
    walk.store.set_content(cell, content)
    return taken


def count(walk: ScriptWalk, node: Any, cell: Any, item: Any, *limits: Any) -> Any:
    if isinstance(cell, str):
        return on_string(node.kind(), [cell, item, *limits])
    return reductions.count_of(walk, cell, item)


def clear(walk: ScriptWalk, node: Any, cell: Any) -> None:
    if isinstance(cell, Dict):
        walk.store.set_content(cell, {})
    else:
        walk.store.set_content(cell, [])


def set_item(walk: ScriptWalk, node: Any, cell: Any, index: Any, item: Any) -> Any:
    if isinstance(cell, Dict):
        walk.store.set_content(cell, {**walk.store.content(cell), _key(walk, index): item})
        return cell
    content = walk.store.content(cell)
    index = numbers.as_constant(index)
    if not isinstance(content, DynamicList) and isinstance(index, ir.Value):
        content = lists.stacked(walk, content)
        walk.store.set_content(cell, content)
    if isinstance(content, DynamicList):
        lists.change(walk, cell, item, lambda items, value: items.replace(walk.op, index, value))
    else:
        content = list(content)
        content[index] = item
        walk.store.set_content(cell, content)
    return cell


def getitem(walk: ScriptWalk, node: Any, cell: Any, index: Any) -> Any:
    if isinstance(cell, Dict):
        items, key = walk.store.content(cell), _key(walk, index)
        if key not in items:
            raise LoweringError(f"a dict has no key {key!r}", why=f"it has {', '.join(map(repr, items)) or 'none'}")
        return items[key]
    index = numbers.as_constant(index)
    if isinstance(cell, str):
        return cell[index]
    content = walk.store.content(cell) if isinstance(cell, List) else list(cell)
    if not isinstance(content, DynamicList):
        if isinstance(index, int):
            if not -len(content) <= index < len(content):
                raise LoweringError(f"a list of {len(content)} elements has none at {index}")
            return content[index]
        content = lists.stacked(walk, content)
    return lists.taken(cell, content, content.element(walk.op, index))


def _key(walk: ScriptWalk, key: Any) -> Any:
    key = numbers.as_constant(key)
    if isinstance(key, (ir.Value, Tensor)):
        raise LoweringError("a dict is read with a key that is known only at run time")
    return key


def slice_(walk: ScriptWalk, node: Any, cell: Any, start: Any, end: Any, step: Any = 1) -> Any:
    start, end, step = map(numbers.as_constant, (start, end, step))
    if isinstance(cell, str):
        return cell[start:end:step]
    content = walk.store.content(cell)
    if isinstance(content, DynamicList) or isinstance(start, ir.Value) or isinstance(end, ir.Value):
        if not isinstance(content, DynamicList):
            content = lists.stacked(walk, content)
        return List(content.part(walk.op, start, end, step))
    return List(content[start:end:step])


def length(walk: ScriptWalk, node: Any, cell: Any) -> Any:
    if isinstance(cell, Tensor):
        return walk.op.size(walk.store.read(walk.op, cell), 0)
    if isinstance(cell, Dict):
        return len(walk.store.content(cell))
    if isinstance(cell, List):
        content = walk.store.content(cell)
        return content.length(walk.op) if isinstance(content, DynamicList) else len(content)
    return len(cell)


def copy(walk: ScriptWalk, node: Any, cell: Any) -> Any:
    if isinstance(cell, Dict):
        return Dict(dict(walk.store.content(cell)))
    if isinstance(cell, str):
        return List(cell)
    content = walk.store.content(cell) if isinstance(cell, List) else list(cell)
    return List(content)


def contains(walk: ScriptWalk, node: Any, cell: Any, item: Any) -> Any:
    if isinstance(cell, Dict):
        return _key(walk, item) in walk.store.content(cell)
    if isinstance(cell, str):
        return item in cell
    content = walk.store.content(cell)
    if isinstance(content, DynamicList):
        if not content.numbers:
            raise LoweringError("`in` on a list of tensors whose length is known only at run time")
        equal = walk.op.Equal(content.value, number_value(walk.op, item, content.dtype))
        counted = walk.op.ReduceSum(walk.op.cast(equal, ir.DataType.INT64), [0], keepdims=1)
        return as_number(walk.op.Greater(counted, 0))
    return lists.any_true(walk, [lists.equals(walk, element, item) for element in content])


def tuple_construct(walk: ScriptWalk, node: Any, *items: Any) -> tuple[Any, ...]:
    names = _field_names(node.output().type().str())
    return Fields.of(items, names) if names else tuple(items)


def _field_names(text: str) -> list[str]:
    """``NamedTuple(a : Tensor, b : (int, int))`` has the fields a and b."""
    if not text.startswith("NamedTuple("):
        return []
    fields = queries.split_at_commas(text.removeprefix("NamedTuple(")[:-1])
    return [field.partition(":")[0].strip() for field in fields]


def tuple_unpack(walk: ScriptWalk, node: Any, items: Any) -> Any:
    items = list(items)
    return items[0] if node.outputsSize() == 1 else items


def dict_construct(walk: ScriptWalk, node: Any, *items: Any) -> Dict:
    return Dict({_key(walk, key): value for key, value in zip(items[::2], items[1::2], strict=True)})


def make_dict(walk: ScriptWalk, node: Any, *items: Any) -> Dict:
    if not items:
        return Dict({})
    if isinstance(items[0], Dict):
        return Dict(dict(walk.store.content(items[0])))
    return Dict({_key(walk, key): value for key, value in lists.elements_of(walk, items[0], "dict()")})


def set_default(walk: ScriptWalk, node: Any, cell: Dict, key: Any, default: Any) -> Any:
    if _key(walk, key) not in walk.store.content(cell):
        set_item(walk, node, cell, key, default)
    return walk.store.content(cell)[_key(walk, key)]


def update(walk: ScriptWalk, node: Any, cell: Dict, other: Dict) -> None:
    walk.store.set_content(cell, {**walk.store.content(cell), **walk.store.content(other)})


ON_STRINGS = frozenset(
    f"aten::{name}"
    for name in (
        "capitalize count endswith expandtabs find isalnum isalpha isdecimal isdigit isidentifier islower isnumeric "
        "isprintable isspace istitle isupper ljust lower lstrip partition replace rfind rjust rpartition rsplit rstrip "
        "split splitlines startswith strip swapcase title upper zfill center"
    ).split()
)
"""Methods of strings, which are always known."""


_WITHIN = frozenset(("aten::startswith", "aten::endswith", "aten::find", "aten::rfind", "aten::count"))


def on_string(kind: str, arguments: list[Any]) -> Any:
    text, *rest = map(numbers.as_constant, arguments)
    while rest and rest[-1] is None:
        rest.pop()
    if any(isinstance(argument, (ir.Value, Tensor)) for argument in rest):
        raise LoweringError(f"{kind.removeprefix('aten::')} of a string with a number that only the run knows")
    if kind in _WITHIN and len(rest) == 3 and rest[2] < 0:  # TorchScript counts an end from behind the last character
        rest[2] += len(text) + 1
    result = getattr(str, kind.removeprefix("aten::"))(text, *rest)
    return List(result) if isinstance(result, list) else result


ALWAYS: dict[str, Handler] = {
    "prim::ListConstruct": lambda walk, node, *items: List(items),
    "prim::ListUnpack": lists.list_unpack,
    "prim::TupleConstruct": tuple_construct,
    "prim::TupleUnpack": tuple_unpack,
    "prim::TupleIndex": lambda walk, node, items, index: items[lists.fixed(index, "picking")],
    "prim::TupleSlice": lambda walk, node, items: tuple(items[node.i("beg") : node.i("end")]),
    "prim::DictConstruct": dict_construct,
    "prim::rangelist": lists.rangelist,
    "aten::dict": make_dict,
    "aten::len": length,
    "aten::__getitem__": getitem,
    "aten::_set_item": set_item,
    "aten::__contains__": contains,
}
"""Operators that are about containers, whatever they are given."""

ON_CONTAINERS: dict[str, Handler] = {
    "aten::append": lists.append,
    "aten::extend": lists.extend,
    "aten::add_": lists.extend,
    "aten::insert": lists.insert,
    "aten::pop": pop,
    "aten::Delete": pop,
    "aten::clear": clear,
    "aten::reverse": lists.reverse,
    "aten::slice": slice_,
    "aten::list": copy,
    "aten::copy": copy,
    "aten::eq": reductions.equal,
    "aten::ne": reductions.unequal,
    "aten::add": lists.add,
    "aten::mul": lists.multiply,
    "prim::max": reductions.extreme,
    "prim::min": reductions.extreme,
    "aten::sum": reductions.total,
    "aten::any": reductions.any_of,
    "aten::all": reductions.all_of,
    "aten::sort": reductions.sort,
    "aten::sorted": reductions.sort,
    "aten::index": reductions.index_of,
    "aten::count": count,
    "aten::remove": lambda walk, node, cell, item: pop(walk, node, cell, reductions.index_of(walk, node, cell, item)),
    "aten::keys": lambda walk, node, cell: List(walk.store.content(cell)),
    "aten::values": lambda walk, node, cell: List(walk.store.content(cell).values()),
    "aten::items": lambda walk, node, cell: List(walk.store.content(cell).items()),
    "aten::get": lambda walk, node, cell, key, *default: walk.store.content(cell).get(_key(walk, key), *default),
    "aten::setdefault": set_default,
    "aten::update": update,
}
"""Operators that mean something else if their first argument is a list, a dict or a string."""
