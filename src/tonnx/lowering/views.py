"""The inverses of views: a tensor after a write through a view of it (slice → slice_scatter, transpose → transpose)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import onnx_ir as ir

from tonnx.errors import LoweringError
from tonnx.ir.build import Builder, Size
from tonnx.ir.infer import dims_of, same_dims
from tonnx.lowering import sizes
from tonnx.lowering.complex import is_complex, join, marked, part, unmarked
from tonnx.lowering.ops.complex import conj
from tonnx.lowering.ops.scatter import diagonal_scatter, select_scatter, slice_scatter
from tonnx.lowering.ops.shape import movedim

Inverse = Callable[[Builder, ir.Value, ir.Value, dict[str, Any]], ir.Value]


class NotInvertible(LoweringError):
    """A write through a view that cannot be turned into a write of its base."""


def view_inverse(op: Builder, name: str, base: ir.Value, value: ir.Value, arguments: dict[str, Any]) -> ir.Value:
    """``base`` after a write of ``value`` through the view ``name``; ``arguments`` are those of the view."""
    if is_complex(base) or is_complex(value):
        return _pairs_back(op, name, base, value, arguments)
    if name in INVERSES:
        return INVERSES[name](op, base, value, arguments)
    if name in RESHAPES and base.dtype == value.dtype:
        return op.reshape(value, op.sizes(base))
    if name in ("expand", "expand_as") and same_dims(dims_of(base), dims_of(value)):
        return value
    raise NotInvertible(f"a write through {name} cannot be expressed")


OF_PAIRS = frozenset("real imag view_as_real view_as_complex conj _conj".split())
"""Views that only complex numbers have."""


def _pairs_back(op: Builder, name: str, base: ir.Value, value: ir.Value, arguments: dict[str, Any]) -> ir.Value:
    """`view_inverse` where the base is complex, or the view."""
    if name in ("real", "imag"):
        return join(op, *((value, part(op, base, 1)) if name == "real" else (part(op, base, 0), value)))
    if name in RESHAPES or name in ("view_as_real", "view_as_complex"):  # also `view` as another dtype
        result = op.reshape(unmarked(op, value), op.sizes(base))
        return marked(op, result) if is_complex(base) else result
    if not (is_complex(base) and is_complex(value)):
        raise NotInvertible(f"a write through {name} of complex numbers cannot be expressed")
    if name in ("conj", "_conj"):
        return conj(op, value)
    value = conj(op, value) if name in ("adjoint", "mH") else value
    parts = [(part(op, base, i), part(op, value, i)) for i in (0, 1)]
    return join(op, *(view_inverse(op, name, one, other, arguments) for one, other in parts))


RESHAPES = frozenset(
    "view reshape _unsafe_view flatten unflatten squeeze unsqueeze reshape_as view_as _reshape_alias ravel".split()
)


def _permuted_back(op: Builder, base: ir.Value, value: ir.Value, a: dict[str, Any]) -> ir.Value:
    rank = op.rank(base)
    if "dims" in a:
        forward = [d % rank for d in a["dims"]]
    else:
        forward = list(range(rank))
        one, two = (a.get("dim0", 0) % rank, a.get("dim1", 1) % rank) if rank else (0, 0)
        forward[one], forward[two] = forward[two], forward[one]
    back = [forward.index(i) for i in range(rank)]
    return op.Transpose(value, perm=back)


def _moved_back(op: Builder, base: ir.Value, value: ir.Value, a: dict[str, Any]) -> ir.Value:
    return movedim(op, value, source=a["destination"], destination=a["source"])


def _narrow_back(op: Builder, base: ir.Value, value: ir.Value, a: dict[str, Any]) -> ir.Value:
    start, length = a["start"], a["length"]
    if isinstance(start, ir.Value):
        start = op.cast(op.reshape(start, [1]), ir.DataType.INT64)
    end = sizes.add(op, start, length)
    if isinstance(end, int) and isinstance(start, int) and start < 0 <= end:
        end = sizes.END
    return slice_scatter(op, base, src=value, dim=a["dim"], start=start, end=end, step=1)


def _only(arguments: dict[str, Any], names: str) -> dict[str, Any]:
    return {name: arguments[name] for name in names.split() if name in arguments}


def _split_back(op: Builder, base: ir.Value, value: ir.Value, a: dict[str, Any]) -> ir.Value:
    dim, index = a.get("dim", 0), a["index_of_output"]
    lengths: Any = a.get("split_sizes", a.get("split_size"))
    if "chunks" in a:  # ⌈size / chunks⌉ each
        lengths = sizes.divide(op, sizes.add(op, op.size(base, dim), a["chunks"] - 1), a["chunks"])
    if isinstance(lengths, list):
        start: Size = 0
        for length in lengths[:index]:
            start = sizes.add(op, start, length)
    else:
        start = op.product([lengths, index])
    end = sizes.add(op, start, op.size(value, dim))
    return slice_scatter(op, base, src=value, dim=dim, start=start, end=end, step=1)


def _last_two_back(op: Builder, base: ir.Value, value: ir.Value, a: dict[str, Any]) -> ir.Value:
    return _permuted_back(op, base, value, {"dim0": -1, "dim1": -2})


INVERSES: dict[str, Inverse] = {
    **dict.fromkeys(("transpose", "swapdims", "t", "permute"), _permuted_back),
    "swapaxes": lambda op, base, value, a: _permuted_back(op, base, value, {"dim0": a["axis0"], "dim1": a["axis1"]}),
    **dict.fromkeys(("adjoint", "mH", "mT"), _last_two_back),
    "numpy_T": lambda op, base, value, a: op.Transpose(value),
    **dict.fromkeys(("movedim", "moveaxis"), _moved_back),
    "select": lambda op, base, value, a: select_scatter(op, base, value, a["dim"], a["index"]),
    "slice": lambda op, base, value, a: slice_scatter(op, base, value, **_only(a, "dim start end step")),
    "narrow": _narrow_back,
    "diagonal": lambda op, base, value, a: diagonal_scatter(op, base, value, **_only(a, "offset dim1 dim2")),
    "unbind": lambda op, base, value, a: select_scatter(op, base, value, a.get("dim", 0), a["index_of_output"]),
    **dict.fromkeys(("split", "split_with_sizes", "chunk"), _split_back),
}
