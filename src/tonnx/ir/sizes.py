"""Sizes while a graph is built: known now where they are fixed, read at run time once where they are not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import onnx_ir as ir

from tonnx.ir import facts, infer
from tonnx.ir.infer import Dim, dims_of, same_dim
from tonnx.ir.schema import attribute_type

if TYPE_CHECKING:
    from tonnx.ir.build import Builder

Size = int | ir.Value
"""A size known now, or an int64 value of shape [1] that holds it at run time."""


class UnknownRank(ValueError):
    """A rule needs the rank of a value that has none: a file from elsewhere, whose shapes cannot be inferred."""


class SizeArithmetic:
    """The part of a `Builder` that reads sizes and computes with them."""

    graph: ir.Graph
    opset: int
    before: ir.Node | None
    parent: Builder | None
    _named_sizes: dict[str, ir.Value]

    if TYPE_CHECKING:

        def __getattr__(self, op_type: str) -> Callable[..., Any]: ...

        def constant(self, value: Any, dtype: ir.DataType | None = None) -> ir.Value: ...

    def rank(self, x: ir.Value) -> int:
        """The rank, which every value of a front end has."""
        if x.shape is None:
            raise UnknownRank(f"the rank of {x.name!r} is not known")
        return x.shape.rank()

    def size(self, x: ir.Value, axis: int) -> Size:
        """The size of an axis: an int if it is fixed."""
        rank = self.rank(x)
        axis %= max(rank, 1)
        dim = x.shape[axis]  # type: ignore[index]
        if isinstance(dim, int):
            return dim
        if dim.value is not None and (existing := self.known_size(dim.value)) is not None:
            return existing
        if dim.value is not None:
            x, axis = self._bearer(x, axis, dim.value)
        if attribute_type("Shape", "start", self.opset) is not None:
            size = self.Shape(x, start=axis, end=axis + 1)
        else:
            size = self.Gather(self.Shape(x), [axis], axis=0)
        if dim.value is not None:
            self.name_size(size, dim.value)
        return size

    def _bearer(self, x: ir.Value, axis: int, dim: str) -> tuple[ir.Value, int]:
        """Where to read a named dimension: at a graph input that has it, so that ``x`` need not be computed for it."""
        own = self.before is None and self.parent is None
        return (self.input_with(dim) if own else None) or (x, axis)

    def input_with(self, dim: str) -> tuple[ir.Value, int] | None:
        """An input of the model that has a named dimension, and the axis."""
        if self.parent is not None:
            return self.parent.input_with(dim)
        for graph_input in self.graph.inputs:
            for at, other in enumerate(graph_input.shape or ()):
                if isinstance(other, ir.SymbolicDim) and other.value == dim:
                    return graph_input, at
        return None

    def known_size(self, dim: str) -> ir.Value | None:
        """The value that holds a named dimension, if one was made in this graph or around it."""
        if dim in self._named_sizes or self.parent is None:
            return self._named_sizes.get(dim)
        return self.parent.known_size(dim)

    def name_size(self, size: ir.Value, dim: str) -> None:
        """Say that ``size`` (shape [1]) holds the dimension ``dim``: it is not computed again."""
        facts.DIM[size] = dim
        if self.before is None:  # only a graph that grows at its end keeps earlier values in reach
            self._named_sizes.setdefault(dim, size)

    def sizes(self, x: ir.Value) -> list[Size]:
        return [self.size(x, axis) for axis in range(self.rank(x))]

    def vector(self, sizes: Sequence[Size]) -> ir.Value:
        """Sizes side by side, as the int64 vector that Reshape, Expand and their like take."""
        parts: list[ir.Value | list[int]] = []
        for size in sizes:
            if isinstance(size, ir.Value):
                parts.append(size)
            elif parts and isinstance(parts[-1], list):
                parts[-1].append(int(size))
            else:
                parts.append([int(size)])
        operands = [self.constant(p, ir.DataType.INT64) if isinstance(p, list) else p for p in parts]
        if not operands:
            return self.constant([], ir.DataType.INT64)
        return operands[0] if len(operands) == 1 else self.Concat(*operands, axis=0)

    def scalar(self, size: Size) -> ir.Value:
        """A size as an int64 value of rank 0."""
        if isinstance(size, ir.Value):
            if not self.rank(size):
                return size
            producer = size.producer()
            if producer is not None and producer.op_type in ("Reshape", "Unsqueeze"):
                made_from = producer.inputs[0]
                if made_from is not None and made_from.shape is not None and made_from.shape.rank() == 0:
                    return made_from  # a number of a tensor, such as the index of a loop
            is_attribute = attribute_type("Squeeze", "axes", self.opset) is not None
            return self.Squeeze(size, axes=[0]) if is_attribute else self.Squeeze(size, [0])
        return self.constant(size, ir.DataType.INT64)

    def product(self, sizes: Sequence[Size]) -> Size:
        """The product of sizes, known parts multiplied now."""
        fixed = 1
        dynamic: list[ir.Value] = []
        for size in sizes:
            if isinstance(size, ir.Value):
                dynamic.append(size)
            else:
                fixed *= size
        if not dynamic or fixed == 0:
            return fixed
        result = dynamic[0]
        for value in dynamic[1:]:
            result = self.Mul(result, value)
        return result if fixed == 1 else self.Mul(result, fixed)

    def reshape(self, x: ir.Value, sizes: Sequence[Size]) -> ir.Value:
        """Reshape whose target is a constant whenever possible, which is what runtimes fuse over.

        A run-time size that is the input's own at the same place becomes 0 ("copy"), a single remaining one -1.
        """
        dims = dims_of(x)
        if dims is not None and (rest := _rest(dims, sizes)) is not None:
            sizes = [rest if isinstance(size, int) and size == -1 else size for size in sizes]
        shape = [size_dim(size) for size in sizes]
        if dims is not None and len(dims) == len(sizes) and all(map(same_dim, dims, shape)):
            return x
        wanted: list[Size] = list(sizes)
        if any(isinstance(s, int) and s == 0 for s in sizes):  # a size of zero, not "copy"
            return self.Reshape(x, self.vector(wanted), allowzero=1, _shape=shape)
        for i, size in enumerate(sizes):
            if isinstance(size, ir.Value) and dims is not None and i < len(dims) and same_dim(dims[i], shape[i]):
                wanted[i] = 0
        dynamic = [i for i, size in enumerate(wanted) if isinstance(size, ir.Value)]
        if len(dynamic) == 1 and -1 not in [s for s in wanted if isinstance(s, int)]:
            wanted[dynamic[0]] = -1
        if len(dynamic) > 1 and not any(isinstance(size, int) and size <= 0 for size in wanted):
            return self.Reshape(x, self.vector(wanted), allowzero=1, _shape=shape)  # any of them may be zero
        # A constant target says more than the sizes do: what is left for -1.
        inferable = -1 in sizes and all(isinstance(size, int) for size in wanted)
        return self.Reshape(x, self.vector(wanted), _shape=None if inferable else shape)


def _rest(dims: Sequence[Dim], sizes: Sequence[Size]) -> int | None:
    """The size that -1 stands for, if the dynamic dimensions of what is reshaped are just those of the target."""
    if not any(isinstance(size, int) and size == -1 for size in sizes):
        return None
    before = sorted(str(dim.value) for dim in dims if not isinstance(dim, int))
    after = sorted(str(facts.DIM.get(size)) for size in sizes if isinstance(size, ir.Value))
    if before != after or "None" in before:
        return None
    count = prod(dim for dim in dims if isinstance(dim, int))
    fixed = prod(size for size in sizes if isinstance(size, int) and size != -1)
    return count // fixed if fixed and count % fixed == 0 else None


def size_dim(size: Size) -> Dim:
    """The dimension that a size gives a shape."""
    if isinstance(size, ir.Value):
        name = facts.DIM.get(size)
        return ir.SymbolicDim(name) if name else infer.UNKNOWN
    return infer.UNKNOWN if size == -1 else int(size)
