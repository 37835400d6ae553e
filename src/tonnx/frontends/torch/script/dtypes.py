"""The dtypes of results. TorchScript does not say them; rules leave the last cast to what PyTorch knows.

Most results have the dtype that their tensors promote to. Where one has another, PyTorch is asked: the operator runs on
tensors without data.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import onnx_ir as ir
import torch

from tonnx.frontends.torch.operators.bind import DTYPES, TORCH_OF
from tonnx.frontends.torch.script.values import List, Tensor
from tonnx.lowering.complex import is_complex
from tonnx.lowering.values import result_type

if TYPE_CHECKING:
    from tonnx.frontends.torch.script.operators import Operator
    from tonnx.frontends.torch.script.walk import ScriptWalk

_INVENTED = (3, 1)
"""What stands for a size that only the run knows; 1 fits wherever sizes have to agree."""

_known: dict[Any, Any] = {}


def corrected(walk: ScriptWalk, operator: Operator, arguments: list[Any], results: list[Any]) -> list[Any]:
    """The results in the dtypes that PyTorch gives them."""
    if not any(isinstance(result, ir.Value) for result in results):
        return results
    tensors = [walk.store.read(walk.op, a) for a in arguments if isinstance(a, Tensor)]
    if not tensors or any(value.dtype is None or is_complex(value) for value in tensors):
        return results
    if any(is_complex(result) for result in results):
        return results
    common = result_type(*tensors)
    if all(not isinstance(r, ir.Value) or r.dtype == common for r in results):
        return results
    wanted = asked(walk, operator, arguments)
    if wanted is None or len(wanted) != len(results):
        return results
    return [
        walk.op.cast(result, dtype) if isinstance(result, ir.Value) and dtype is not None else result
        for result, dtype in zip(results, wanted, strict=True)
    ]


def asked(walk: ScriptWalk, operator: Operator, arguments: list[Any]) -> list[Any] | None:
    """The dtypes of an operator's results, from a run on tensors without data; None where that is not possible."""
    if operator.target is None or operator.target._schema.is_mutable:
        return None
    for argument, actual in zip(operator.arguments, arguments, strict=False):
        if argument.is_dtype and isinstance(actual, int):
            return None  # the rule was told
    reason = ""
    for size in _INVENTED:
        stand_ins = [_stand_in(walk, argument, size) for argument in arguments]
        key = (operator.title, tuple(_key(item) for item in stand_ins))
        if key not in _known:
            _known[key] = _run(operator, stand_ins)
        if not isinstance(_known[key], str):
            return _known[key]  # type: ignore[no-any-return]
        reason = reason or _known[key]
    walk.note_once(f"the dtype of {operator.title} is what its rule gives: PyTorch does not tell it ({reason})")
    return None


def _run(operator: Operator, stand_ins: list[Any]) -> list[Any] | str:
    """The dtypes, or why PyTorch does not tell them."""
    from tonnx.frontends.torch.script.decompose import by_name

    positional, named = by_name(operator.target, stand_ins)
    try:
        with torch.no_grad():
            result = operator.target(*positional, **named)
    except Exception as error:  # noqa: BLE001 (invented sizes that do not fit, or no form for no data; told in a note)
        return f"{type(error).__name__}: {' '.join(str(error).split())}"[:160]
    parts = result if isinstance(result, (tuple, list)) else (result,)
    return [DTYPES.get(part.dtype) if isinstance(part, torch.Tensor) else None for part in parts]


def _stand_in(walk: ScriptWalk, argument: Any, size: int) -> Any:
    if isinstance(argument, Tensor):
        value = walk.store.read(walk.op, argument)
        if value.shape is None or value.dtype not in TORCH_OF:
            return value
        sizes = [dim if isinstance(dim, int) else size for dim in value.shape]
        return torch.empty(sizes, dtype=TORCH_OF[value.dtype], device="meta")
    if isinstance(argument, List) and isinstance(argument.content, list):
        return [_stand_in(walk, item, size) for item in argument.content]
    if isinstance(argument, ir.Value):
        return {ir.DataType.BOOL: True, ir.DataType.INT64: 1}.get(argument.dtype, 1.0)  # type: ignore[arg-type]
    return argument


def _key(item: Any) -> Any:
    if isinstance(item, torch.Tensor):
        return item.dtype, tuple(item.shape)
    return tuple(map(_key, item)) if isinstance(item, list) else repr(item)
