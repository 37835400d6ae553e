"""Complex numbers, of which ONNX computes none: pairs of reals on a last axis of size 2, as its DFT has them.

A value of pairs is marked. An operator that takes or gives complex numbers has the rule ``name@complex``; where real
and imaginary part go the same way (views, sums, choices) the rule for reals serves, once for each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import onnx_ir as ir

from tonnx.errors import UnsupportedArgument
from tonnx.ir import facts
from tonnx.ir.build import Builder, T

REAL_OF = {T.COMPLEX64: T.FLOAT, T.COMPLEX128: T.DOUBLE}
_COMPLEX_OF = {real: number for number, real in REAL_OF.items()}

COMPONENTWISE = frozenset(
    """view reshape _unsafe_view flatten unflatten squeeze unsqueeze permute transpose t mT movedim moveaxis
    swapaxes swapdims numpy_T select slice narrow split split_with_sizes chunk unbind tensor_split hsplit vsplit dsplit
    unsafe_split unsafe_chunk expand expand_as broadcast_to repeat repeat_interleave tile cat concat concatenate stack
    hstack vstack dstack clone detach alias contiguous lift_fresh lift_fresh_copy detach_ index index_select gather take
    take_along_dim flip fliplr flipud roll rot90 diagonal diag diag_embed diagonal_copy tril triu unfold sum mean cumsum
    nansum where masked_fill masked_scatter index_put _unsafe_index_put scatter scatter_add index_add index_copy
    index_fill slice_scatter select_scatter diagonal_scatter pad constant_pad_nd reflection_pad1d reflection_pad2d
    replication_pad1d replication_pad2d zeros full empty zeros_like full_like empty_like new_zeros new_full new_empty
    fill zero view_as reshape_as _reshape_alias unsqueeze_copy expand_copy view_copy
    permute_copy meshgrid atleast_1d atleast_2d atleast_3d ravel block_diag trace neg positive as_strided negative
    resolve_conj resolve_neg im2col col2im squeeze_copy fft_fftshift fft_ifftshift column_stack scalar_tensor""".split()
)
"""Real and imaginary part go the same way, each for itself."""

REAL_ONLY = frozenset("ones ones_like new_ones eye".split())
"""What these make has no imaginary part."""

_FILLED = frozenset("value fill_value src source values s".split())
"""Arguments that hold numbers to fill in: of a real one, the imaginary part is 0."""


def is_complex(x: Any) -> bool:
    return isinstance(x, ir.Value) and x in facts.COMPLEX


def any_complex(arguments: Any) -> bool:
    if isinstance(arguments, Mapping):
        return any(any_complex(item) for item in arguments.values())
    if isinstance(arguments, (list, tuple)):
        return any(any_complex(item) for item in arguments)
    return is_complex(arguments) or isinstance(arguments, complex) or arguments in REAL_OF


def dtype_of(x: ir.Value) -> ir.DataType | None:
    """The element type that a value has for the model."""
    return _COMPLEX_OF[x.dtype] if is_complex(x) else x.dtype  # type: ignore[index]


def cast(op: Builder, x: ir.Value, dtype: ir.DataType | None) -> ir.Value:
    """A value with another element type for the model: of complex numbers, reals keep the real part."""
    if dtype in REAL_OF:
        return marked(op, op.cast(as_pairs(op, x), REAL_OF[dtype]))
    return op.cast(part(op, x, 0) if is_complex(x) else x, dtype)


def marked(op: Builder, x: ir.Value) -> ir.Value:
    """A value as pairs. Constants and inputs may be used elsewhere as what they are: those get another name."""
    if not is_complex(x):
        x = op.Identity(x) if x.producer() is None else x
        if x.const_value is not None and x.producer() is None:  # folded again: a constant of its own
            x = op.initializer("pairs", x.const_value)
        facts.COMPLEX.add(x)
    return x


def unmarked(op: Builder, x: ir.Value) -> ir.Value:
    """The same numbers as reals with a last axis of size 2."""
    if not is_complex(x):
        return x
    (result,) = op.node("Identity", [x], [], [(x.dtype, None if x.shape is None else x.shape.dims)])
    return result


def split(op: Builder, x: ir.Value) -> tuple[ir.Value, ir.Value]:
    """Real and imaginary part, each with a last axis of size 1."""
    return op.Split(x, [1, 1], axis=-1, _outputs=2)  # type: ignore[no-any-return]


def part(op: Builder, x: ir.Value, which: int) -> ir.Value:
    return op.Gather(x, which, axis=op.rank(x) - 1)


def join(op: Builder, real: ir.Value, imaginary: ir.Value) -> ir.Value:
    return marked(op, op.Concat(op.Unsqueeze(real, [-1]), op.Unsqueeze(imaginary, [-1]), axis=-1))


def componentwise(op: Builder, function: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
    """What a rule for reals gives for each part, as pairs."""
    if arguments.get("reduce") in ("multiply", "prod"):
        raise UnsupportedArgument("products of complex numbers that meet in one place are not supported")
    filled = () if "destination" in arguments else _FILLED  # the source of movedim is an axis
    results = []
    for which in (0, 1):
        component = {name: _component(op, item, which, name in filled) for name, item in arguments.items()}
        if "condition" in arguments:  # where(condition, x, other): both are numbers
            for name in ("self", "input", "other", "x"):
                if name in component and not is_complex(arguments[name]):
                    component[name] = _component(op, arguments[name], which, True)
        results.append(function(op, **component))
    if isinstance(results[0], (list, tuple)):
        return [join(op, *pair) for pair in zip(*results, strict=True)]
    return join(op, *results)


def _component(op: Builder, item: Any, which: int, filled: bool) -> Any:
    if isinstance(item, (list, tuple)):
        mixed = filled or any(map(is_complex, item))  # tensors to be joined, of which some are real
        return [_component(op, one, which, mixed) for one in item]
    if is_complex(item):
        return part(op, item, which)
    if isinstance(item, complex):
        return item.imag if which else item.real
    if isinstance(item, ir.DataType):
        return REAL_OF.get(item, item)
    if filled and which and isinstance(item, ir.Value):
        return op.Expand(op.constant(0, item.dtype), op.vector(op.sizes(item)))
    if filled and which and isinstance(item, (int, float)):
        return 0.0
    return item


def with_pairs(op: Builder, tensors: Sequence[Any]) -> list[Any]:
    """Tensors of which some are complex: the others become so."""
    return [x if is_complex(x) or not isinstance(x, ir.Value) else as_pairs(op, x) for x in tensors]


def as_pairs(op: Builder, x: ir.Value) -> ir.Value:
    if is_complex(x):
        return x
    x = x if x.dtype in (T.FLOAT, T.DOUBLE, T.FLOAT16) else op.cast(x, T.FLOAT)
    return marked(op, beside_zero(op, op.Unsqueeze(x, [-1])))


def beside_zero(op: Builder, x: ir.Value, which: int = 0) -> ir.Value:
    """Reals with a last axis of size 1 as that part of pairs. Padded, not multiplied: infinity times 0 is NaN."""
    around = [0] * (op.rank(x) - 1)  # for all axes: ONNX Runtime moves Transposes through Pad, and forgets its ``axes``
    return op.Pad(x, [*around, which, *around, 1 - which])


def real_alone(op: Builder, function: Callable[..., Any], arguments: Mapping[str, Any]) -> ir.Value:
    """What a rule for reals makes, as pairs without imaginary part."""
    return as_pairs(op, function(op, **{name: _component(op, item, 0, False) for name, item in arguments.items()}))


# Views that need not take pairs apart


def directly(op: Builder, name: str, function: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
    """A view of pairs as one of reals whose axes are counted from the front; None if it is not such a one."""
    x = arguments.get("x")
    if not isinstance(x, ir.Value) or any_complex([v for key, v in arguments.items() if key != "x"]):
        return None
    rank = op.rank(x) - 1
    kwargs = dict(arguments)
    if name in ("view", "reshape", "_unsafe_view") and "size" in kwargs:
        kwargs["size"] = [*kwargs["size"], 2]
    elif name == "expand":
        kwargs["size"] = [*kwargs["size"], -1]
    elif name in ("select", "slice", "squeeze", "flip", "roll") and _axes(kwargs) and rank:
        kwargs |= {key: _counted(kwargs[key], rank) for key in ("dim", "dims") if key in kwargs}
    elif name == "unsqueeze":
        kwargs["dim"] = kwargs["dim"] % (rank + 1)
    elif name == "transpose" and "dim0" in kwargs:
        kwargs |= {key: kwargs[key] % rank for key in ("dim0", "dim1")}
    elif name == "permute":
        kwargs["dims"] = [*(d % rank for d in kwargs["dims"]), rank]
    elif name not in ("clone", "detach", "alias", "contiguous", "lift_fresh_copy", "resolve_conj", "resolve_neg"):
        return None
    result = function(op, **kwargs)
    return marked(op, result if result is not x else op.Identity(x)) if isinstance(result, ir.Value) else None


def _axes(arguments: Mapping[str, Any]) -> bool:
    axes = arguments.get("dim", arguments.get("dims"))
    return isinstance(axes, int) or bool(axes)


def _counted(dims: Any, rank: int) -> Any:
    return dims % rank if isinstance(dims, int) else [d % rank for d in dims]
