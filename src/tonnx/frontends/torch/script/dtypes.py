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
    from tonnx.frontends.torch.script.walk import Walk

_known: dict[Any, Any] = {}


def corrected(walk: Walk, operator: Operator, arguments: list[Any], results: list[Any]) -> list[Any]:
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


def asked(walk: Walk, operator: Operator, arguments: list[Any]) -> list[Any] | None:
    """The dtypes of an operator's results, from a run on tensors without data; None where that is not possible."""
    if operator.target is None or operator.target._schema.is_mutable:
        return None
    given = [_stand_in(walk, argument) for argument in arguments]
    key = (operator.title, tuple(_key(item) for item in given))
    if key not in _known:
        _known[key] = _run(operator, given)
    return _known[key]  # type: ignore[no-any-return]


def _run(operator: Operator, given: list[Any]) -> list[Any] | None:
    from tonnx.frontends.torch.script.decompose import by_name

    positional, named = by_name(operator.target, given)
    for i, argument in enumerate(operator.arguments[: len(given)]):
        if argument.is_dtype and isinstance(given[i], int):
            return None  # the rule was told
    try:
        with torch.no_grad():
            result = operator.target(*positional, **named)
    except Exception:  # invented sizes that do not fit, or an operator without a form for no data
        return None
    parts = result if isinstance(result, (tuple, list)) else (result,)
    return [DTYPES.get(part.dtype) if isinstance(part, torch.Tensor) else None for part in parts]


def _stand_in(walk: Walk, argument: Any) -> Any:
    if isinstance(argument, Tensor):
        value = walk.store.read(walk.op, argument)
        if value.shape is None or value.dtype not in TORCH_OF:
            return value
        sizes = [dim if isinstance(dim, int) else 3 for dim in value.shape]
        return torch.empty(sizes, dtype=TORCH_OF[value.dtype], device="meta")
    if isinstance(argument, List) and isinstance(argument.content, list):
        return [_stand_in(walk, item) for item in argument.content]
    if isinstance(argument, ir.Value):
        return {ir.DataType.BOOL: True, ir.DataType.INT64: 1}.get(argument.dtype, 1.0)  # type: ignore[arg-type]
    return argument


def _key(item: Any) -> Any:
    if isinstance(item, torch.Tensor):
        return item.dtype, tuple(item.shape)
    return tuple(map(_key, item)) if isinstance(item, list) else repr(item)
