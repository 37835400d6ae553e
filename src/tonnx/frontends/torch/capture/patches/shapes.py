"""The shapes of operators that PyTorch finds only by computing, which it cannot do while a model is captured.

The operator stays in the graph as it is, and its rule lowers it.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import sympy
import torch
from torch._C import DispatchKey
from torch._decomp import global_decomposition_table
from torch._prims_common import infer_size, make_contiguous_strides_for
from torch._subclasses.fake_impls import op_implementations_dict
from torch._subclasses.fake_tensor import FakeTensor

from tonnx.frontends.patching import How, Patch
from tonnx.frontends.torch.capture.explain import asking_frame
from tonnx.frontends.torch.capture.patches.size_questions import varies

_REASON = "PyTorch finds the shape of the result by computing it"


def _float(*tensors: torch.Tensor | None) -> torch.dtype:
    dtype = torch.bool
    for tensor in tensors:
        dtype = dtype if tensor is None else torch.promote_types(dtype, tensor.dtype)
    return dtype if dtype.is_floating_point or dtype.is_complex else torch.get_default_dtype()


def _cov(x: torch.Tensor, *, correction: int = 1, fweights: Any = None, aweights: Any = None) -> torch.Tensor:
    size = [] if x.dim() < 2 or x.shape[0] == 1 else [x.shape[0]] * 2
    return x.new_empty(size, dtype=_float(x, fweights, aweights))


def _cdist(x1: torch.Tensor, x2: torch.Tensor, p: float = 2.0, compute_mode: int | None = None) -> torch.Tensor:
    lead = torch.broadcast_shapes(x1.shape[:-2], x2.shape[:-2])
    return x1.new_empty([*lead, x1.shape[-2], x2.shape[-2]], dtype=torch.promote_types(x1.dtype, x2.dtype))


def _kron(x: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    rank = max(x.dim(), other.dim())
    before, after = ([1] * (rank - tensor.dim()) + list(tensor.shape) for tensor in (x, other))
    sizes = [a * b for a, b in zip(before, after, strict=True)]
    return x.new_empty(sizes, dtype=torch.promote_types(x.dtype, other.dtype))


def _take_along_dim(x: torch.Tensor, indices: torch.Tensor, dim: int | None = None) -> torch.Tensor:
    if dim is None:
        return x.new_empty([indices.numel()])
    before, after = list(x.shape), list(indices.shape)
    before[dim] = after[dim]
    return x.new_empty(torch.broadcast_shapes(before, after))


def _combinations(x: torch.Tensor, r: int = 2, with_replacement: bool = False) -> torch.Tensor:
    if r == 0:
        return x.new_empty([0])
    last = x.shape[0] + r - 1 if with_replacement else x.shape[0]
    return x.new_empty([math.prod(last - i for i in range(r)) // math.factorial(r), r])


def _one_hot(x: torch.Tensor, num_classes: int = -1) -> torch.Tensor:
    """As many classes as the largest number says, unless it was said."""
    count: Any = num_classes
    if num_classes == -1:
        count = x.fake_mode.shape_env.create_unbacked_symint()  # type: ignore[attr-defined]
        torch._check(count >= 0)
    return x.new_empty([*x.shape, count], dtype=torch.int64)


def _ctc_loss(
    log_probs: torch.Tensor,
    targets: torch.Tensor,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: int = 1,
    zero_infinity: bool = False,
) -> torch.Tensor:
    return log_probs.new_empty([log_probs.shape[1]] if reduction == 0 and log_probs.dim() == 3 else [])


def _histogram(x: torch.Tensor, bins: Any = 100, **options: Any) -> tuple[torch.Tensor, torch.Tensor]:
    hist, edges = _histogramdd(x[..., None], [bins])
    return hist, edges[0]


def _histogramdd(x: torch.Tensor, bins: Any, *rest: Any, **options: Any) -> tuple[torch.Tensor, list[torch.Tensor]]:
    each = [bins] * x.shape[-1] if isinstance(bins, int) else bins
    counts = [one.shape[0] - 1 if isinstance(one, torch.Tensor) else one for one in each]
    return x.new_empty(counts), [x.new_empty([count + 1]) for count in counts]


def _lstsq(
    x: torch.Tensor, b: torch.Tensor, rcond: float | None = None, *, driver: str | None = None
) -> tuple[torch.Tensor, ...]:
    """The solution, the residuals, the rank and the singular values; a driver does not give all of them."""
    driver = driver or "gelsy"
    vector = b.dim() == 1 or (b.dim() == x.dim() - 1 and b.shape == x.shape[:-1])
    lead = torch.broadcast_shapes(x.shape[:-2], b.shape[: -1 if vector else -2])
    width = [] if vector else [b.shape[-1]]
    residuals = [*lead, *width] if driver != "gelsy" and x.shape[-2] > x.shape[-1] else [0]
    rank = [0] if driver == "gels" else x.shape[:-2]
    values = [*x.shape[:-2], torch.sym_min(*x.shape[-2:])] if driver in ("gelsd", "gelss") else [0]
    solution = b.new_empty([*lead, x.shape[-1], *width])
    return solution, b.new_empty(residuals), b.new_empty(rank, dtype=torch.int64), b.new_empty(values)


_COMPOSITE: dict[Any, Callable[..., Any]] = {
    torch.ops.aten.cov.default: _cov,
    torch.ops.aten.corrcoef.default: _cov,
    torch.ops.aten.cdist.default: _cdist,
    torch.ops.aten.combinations.default: _combinations,
    torch.ops.aten.kron.default: _kron,
    torch.ops.aten.narrow.Tensor: lambda x, dim, start, length: x.narrow(dim, 0, length),  # wherever it begins
    torch.ops.aten.one_hot.default: _one_hot,
    torch.ops.aten.take_along_dim.default: _take_along_dim,
    torch.ops.aten.ctc_loss.IntList: _ctc_loss,
    torch.ops.aten.ctc_loss.Tensor: _ctc_loss,
    torch.ops.aten.histogramdd.default: _histogramdd,
    torch.ops.aten.histogramdd.int_bins: _histogramdd,
    torch.ops.aten.histogramdd.TensorList_bins: _histogramdd,
}
"""Operators that PyTorch composes of others, of which one reads the numbers in a tensor, or compares a size."""

_SINGLE: dict[Any, Callable[..., Any]] = {
    torch.ops.aten.histogram.bin_ct: _histogram,
    torch.ops.aten.histogram.bins_tensor: _histogram,
    torch.ops.aten.geqrf.default: lambda x: (
        torch.empty_like(x),
        x.new_empty([*x.shape[:-2], torch.sym_min(*x.shape[-2:])]),
    ),
    torch.ops.aten.linalg_lstsq.default: _lstsq,
    torch.ops.aten.roll.default: lambda x, *_, **__: torch.empty_like(x, memory_format=torch.contiguous_format),
}
"""Operators that PyTorch has a kernel for, and no shape; or one that it finds by asking whether there are elements."""


_NEAREST = (f"{kind}{rank}d" for kind in ("upsample_nearest", "_upsample_nearest_exact") for rank in (1, 2, 3))
_SMOOTH = "upsample_linear1d upsample_bilinear2d upsample_bicubic2d upsample_trilinear3d".split()
_UPSAMPLED = [getattr(torch.ops.aten, name).vec for name in (*_NEAREST, *_SMOOTH)]
"""Operators whose shape PyTorch finds by a long computation, of which the graph keeps nothing."""
_COMPOSED = {DispatchKey.CompositeImplicitAutograd, DispatchKey.Autograd}


def _upsampled(x: torch.Tensor, output_size: Any, *options: Any, scale_factors: Any = None) -> torch.Tensor:
    scales = options[-1] if scale_factors is None else scale_factors
    sizes = output_size or [
        size * int(scale) if isinstance(scale, float) and scale.is_integer() else torch.sym_int(size * scale)
        for size, scale in zip(x.shape[2:], scales, strict=True)
    ]
    return x.new_empty([*x.shape[:2], *sizes])


def _upsampled_fake(original: Any, x: torch.Tensor, *args: Any, **options: Any) -> torch.Tensor:
    return (_upsampled if isinstance(x, FakeTensor) else original)(x, *args, **options)  # type: ignore[no-any-return]


def _reshaped(original: Any, x: torch.Tensor, *shape: Any, **options: Any) -> torch.Tensor:
    """The shape that was asked for. PyTorch walks along the axes, and keeps one whose size is the asked one by chance.

    Of ``x.reshape(b * windows, 64)`` it would say that the batch stays, where the example has one window.
    """
    asked = shape[0] if len(shape) == 1 and isinstance(shape[0], (list, tuple)) else shape
    if all(type(size) is int for size in (*asked, *x.shape)):
        return original(x, *shape, **options)  # type: ignore[no-any-return]
    sizes = infer_size(asked, x.numel())
    if x.is_contiguous():
        torch._check(x.numel() == math.prod(sizes), lambda: f"shape {list(sizes)} is invalid for {x.numel()} elements")
        return x.as_strided(sizes, make_contiguous_strides_for(sizes))
    result: torch.Tensor = original(x, *shape, **options)
    if all(_expression(one) == _expression(other) for one, other in zip(result.shape, sizes, strict=True)):
        return result
    strides = make_contiguous_strides_for(sizes) if result.is_contiguous() else result.stride()
    return result.as_strided(sizes, strides)


def _expression(size: Any) -> Any:
    return size.node.expr if isinstance(size, torch.SymInt) else size


def _sliced(
    original: Any,
    mode: Any,
    func: Any,
    x: torch.Tensor,
    dim: int = 0,
    start: Any = None,
    end: Any = None,
    step: Any = 1,
) -> torch.Tensor:
    """As long as the axis lets it be, where that hangs on the sizes. PyTorch takes bounds to lie as in the example."""
    size: Any = x.shape[dim] if x.dim() else 1
    if all(not isinstance(number, torch.SymInt) for number in (size, start, end)):
        return original(mode, func, x, dim, start, end, step)  # type: ignore[no-any-return]
    end = None if type(end) is int and end == sys.maxsize else end
    # What is cut off by a fixed number leaves nothing where there is less of it, which no model is made for.
    start = start if type(start) is int and start >= 0 else _within(start, size)
    end = end if type(end) is int and end < 0 else _within(end, size)
    if start is not None and end is not None and varies(end >= start, size):
        end = torch.sym_max(end, start)
    return original(mode, func, x, dim, start, end, step)  # type: ignore[no-any-return]


def _within(bound: Any, size: Any) -> Any:
    if bound is None or bound is size:
        return bound
    if varies(bound <= size, size):
        return torch.sym_min(bound, size)
    return torch.sym_max(bound, -size) if varies(bound >= -size, size) else bound


def _not_empty(original: Any, env: Any, node: Any, *rest: Any, **options: Any) -> Any:
    """Of sizes that only the run knows, torch's own kernels take for granted that there are elements.

    They ask to say the shape of nothing faster. What the model itself asks is a branch of its own.
    """
    relation = node.expr
    asks = isinstance(relation, (sympy.Eq, sympy.Ne)) and 0 in relation.args and len(rest) < 2
    if asks and asking_frame() is None:
        options.setdefault("fallback_value", isinstance(relation, sympy.Ne))
    return original(env, node, *rest, **options)


def shapes() -> Iterator[Patch]:
    yield Patch(
        "torch.fx.experimental.symbolic_shapes.ShapeEnv", "evaluate_sym_node", _not_empty,
        "kernels ask whether a tensor is empty of whose sizes only the run knows", optional=True,
    )  # fmt: skip
    yield Patch("torch._refs", "_reshape_view_helper", _reshaped, "it takes equal sizes in the example for the same")
    for operator in _UPSAMPLED:
        yield Patch(global_decomposition_table["post_autograd"], operator, _upsampled, _REASON, How.VALUE)
        yield Patch(operator, "_dispatch_cache", {}, _REASON, How.VALUE)
        for key in _COMPOSED & operator.py_kernels.keys():
            kernel = partial(_upsampled_fake, operator.py_kernels[key])
            yield Patch(operator.py_kernels, key, kernel, "it compares sizes that only the run knows", How.VALUE)
    yield Patch(
        global_decomposition_table["post_autograd"], torch.ops.aten.nll_loss.default,
        lambda x, target, weight=None, reduction=1, *_, **__: x.new_empty(target.shape if reduction == 0 else []),
        "PyTorch's takes the kind of reduction for another argument, and says the shape of the mean", How.VALUE,
    )  # fmt: skip
    slicing = torch.ops.aten.slice.Tensor
    if slicing in op_implementations_dict:  # older versions of PyTorch do it where nothing can be replaced
        yield Patch(
            op_implementations_dict, slicing, partial(_sliced, op_implementations_dict[slicing]),
            "PyTorch takes bounds beyond the axis for impossible if they are not in the example", How.VALUE,
        )  # fmt: skip
    for operator, shape in _COMPOSITE.items():
        yield Patch(operator, "_dispatch_cache", {}, _REASON, How.VALUE)
        yield Patch(operator.py_kernels, DispatchKey.CompositeImplicitAutograd, shape, _REASON, How.VALUE)
    for operator, shape in _SINGLE.items():

        def known(mode: Any, func: Any, *args: Any, _shape: Any = shape, **kwargs: Any) -> Any:
            return _shape(*args, **kwargs)

        yield Patch(op_implementations_dict, operator, known, _REASON, How.VALUE)
