"""What a program asks about its values: sizes, dtypes, None or not, where a tensor lives."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir
import torch

from tonnx.errors import LoweringError
from tonnx.frontends.torch.capture import script_graphs as graphs
from tonnx.frontends.torch.operators.bind import DTYPES, TORCH_OF
from tonnx.frontends.torch.script import numbers
from tonnx.frontends.torch.script.values import (
    Dict,
    List,
    Maybe,
    Object,
    Tensor,
    Vague,
)
from tonnx.ir import facts
from tonnx.ir.build import T
from tonnx.ir.infer import known_number
from tonnx.lowering.complex import is_complex
from tonnx.lowering.regions.forms import UNSET, is_number
from tonnx.lowering.regions.lists import DynamicList, as_number
from tonnx.lowering.values import is_float

if TYPE_CHECKING:
    from tonnx.frontends.torch.script.walk import ScriptWalk

# TorchScript counts its dtypes; the numbers are part of the archive format.
CODES = [
    torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.float32, torch.float64,
    torch.complex32, torch.complex64, torch.complex128, torch.bool, torch.qint8, torch.quint8, torch.qint32,
    torch.bfloat16,
]  # fmt: skip
_CODE_OF = {onnx: CODES.index(dtype) for onnx, dtype in TORCH_OF.items() if dtype in CODES}


def _value(walk: ScriptWalk, tensor: Tensor) -> ir.Value:
    return walk.store.read(walk.op, tensor)


def size(walk: ScriptWalk, node: Any, tensor: Tensor, dim: Any = None) -> Any:
    value = _value(walk, tensor)
    if dim is None:
        return List(_sizes(walk, value))
    dim = numbers.as_constant(dim)
    if isinstance(dim, ir.Value):
        picked = walk.op.Gather(walk.op.Shape(value), dim, axis=0)
        return as_number(picked)
    rank = walk.op.rank(value) - is_complex(value)
    if not -rank <= dim < rank:
        raise LoweringError(f"a tensor of rank {rank} has no axis {dim}")
    return walk.op.size(value, dim % rank)


def _sizes(walk: ScriptWalk, value: ir.Value) -> list[Any]:
    sizes = walk.op.sizes(value)
    return sizes[:-1] if is_complex(value) else sizes


def numel(walk: ScriptWalk, node: Any, tensor: Tensor) -> Any:
    count = walk.op.product(_sizes(walk, _value(walk, tensor)))
    return count if isinstance(count, int) or count in facts.DIM else as_number(count)


def dtype(walk: ScriptWalk, node: Any, tensor: Tensor) -> int:
    value = _value(walk, tensor)
    assert value.dtype is not None
    if is_complex(value):
        return CODES.index(TORCH_OF[value.dtype].to_complex())
    return _CODE_OF[value.dtype]


def is_floating(walk: ScriptWalk, node: Any, tensor: Tensor) -> bool:
    value = _value(walk, tensor)
    return is_float(value.dtype) and not is_complex(value)


def item(walk: ScriptWalk, node: Any, tensor: Any) -> Any:
    """A tensor with one element as a number."""
    if not isinstance(tensor, Tensor):
        return numbers.compute(walk.op, node.kind(), [tensor])
    value = _value(walk, tensor)
    dtypes = {"aten::Int": T.INT64, "aten::IntImplicit": T.INT64, "aten::Float": T.DOUBLE}
    dtypes |= {"aten::FloatImplicit": T.DOUBLE, "aten::Bool": T.BOOL}
    own = T.DOUBLE if is_float(value.dtype) else T.BOOL if value.dtype == T.BOOL else T.INT64
    to = dtypes.get(node.kind(), own)
    if (number := known_number(value)) is not None:
        return {T.INT64: int, T.DOUBLE: float, T.BOOL: bool}[to](number)
    op = walk.op
    before = number_in(value)
    if before is not None and before.dtype == to:
        return before
    if value.shape is None or list(value.shape.dims) != [1]:
        value = op.reshape(value, [1])
    if to == T.BOOL and value.dtype != T.BOOL:
        value = op.Not(op.Equal(value, 0))
    return as_number(op.cast(value, to))


def number_in(value: ir.Value) -> Any:
    """The number that a tensor was made of just now, as traces do with all sizes; None if it was not."""
    if value.const_value is not None and value.shape is not None and value.shape.rank() == 0:
        return value
    producer = value.producer()
    if producer is None or producer.op_type != "Squeeze" or producer.inputs[0] is None:
        return None
    before = producer.inputs[0]
    is_one = before.shape is not None and list(before.shape) == [1]
    return before if is_one and (before in facts.DIM or before in facts.NUMBER) else None


_ARITHMETIC = {"add": "aten::add", "sub": "aten::sub", "mul": "aten::mul", "floor_divide": "aten::floordiv"}


def arithmetic(walk: ScriptWalk, name: str, arguments: list[Any]) -> Tensor | None:
    """Arithmetic of a trace on sizes that it made tensors of: as sizes, so that they stay known. None if it is not."""
    kind = _ARITHMETIC.get(name)
    if kind is None or arguments[2:] not in ([], [1]):
        return None
    operands = []
    for argument in arguments[:2]:
        if isinstance(argument, Tensor):
            argument = number_in(_value(walk, argument))
        if isinstance(argument, ir.Value) and argument.dtype != T.INT64:
            return None
        if argument is None or isinstance(argument, (bool, float)):
            return None
        operands.append(argument)
    if not any(isinstance(operand, ir.Value) and operand.const_value is None for operand in operands):
        return None
    return num_to_tensor(walk, None, numbers.compute(walk.op, kind, operands))


def tolist(walk: ScriptWalk, node: Any, tensor: Any, *rest: Any) -> Any:
    value = _value(walk, tensor)
    if walk.op.rank(value) != 1:
        raise LoweringError(f"tolist() of a tensor of rank {walk.op.rank(value)}", hint="keep the tensor")
    own = T.DOUBLE if is_float(value.dtype) else T.BOOL if value.dtype == T.BOOL else T.INT64
    if value.const_value is not None:
        return List(value.const_value.numpy().tolist())
    return List(DynamicList(walk.op.cast(value, own), own, (), numbers=True))


def num_to_tensor(walk: ScriptWalk, node: Any, number: Any) -> Tensor:
    op = walk.op
    if isinstance(number, ir.Value):
        value = op.cast(number, T.FLOAT) if number.dtype == T.DOUBLE else number
        return Tensor(op.Squeeze(value, [0]))
    to = T.BOOL if isinstance(number, bool) else T.INT64 if isinstance(number, int) else T.FLOAT
    return Tensor(op.constant(number, to))


def tensor_of(walk: ScriptWalk, node: Any, data: Any, dtype: Any = None, *rest: Any) -> Tensor:
    """torch.tensor of numbers or nested lists of them; torch.as_tensor of a tensor."""
    op = walk.op
    target = None if dtype is None else DTYPES[CODES[dtype]]
    if isinstance(data, Tensor):
        value = _value(walk, data)
        return data if target in (None, value.dtype) else Tensor(op.cast(value, target))  # type: ignore[arg-type]
    value = _array(walk, data)
    natural = T.FLOAT if value.dtype == T.DOUBLE else value.dtype
    return Tensor(op.cast(value, target or natural))  # type: ignore[arg-type]


def _array(walk: ScriptWalk, data: Any) -> ir.Value:
    op = walk.op
    if isinstance(data, Tensor):
        return _value(walk, data)
    if isinstance(data, ir.Value):
        return op.Squeeze(data, [0])
    if is_number(data):
        kind = T.BOOL if isinstance(data, bool) else T.INT64 if isinstance(data, int) else T.DOUBLE
        return op.constant(data, kind)
    content = walk.store.content(data) if isinstance(data, List) else list(data)
    if isinstance(content, DynamicList):
        if not content.numbers:
            raise LoweringError("torch.tensor of a list of tensors", hint="use torch.stack")
        return content.value
    if not content:
        return op.constant(np.zeros([0]), T.DOUBLE)
    parts = [_array(walk, part) for part in content]
    kinds = [part.dtype for part in parts if part.dtype is not None]
    kind = T.DOUBLE if any(is_float(k) for k in kinds) else T.INT64 if T.INT64 in kinds else kinds[0]
    parts = [op.Unsqueeze(op.cast(part, kind), [0]) for part in parts]
    return parts[0] if len(parts) == 1 else op.Concat(*parts, axis=0)


# None or not


def is_(walk: ScriptWalk, node: Any, one: Any, other: Any) -> Any:
    for a, b in ((one, other), (other, one)):
        if b is None:
            if isinstance(a, Maybe):
                return as_number(walk.op.Not(a.present))
            return a is None
    if isinstance(one, (bool, int, str)) and isinstance(other, (bool, int, str)):
        return one == other
    return one is other


def cast(walk: ScriptWalk, node: Any, thing: Any, *rest: Any) -> Any:
    """After a check that an Optional is not None."""
    return thing.inner if isinstance(thing, Maybe) else thing


def is_instance(walk: ScriptWalk, node: Any, thing: Any) -> Any:
    """``isinstance``; an Optional is what it is at run time."""
    text = str(node).partition("types=[")[2].partition("]](")[0]
    types = split_at_commas(text)
    if isinstance(thing, Maybe):
        inside = is_instance_of(thing.inner, types)
        none = "NoneType" in types
        if inside and none:
            return True
        if inside:
            return as_number(walk.op.Identity(thing.present))
        return as_number(walk.op.Not(thing.present)) if none else False
    return is_instance_of(thing, types)


def split_at_commas(text: str) -> list[str]:
    """The parts of a list of types: between commas that no brackets enclose."""
    parts, depth, start = [], 0, 0
    for i, letter in enumerate(text):
        if letter in "([":
            depth += 1
        elif letter in ")]":
            depth -= 1
        elif letter == "," and depth == 0:
            parts.append(text[start:i].strip())
            start = i + 1
    return [*parts, text[start:].strip()]


def is_instance_of(thing: Any, types: list[str]) -> bool:
    for name in types:
        if thing is None and name == "NoneType":
            return True
        if isinstance(thing, Tensor) and name == "Tensor":
            return True
        if (isinstance(thing, List) and name == "list") or (isinstance(thing, tuple) and name == "tuple"):
            return True
        if isinstance(thing, List) and name.endswith("[]"):
            return _elements_are(thing, name.removesuffix("[]"))
        if isinstance(thing, tuple) and name.startswith(("(", "Tuple", "NamedTuple")):
            return True
        if isinstance(thing, Dict) and name.startswith("Dict"):
            return True
        if isinstance(thing, str) and name == "str":
            return True
        if is_number(thing) and name in _number_types(thing):
            return True
        if isinstance(thing, Object) and thing.handle is not None:
            return name == thing.handle._type().str()
    return False


def _number_types(thing: Any) -> tuple[str, ...]:
    if isinstance(thing, ir.Value):
        return {T.BOOL: ("bool",), T.INT64: ("int", "Scalar")}.get(thing.dtype, ("float", "Scalar"))  # type: ignore[arg-type]
    return (
        ("bool",) if isinstance(thing, bool) else ("int", "Scalar") if isinstance(thing, int) else ("float", "Scalar")
    )


def _elements_are(cell: List, name: str) -> bool:
    if isinstance(cell.content, DynamicList):
        return (name == "Tensor") == (not cell.content.numbers)
    return all(is_instance_of(element, [name]) for element in cell.content)


def _constant(answer: Any) -> Callable[..., Any]:
    def say(walk: ScriptWalk, node: Any, *arguments: Any) -> Any:
        return answer

    return say


def _grad(walk: ScriptWalk, node: Any, *arguments: Any) -> bool:
    """Whether gradients are recorded. They are not; but PyTorch's own layers take that for leave to call one opaque
    operator for attention, and what they do otherwise gives the same."""
    return graphs.is_of_torch(graphs.source_range(node))


def text(walk: ScriptWalk, node: Any, *parts: Any) -> str:
    """A text made of values; of what only the run knows, or PyTorch writes in its own way, no more than a message."""
    parts = tuple(map(numbers.as_constant, parts))
    plain = all(isinstance(part, (str, bool, int, type(None))) and not isinstance(part, Vague) for part in parts)
    form = {"aten::str": "{}", "aten::add": "{}{}"}.get(node.kind())
    inserted = parts if form is not None else parts[1:]
    try:
        if node.kind() == "aten::percentFormat":
            result = str(parts[0]) % inserted
        else:
            result = (form or str(parts[0])).format(*map(str, inserted))
    except (IndexError, KeyError, TypeError, ValueError):
        return Vague(parts[0])
    return result if plain else Vague(result)


def _all(names: str, handler: Callable[..., Any]) -> dict[str, Callable[..., Any]]:
    return dict.fromkeys(names.split(), handler)


_DEVICES = "cuda quantized sparse sparse_csr mkldnn meta mps xla xpu hpu ipu mtia vulkan nested leaf".split()

FACTS: dict[str, Callable[..., Any]] = {
    **_all("aten::size prim::shape aten::sym_size", size),
    **_all("aten::dim prim::ndim aten::ndimension", lambda walk, node, tensor: len(_sizes(walk, _value(walk, tensor)))),
    **_all("aten::numel aten::sym_numel", numel),
    "prim::dtype": dtype,
    "aten::is_floating_point": is_floating,
    **_all("aten::Int aten::Float aten::Bool aten::IntImplicit aten::FloatImplicit", item),
    **_all("aten::ScalarImplicit aten::item", item),
    "prim::tolist": tolist,
    "prim::NumToTensor": num_to_tensor,
    **_all("aten::scalar_tensor aten::tensor aten::as_tensor", tensor_of),
    "aten::__is__": is_,
    "aten::__isnot__": lambda walk, *asked: numbers.compute(walk.op, "aten::__not__", [is_(walk, *asked)]),
    **_all("prim::unchecked_cast prim::unchecked_unwrap_optional aten::_unwrap_optional", cast),
    "prim::data": lambda walk, node, tensor: tensor,  # the same memory, so that writes to it are seen
    "prim::isinstance": is_instance,
    "prim::EnumValue": lambda walk, node, thing: thing.value,
    "prim::EnumName": lambda walk, node, thing: thing.name,
    **_all("prim::device prim::type", _constant("cpu")),
    "prim::layout": _constant(0),
    **_all("aten::device aten::wait", lambda walk, node, thing, *rest: thing),
    **_all("prim::is_cpu aten::is_contiguous aten::is_scripting", _constant(True)),
    **{f"prim::is_{kind}": _constant(False) for kind in _DEVICES},
    **_all(
        "prim::requires_grad aten::requires_grad",
        lambda walk, node, thing, *rest: isinstance(thing, Tensor) and thing.root.value in facts.WEIGHT,
    ),
    "aten::is_complex": lambda walk, node, tensor: is_complex(_value(walk, tensor)),
    "aten::is_grad_enabled": _grad,
    **_all("aten::is_autocast_enabled aten::is_autocast_cpu_enabled", _constant(False)),
    **_all("aten::has_torch_function aten::_get_tracing_state", _constant(False)),
    "prim::Uninitialized": _constant(UNSET),
    **_all("prim::grad prim::Print aten::warn aten::set_grad_enabled prim::Enter prim::Exit", _constant(None)),
    **_all("aten::format aten::str aten::percentFormat", text),
}
