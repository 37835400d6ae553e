"""Pooling: dilations (19, 18, 10), ceil_mode (18, 10), indices (8)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import onnx_ir as ir

from tonnx.ir.build import Builder
from tonnx.legalise.node_view import Blocked, NodeView, known
from tonnx.legalise.table import down, same
from tonnx.legalise.versioned_ops import END


class Window:
    """The sliding window of a pooling node, its defaults filled in."""

    def __init__(self, node: NodeView) -> None:
        self.kernel: list[int] = node.attr("kernel_shape")
        n = len(self.kernel)
        self.strides: list[int] = node.attr("strides") or [1] * n
        self.dilations: list[int] = node.attr("dilations") or [1] * n
        self.auto_pad: str = node.attr("auto_pad", "NOTSET")
        self.pads: list[int] = (node.attr("pads") if self.auto_pad == "NOTSET" else None) or [0] * (2 * n)
        # "SAME" gives ceil(size / stride) either way.
        self.ceil = bool(node.attr("ceil_mode", 0)) and not self.auto_pad.startswith("SAME")
        self.spans = [(k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations, strict=True)]

    @property
    def dilated(self) -> bool:
        return set(self.dilations) != {1}

    @property
    def padded(self) -> bool:
        return self.auto_pad.startswith("SAME") or any(self.pads)

    def attributes(self, *, pads: list[int] | None = None, dilations: bool = False) -> dict[str, object]:
        """As attributes of a node that rounds down."""
        named: dict[str, object] = {"kernel_shape": self.kernel, "strides": self.strides}
        if self.auto_pad.startswith("SAME"):
            named["auto_pad"] = self.auto_pad
        else:
            named["pads"] = self.pads if pads is None else pads
        if dilations:
            named["dilations"] = self.dilations
        return named

    def explicit_pads(self, node: NodeView) -> list[int]:
        """The pads of "SAME" written out, which takes fixed sizes."""
        if not self.auto_pad.startswith("SAME"):
            return self.pads
        begins, ends = [], []
        for size, stride, span in zip(_spatial(node), self.strides, self.spans, strict=True):
            if not isinstance(size, int):
                raise Blocked(f"auto_pad={self.auto_pad} of a size known only at run time")
            total = max(0, (math.ceil(size / stride) - 1) * stride + span - size)
            less, more = total // 2, total - total // 2
            begins.append(less if self.auto_pad == "SAME_UPPER" else more)
            ends.append(more if self.auto_pad == "SAME_UPPER" else less)
        return begins + ends

    def extra(self, node: NodeView) -> list[int]:
        """What has to be padded at the end of each axis, so that rounding down gives what rounding up gave.

        A window that would start in the padding at the end is dropped by ceil_mode.
        """
        if not self.ceil:
            return [0] * len(self.kernel)
        n = len(self.kernel)
        missing = []
        for i, size in enumerate(_spatial(node)):
            begin, end, stride, span = self.pads[i], self.pads[n + i], self.strides[i], self.spans[i]
            if isinstance(size, int):
                last = math.ceil((size + begin + end - span) / stride)
                if last * stride >= size + begin:
                    last -= 1
                more = last * stride + span - (size + begin + end)
                missing.append(0 if -stride < more < 0 else more)  # rounding down drops less than a stride
            elif stride == 1 or end <= span - stride:
                missing.append(stride - 1)  # never enough for a window that starts in the padding
            else:
                raise Blocked("ceil_mode of a size known only at run time, with padding that may hold a window")
        return missing


def _spatial(node: NodeView) -> list[int | ir.SymbolicDim]:
    dims = known(node.dims("X"), "the rank of its input is not known")
    return dims[2:]


def _more_at_the_end(pads: list[int], extra: list[int]) -> list[int]:
    n = len(extra)
    return pads[:n] + [pad + more for pad, more in zip(pads[n:], extra, strict=True)]


def spatial_pads(rank: int, pads: list[int]) -> list[int]:
    """Pads of the spatial axes as Pad takes them: of all axes."""
    n = rank - 2
    return [0, 0, *pads[:n], 0, 0, *pads[n:]]


def _pad(op: Builder, node: NodeView, pads: list[int], value: float) -> ir.Value:
    x = node.need("X")
    if not any(pads):
        return x
    full = spatial_pads(node.rank("X"), pads)
    if op.opset >= 11:
        return op.Pad(x, full, op.constant(value, node.dtype("X")))
    return op.Pad(x, pads=full, value=value)


def _positions(op: Builder, x: ir.Value, window: Window) -> Iterator[ir.Value]:
    """For every place of the window, what all windows see there; ``x`` is padded already."""
    n = len(window.kernel)
    for place in itertools.product(*map(range, window.kernel)):
        starts = [p * d for p, d in zip(place, window.dilations, strict=True)]
        ends = [start - span + 1 or END for start, span in zip(starts, window.spans, strict=True)]
        if op.opset >= 10:
            yield op.Slice(x, starts, ends, list(range(2, n + 2)), window.strides)
        else:
            raise Blocked("dilated windows need Slice-10")


@down(("AveragePool", "MaxPool", "LpPool"), 22)
def pool_dropped_window(op: Builder, node: NodeView) -> tuple[ir.Value, ...] | None:
    """Before 22 the text (and shape inference) did not drop a window that starts in the padding at the end."""
    window = Window(node)
    sizes = _spatial(node) if window.ceil else []
    n = len(window.kernel)
    for i, size in enumerate(sizes):
        if not isinstance(size, int):
            continue
        begin, end, stride, span = window.pads[i], window.pads[n + i], window.strides[i], window.spans[i]
        if math.ceil((size + begin + end - span) / stride) * stride >= size + begin:
            break
    else:
        return None
    extra = window.extra(node)
    if node.op_type == "AveragePool" and node.attr("count_include_pad", 0) and any(more > 0 for more in extra):
        raise Blocked("ceil_mode both adds a window and drops one")
    pads = _more_at_the_end(window.pads, extra)
    others = node.attributes("ceil_mode", "pads", "auto_pad")
    return getattr(op, node.op_type)(node["X"], pads=pads, _outputs=node.outputs, **others)


# AveragePool


@down("AveragePool", 19, up="dilations are 1 by default")
def average_pool_dilations(op: Builder, node: NodeView) -> ir.Value | None:
    """An average over a dilated window is a convolution with equal weights, divided by what it covers."""
    window = Window(node)
    if not window.dilated:
        return None
    x = node.need("X")
    include_pads = bool(node.attr("count_include_pad", 0))
    extra = window.extra(node)
    if include_pads and any(extra):  # the padding counts, what rounding up adds to it does not
        x = _pad(op, node, window.pads, 0.0)
        pads, include_pads = [0] * len(extra) + extra, False
    else:
        pads = _more_at_the_end(window.pads, extra)
    # Channels become samples, so that one kernel serves all of them.
    sizes = op.sizes(x)
    flat = op.Reshape(x, op.vector([-1, 1, *sizes[2:]]))
    count = math.prod(window.kernel)
    weight = op.Reshape(op.Expand(op.constant([1.0], x.dtype), [count]), [1, 1, *window.kernel])
    attributes = window.attributes(pads=pads, dilations=True)
    total = op.Conv(flat, weight, **attributes)
    if include_pads or not (window.padded or any(extra)):
        mean = total / float(count)
    else:
        ones = op.Expand(op.constant(1.0, x.dtype), op.Shape(flat))
        mean = total / op.Conv(ones, weight, **attributes)
    tail = op.Shape(mean, start=2, end=len(sizes))
    return op.Reshape(mean, op.Concat(op.vector(sizes[:2]), tail, axis=0))


@down("AveragePool", 10, up="rounding down is the default")
def average_pool_ceil(op: Builder, node: NodeView) -> ir.Value | None:
    """Rounding up is rounding down with more padding at the end, which does not count."""
    window = Window(node)
    extra = window.extra(node)
    if not any(extra):
        return None
    n = len(extra)
    x, pads, include = node.need("X"), window.pads, bool(node.attr("count_include_pad", 0))
    fits = all(pad + more < k for pad, more, k in zip(pads[n:], extra, window.kernel, strict=True))
    if include:
        x, pads, include, fits = _pad(op, node, pads, 0.0), [0] * (2 * n), False, True
    if not fits:
        raise Blocked("more padding than the window is wide")
    return op.AveragePool(x, count_include_pad=int(include), **window.attributes(pads=_more_at_the_end(pads, extra)))


# MaxPool


@down("MaxPool", 10, up="what is new is off by default")
def max_pool_windows(op: Builder, node: NodeView) -> ir.Value | tuple[ir.Value, ...] | None:
    """Rounding up by padding; a dilated window as the maximum over its places."""
    window = Window(node)
    extra = window.extra(node)
    if not window.dilated and not any(extra):
        return None
    if node.used(1):
        raise Blocked("indices of a dilated window or with ceil_mode")
    n = len(extra)
    pads = _more_at_the_end(window.explicit_pads(node) if window.dilated else window.pads, extra)
    if window.dilated:
        padded = _pad(op, node, pads, -math.inf)
        return _maximum_over_places(op, node, padded, window)
    x = node.need("X")
    if any(pad >= k for pad, k in zip(pads[n:], window.kernel, strict=True)):
        x, pads = _pad(op, node, pads, -math.inf), [0] * (2 * n)
    return op.MaxPool(x, **window.attributes(pads=pads))


def _maximum_over_places(op: Builder, node: NodeView, x: ir.Value, window: Window) -> ir.Value:
    """The maximum along each axis in turn: a window of 3 × 3 takes 3 + 3 slices, not 9."""
    rank = node.rank("X")
    for i, (size, dilation, stride) in enumerate(zip(window.kernel, window.dilations, window.strides, strict=True)):
        axis = rank - len(window.kernel) + i
        length = op.size(x, axis)
        span = window.spans[i]
        if isinstance(length, int):
            count = (length - span) // stride + 1
            parts = [op.Gather(x, [at * dilation + stride * j for j in range(count)], axis=axis) for at in range(size)]
        else:
            if stride != 1:
                raise Blocked("a dilated window with a stride, over a size known only at run time")
            parts = [
                op.Slice(x, axes=[axis], starts=[at * dilation], ends=[at * dilation - span + 1 or END])
                for at in range(size)
            ]
        x = op.Max(*parts) if size > 1 else parts[0]
    return x


@down("MaxPool", 8, up="indices are optional")
def max_pool_without_indices(op: Builder, node: NodeView) -> ir.Value:
    """Indices cannot be had."""
    if node.used(1):
        raise Blocked("MaxPool has no second output there")
    return op.MaxPool(node["X"], **node.attributes("storage_order"))


# LpPool


@down("LpPool", 18, up="what is new is off by default")
def lp_pool_windows(op: Builder, node: NodeView) -> ir.Value | None:
    """Rounding up by padding; a dilated window as the sum over its places."""
    window = Window(node)
    extra = window.extra(node)
    if not window.dilated and not any(extra):
        return None
    p = float(node.attr("p", 2))
    pads = _more_at_the_end(window.explicit_pads(node) if window.dilated else window.pads, extra)
    if not window.dilated:
        return op.LpPool(node["X"], p=node.attr("p"), **window.attributes(pads=pads))
    padded = _pad(op, node, pads, 0.0)
    powers = op.Pow(op.Abs(padded), op.constant(p, node.dtype("X")))
    total = op.Sum(*_positions(op, powers, window))
    return op.Pow(total, op.constant(1 / p, node.dtype("X")))


same(
    ("Conv", "ConvTranspose", "MaxPool", "AveragePool", "LpPool", "MaxUnpool"),
    11,
    "the defaults of strides and dilations were written down",
)
