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
from tonnx.ir.build import Builder
from tonnx.lowering.complex import is_complex
from tonnx.lowering.views import INVERSES, OF_PAIRS, RESHAPES, NotInvertible, view_inverse

# These change how a tensor looks at its memory, not what is in it: views, whatever their schemas say.
_NO_WRITES = frozenset(
    f"aten::{name}_" for name in "detach squeeze unsqueeze transpose t swapaxes swapdims requires_grad".split()
)


def mutates(node: Node) -> bool:
    """Whether the operator writes to one of its arguments."""
    schema = getattr(node.target, "_schema", None)
    return schema is not None and schema.is_mutable and schema.name not in _NO_WRITES


def gives_what_it_wrote(node: Node) -> bool:
    """Whether the operator's result is the tensor that it wrote to, as that of most in-place operators is."""
    return mutates(node) and len(node.target._schema.returns) < 2  # type: ignore[union-attr]


def written_arguments(node: Node) -> list[Node]:
    """The tensors that an in-place operator writes to."""
    schema = node.target._schema  # type: ignore[union-attr]
    writes = [
        node.args[i] if i < len(node.args) else node.kwargs.get(argument.name)
        for i, argument in enumerate(schema.arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
    ]
    tensors = [written for written in writes if isinstance(written, Node)]
    if not tensors:
        raise LoweringError(f"{node.target} writes to something that is not a tensor")
    return tensors


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
    if gives_what_it_wrote(node):
        return written_arguments(node)[0]
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


def given_back(node: Node) -> Node | None:
    """The argument that an operator gives back as it is: by writing to it, or since there is nothing to do.

    Torch takes the operator for the maker of that tensor from then on, also where somebody had it before.
    """
    parent = _parent(node)
    if parent is None or gives_what_it_wrote(node):
        return parent
    one, other = (place.meta.get("val") for place in (node, parent))
    return parent if _same_place(one, other) and one.dtype == other.dtype else None


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
        self._values[node] = (value, self._versions.get(self.root(node), 0))

    def written(self, node: Node) -> bool:
        return self._versions.get(self.root(node), 0) > 0

    def state(self) -> tuple[dict[Node, Any], dict[Node, int]]:
        return dict(self._values), dict(self._versions)

    def restore(self, state: tuple[dict[Node, Any], dict[Node, int]]) -> None:
        self._values, self._versions = dict(state[0]), dict(state[1])

    def __contains__(self, node: Node) -> bool:
        return node in self._values

    def read(self, node: Node) -> Any:
        if node not in self._values and gives_what_it_wrote(node):
            return self.read(written_arguments(node)[0])  # on the other side of a branch: there it did not happen
        value, version = self._values[node]
        root = self.root(node)
        current = self._versions.get(root, 0)
        if version == current or node is root:
            return value
        parent = self._parent(node)
        assert parent is not None
        value = self.read(parent) if gives_what_it_wrote(node) else self._again(node)
        self._values[node] = (value, current)
        return value

    def write(self, op: Builder, node: Node, value: ir.Value, arguments: Callable[[Node], dict[str, Any]]) -> None:
        """``node`` holds ``value`` from now on, and so does whatever shares its memory."""
        root = self.root(node)
        path: list[tuple[Node, Any]] = []
        at, current = node, value
        while (parent := self._parent(at)) is not None:
            path.append((at, current))
            if not gives_what_it_wrote(at):
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
    if name in INVERSES:
        return view_inverse(op, name, base, value, {**arguments(maker), "index_of_output": index})
    same_bits = base.dtype == value.dtype
    if (name in RESHAPES and same_bits) or (name in OF_PAIRS and (is_complex(base) or is_complex(value))):
        return view_inverse(op, name, base, value, {})
    parent = _parent(view)
    if parent is not None and same_bits and _same_place(view.meta.get("val"), parent.meta.get("val")):
        return value  # detach, contiguous, to, dropout, … gave back the tensor itself
    raise NotInvertible(f"a write through {maker.target} cannot be expressed")


def _same_place(a: Any, b: Any) -> bool:
    """Whether two fake tensors of one storage have their elements at the same places."""
    if not isinstance(a, torch.Tensor) or not isinstance(b, torch.Tensor) or a.dim() != b.dim():
        return False
    pairs = zip((*a.shape, *a.stride(), a.storage_offset()), (*b.shape, *b.stride(), b.storage_offset()), strict=True)
    return all(statically_known_true(one == two) for one, two in pairs)
