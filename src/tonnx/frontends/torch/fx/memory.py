"""Writes in place made functional: which tensors share memory, and what each of them holds after a write.

torch.export's graphs keep ``relu_``, ``copy_``, ``x[:, 0] = 1`` as they were written. ONNX has no memory, so a write to
a tensor becomes a new value for it, and

- a write through a view becomes a new value of the tensor it looks at (the inverse of the view: slice → slice_scatter),
- other views of that tensor are computed again, from its new value, when somebody reads them.

Which tensors share memory is not guessed: the fake tensors of the capture carry their storage. Where a graph has none
(it came from a file), the aliases that the operators' schemas declare are used.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import onnx_ir as ir
import torch
from torch.fx import Node
from torch.fx.experimental.symbolic_shapes import statically_known_true

from tonnx.errors import LoweringError
from tonnx.ir.build import Builder, Size
from tonnx.ir.infer import dims_of, same_dim
from tonnx.lowering import sizes
from tonnx.lowering.complex import is_complex, join, marked, part, unmarked

Lower = Callable[[str, Builder, dict[str, Any]], Any]
Inverse = Callable[[Builder, ir.Value, ir.Value, dict[str, Any]], ir.Value]


class NotInvertible(LoweringError):
    """A write through a view that cannot be turned into a write of its base."""


# These change how a tensor looks at its memory, not what is in it: views, whatever their schemas say.
_NO_WRITES = frozenset(
    f"aten::{name}_" for name in "detach squeeze unsqueeze transpose t swapaxes swapdims requires_grad".split()
)


def mutates(node: Node) -> bool:
    """Whether the operator writes to one of its arguments."""
    schema = getattr(node.target, "_schema", None)
    return schema is not None and schema.is_mutable and schema.name not in _NO_WRITES


def written_argument(node: Node) -> Node:
    """The tensor that an in-place operator writes to."""
    schema = node.target._schema  # type: ignore[union-attr]
    for i, argument in enumerate(schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            written = node.args[i] if i < len(node.args) else node.kwargs[argument.name]
            if isinstance(written, Node):
                return written
    raise LoweringError(f"{node.target} writes to something that is not a tensor")


def _storage(node: Node) -> int | None:
    value = node.meta.get("val")
    if isinstance(value, torch.Tensor):
        try:
            return value.untyped_storage()._cdata
        except (NotImplementedError, RuntimeError):  # sparse and opaque tensors have none
            return None
    return None


# In inference these return their very input, though the fake tensors of the capture say that it is a copy.
_GIVE_BACK = frozenset(f"aten::{kind}dropout" for kind in ("", "feature_", "alpha_", "feature_alpha_"))


def _parent(node: Node) -> Node | None:
    """The tensor that ``node`` is a view of (or, behind an in-place operator, is the same as)."""
    if node.op != "call_function":
        return None
    if mutates(node):
        return written_argument(node)
    storage = _storage(node)
    maker = node
    if node.target.__name__ == "getitem" and isinstance(node.args[0], Node):  # type: ignore[union-attr]
        maker = node.args[0]
    name = getattr(getattr(maker.target, "_schema", None), "name", "")
    if name in _GIVE_BACK and isinstance(maker.args[0], Node):
        return maker.args[0]
    if "unsafe_" in name:
        return None  # these promise that nobody looks at the base any more
    for candidate in maker.all_input_nodes:
        if storage is not None and _storage(candidate) == storage:
            return candidate
    if storage is None and (schema := getattr(maker.target, "_schema", None)) is not None:
        aliased = any(r.alias_info is not None for r in schema.returns)
        if aliased and isinstance(maker.args[0], Node):
            return maker.args[0]
    return None


def root_of(node: Node) -> Node:
    """The tensor whose memory a node shares: itself, or what it is a view of."""
    while (parent := _parent(node)) is not None:
        node = parent
    return node


class Memory:
    """The current value of every tensor of a graph that has in-place writes."""

    def __init__(self, again: Callable[[Node], Any]) -> None:
        self._again = again  # lowers one node once more, from the current values of its inputs
        self._values: dict[Node, tuple[Any, int]] = {}
        self._parents: dict[Node, Node | None] = {}
        self._versions: dict[Node, int] = {}

    def _parent(self, node: Node) -> Node | None:
        if node not in self._parents:
            self._parents[node] = _parent(node)
        return self._parents[node]

    def root(self, node: Node) -> Node:
        """The tensor whose memory ``node`` shares: itself, or what it is a view of."""
        while (parent := self._parent(node)) is not None:
            node = parent
        return node

    def define(self, node: Node, value: Any) -> None:
        """``node`` was just computed."""
        self._values[node] = (value, self._versions.get(self.root(node), 0))

    def written(self, node: Node) -> bool:
        """Whether somebody has written to ``node``."""
        return self._versions.get(self.root(node), 0) > 0

    def state(self) -> tuple[dict[Node, Any], dict[Node, int]]:
        """What every tensor holds now."""
        return dict(self._values), dict(self._versions)

    def restore(self, state: tuple[dict[Node, Any], dict[Node, int]]) -> None:
        """Go back to an earlier state."""
        self._values, self._versions = dict(state[0]), dict(state[1])

    def __contains__(self, node: Node) -> bool:
        return node in self._values

    def read(self, node: Node) -> Any:
        """What ``node`` holds now."""
        if node not in self._values and mutates(node):  # on the other side of a branch: there it did not happen
            return self.read(written_argument(node))
        value, version = self._values[node]
        root = self.root(node)
        current = self._versions.get(root, 0)
        if version == current or node is root:
            return value
        parent = self._parent(node)
        assert parent is not None
        value = self.read(parent) if mutates(node) else self._again(node)
        self._values[node] = (value, current)
        return value

    def write(self, op: Builder, node: Node, value: ir.Value, arguments: Callable[[Node], dict[str, Any]]) -> None:
        """``node`` holds ``value`` from now on, and so does whatever shares its memory."""
        root = self.root(node)
        path: list[tuple[Node, Any]] = []
        at, current = node, value
        while (parent := self._parent(at)) is not None:
            path.append((at, current))
            if not mutates(at):
                current = _inverse(op, at, self.read(parent), current, arguments)
            at = parent
        version = self._versions.get(root, 0) + 1
        self._versions[root] = version
        self._values[root] = (current, version)
        for view, held in path:
            self._values[view] = (held, version)


def _inverse(
    op: Builder, view: Node, base: ir.Value, value: ir.Value, arguments: Callable[[Node], dict[str, Any]]
) -> ir.Value:
    maker, index = view, 0
    if view.target.__name__ == "getitem":  # type: ignore[union-attr]
        maker, index = view.args[0], view.args[1]  # type: ignore[assignment]
    name = maker.target._schema.name.removeprefix("aten::").removesuffix("_")  # type: ignore[union-attr]
    if name in _INVERSES:
        return view_inverse(op, name, base, value, {**arguments(maker), "index_of_output": index})
    same_bits = base.dtype == value.dtype
    if (name in _RESHAPES and same_bits) or (name in _OF_PAIRS and (is_complex(base) or is_complex(value))):
        return view_inverse(op, name, base, value, {})
    parent = _parent(view)
    if parent is not None and same_bits and _same_place(view.meta.get("val"), parent.meta.get("val")):
        return value  # detach, contiguous, to, dropout, … gave back the tensor itself
    raise NotInvertible(f"a write through {maker.target} cannot be expressed")


def view_inverse(op: Builder, name: str, base: ir.Value, value: ir.Value, arguments: dict[str, Any]) -> ir.Value:
    """``base`` after a write of ``value`` through the view ``name``; ``arguments`` are those of the view."""
    if is_complex(base) or is_complex(value):
        return _pairs_back(op, name, base, value, arguments)
    if name in _INVERSES:
        return _INVERSES[name](op, base, value, arguments)
    if name in _RESHAPES and base.dtype == value.dtype:
        return op.reshape(value, op.sizes(base))
    if name in ("expand", "expand_as") and _of_one_shape(base, value):
        return value
    raise NotInvertible(f"a write through {name} cannot be expressed")


_OF_PAIRS = frozenset("real imag view_as_real view_as_complex conj _conj".split())
"""Views that only complex numbers have."""


def _pairs_back(op: Builder, name: str, base: ir.Value, value: ir.Value, arguments: dict[str, Any]) -> ir.Value:
    """`view_inverse` where the base is complex, or the view."""
    from tonnx.lowering.ops.complex import conj

    if name in ("real", "imag"):
        return join(op, *((value, part(op, base, 1)) if name == "real" else (part(op, base, 0), value)))
    if name in _RESHAPES or name in ("view_as_real", "view_as_complex"):  # also `view` as another dtype
        made = op.reshape(unmarked(op, value), op.sizes(base))
        return marked(op, made) if is_complex(base) else made
    if not (is_complex(base) and is_complex(value)):
        raise NotInvertible(f"a write through {name} of complex numbers cannot be expressed")
    if name in ("conj", "_conj"):
        return conj(op, value)
    value = conj(op, value) if name in ("adjoint", "mH") else value
    parts = [(part(op, base, i), part(op, value, i)) for i in (0, 1)]
    return join(op, *(view_inverse(op, name, one, other, arguments) for one, other in parts))


def _of_one_shape(one: ir.Value, other: ir.Value) -> bool:
    a, b = dims_of(one), dims_of(other)
    return a is not None and b is not None and len(a) == len(b) and all(map(same_dim, a, b))


def _same_place(a: Any, b: Any) -> bool:
    """Whether two fake tensors of one storage have their elements at the same places."""
    if not isinstance(a, torch.Tensor) or not isinstance(b, torch.Tensor) or a.dim() != b.dim():
        return False
    pairs = zip((*a.shape, *a.stride(), a.storage_offset()), (*b.shape, *b.stride(), b.storage_offset()), strict=True)
    return all(statically_known_true(one == two) for one, two in pairs)


_RESHAPES = frozenset(
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
    from tonnx.lowering.ops.shape import movedim

    return movedim(op, value, source=a["destination"], destination=a["source"])


def _select_back(op: Builder, base: ir.Value, value: ir.Value, a: dict[str, Any]) -> ir.Value:
    from tonnx.lowering.ops.scatter import select_scatter

    return select_scatter(op, base, src=value, dim=a["dim"], index=a["index"])


def _slice_back(op: Builder, base: ir.Value, value: ir.Value, a: dict[str, Any]) -> ir.Value:
    from tonnx.lowering.ops.scatter import slice_scatter

    return slice_scatter(
        op, base, src=value, dim=a.get("dim", 0), start=a.get("start"), end=a.get("end"), step=a.get("step", 1)
    )


def _narrow_back(op: Builder, base: ir.Value, value: ir.Value, a: dict[str, Any]) -> ir.Value:
    from tonnx.lowering.ops.scatter import slice_scatter

    start, length = a["start"], a["length"]
    end = sizes.add(op, start, length)
    if isinstance(end, int) and isinstance(start, int) and start < 0 <= end:
        end = sizes.END
    return slice_scatter(op, base, src=value, dim=a["dim"], start=start, end=end, step=1)


def _diagonal_back(op: Builder, base: ir.Value, value: ir.Value, a: dict[str, Any]) -> ir.Value:
    from tonnx.lowering.ops.scatter import diagonal_scatter

    return diagonal_scatter(
        op, base, src=value, offset=a.get("offset", 0), dim1=a.get("dim1", 0), dim2=a.get("dim2", 1)
    )


def _unbind_back(op: Builder, base: ir.Value, value: ir.Value, a: dict[str, Any]) -> ir.Value:
    return _select_back(op, base, value, {"dim": a.get("dim", 0), "index": a["index_of_output"]})


def _split_back(op: Builder, base: ir.Value, value: ir.Value, a: dict[str, Any]) -> ir.Value:
    from tonnx.lowering.ops.scatter import slice_scatter

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


_INVERSES: dict[str, Inverse] = {
    "transpose": _permuted_back,
    "swapaxes": lambda op, base, value, a: _permuted_back(op, base, value, {"dim0": a["axis0"], "dim1": a["axis1"]}),
    "swapdims": _permuted_back,
    "adjoint": lambda op, base, value, a: _permuted_back(op, base, value, {"dim0": -1, "dim1": -2}),
    "mH": lambda op, base, value, a: _permuted_back(op, base, value, {"dim0": -1, "dim1": -2}),
    "t": _permuted_back,
    "numpy_T": lambda op, base, value, a: op.Transpose(value),
    "mT": lambda op, base, value, a: _permuted_back(op, base, value, {"dim0": -1, "dim1": -2}),
    "permute": _permuted_back,
    "movedim": _moved_back,
    "moveaxis": _moved_back,
    "select": _select_back,
    "slice": _slice_back,
    "narrow": _narrow_back,
    "diagonal": _diagonal_back,
    "unbind": _unbind_back,
    "split": _split_back,
    "split_with_sizes": _split_back,
    "chunk": _split_back,
}
