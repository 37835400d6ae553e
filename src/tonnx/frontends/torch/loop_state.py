"""The variables of a loop's body: read and set through the cells of its closure, and what becomes of each."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import CellType
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true, sym_eq
from torch.utils import _pytree as pytree

from tonnx.frontends.torch.loop_list import Listed, stacked, tensors
from tonnx.frontends.torch.loop_names import Unsuitable

UNBOUND = object()

_DTYPES: dict[type, torch.dtype] = {
    bool: torch.bool,
    torch.SymBool: torch.bool,
    int: torch.int64,
    torch.SymInt: torch.int64,
    float: torch.float64,
    torch.SymFloat: torch.float64,
}
"""Numbers are carried as tensors of rank 0."""


class Differs(Exception):
    """A variable is not after a pass what it was before it; ``moving``: but a number, which may change."""

    def __init__(self, reason: str, moving: set[tuple[str, int]] | None = None) -> None:
        super().__init__(reason)
        self.moving = moving or set()


@dataclass(frozen=True)
class Kinds:
    """What a body does with which variable; see `loop_names.Names`."""

    assigned: tuple[str, ...] = ()
    carried: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    inplace: tuple[str, ...] = ()
    grown: tuple[str, ...] = ()


class Variables:
    """The variables of a body, by name."""

    def __init__(self, body: Callable[..., Any], kinds: Kinds) -> None:
        self.kinds = kinds
        self._cells: dict[str, CellType] = dict(zip(body.__code__.co_freevars, body.__closure__ or (), strict=True))

    def get(self, name: str) -> Any:
        """The value of a variable, UNBOUND if it has none."""
        try:
            return self._cells[name].cell_contents
        except (KeyError, ValueError):  # a global, which bodies only read; or not bound yet
            return UNBOUND

    def set(self, name: str, value: Any) -> None:
        """Set a variable, or take its value away."""
        if value is not UNBOUND:
            self._cells[name].cell_contents = value
        elif self.get(name) is not UNBOUND:
            del self._cells[name].cell_contents

    def values(self) -> dict[str, Any]:
        """The values of all that the body changes."""
        return {name: self.get(name) for name in (*self.kinds.assigned, *self.kinds.grown)}

    def restore(self, values: dict[str, Any]) -> None:
        """Set all of them."""
        for name, value in values.items():
            self.set(name, value)


class _Carried:
    """The tensors and numbers of one carried variable: a tensor, or tuples, lists and dicts of them."""

    def __init__(self, name: str, value: Any, moving: set[tuple[str, int]]) -> None:
        self.name, self.value = name, value
        self.leaves, self.spec = pytree.tree_flatten(value)
        tensors = [isinstance(leaf, torch.Tensor) for leaf in self.leaves]
        self.places = [i for i, is_tensor in enumerate(tensors) if is_tensor or (name, i) in moving]
        self.given: Any = None

    def states(self) -> list[torch.Tensor]:
        """What is carried, as tensors."""
        return [_as_tensor(self.leaves[i]) for i in self.places]

    def filled(self, states: Sequence[torch.Tensor]) -> Any:
        """The variable with other values of what is carried."""
        leaves = list(self.leaves)
        for i, state in zip(self.places, states, strict=True):
            leaves[i] = state if isinstance(leaves[i], torch.Tensor) else state.item()
        return pytree.tree_unflatten(leaves, self.spec)

    def matched(self, after: Any) -> list[torch.Tensor]:
        """What is carried, from the variable's value after a pass."""
        leaves, spec = pytree.tree_flatten(after)
        if spec != self.spec:
            raise Differs(f"{self.name} is {_kind(self.given)} before a pass and {_kind(after)} after it")
        moving = set()
        for i, (old, new) in enumerate(zip(pytree.tree_leaves(self.given), leaves, strict=True)):
            if type(old) in _DTYPES and type(new) in _DTYPES and _DTYPES[type(old)] == _DTYPES[type(new)]:
                if i not in self.places and not statically_known_true(old == new):
                    moving.add((self.name, i))
            elif old is not new and not _alike(old, new):
                raise Differs(f"{self.name} is {_kind(old)} before a pass and {_kind(new)} after it")
        if moving:
            raise Differs(f"{self.name} is another number after a pass", moving)
        return [_as_tensor(leaves[i]) for i in self.places]


class Recording:
    """What one recorded pass takes and leaves behind."""

    def __init__(self, variables: Variables, before: dict[str, Any], moving: set[tuple[str, int]]) -> None:
        self._variables, self._before = variables, before
        kinds = variables.kinds
        for name in kinds.grown:
            if not isinstance(before[name], list):
                raise Unsuitable(f"it appends to {name}, which is not a list of the function")
            # Held by the cell, by ``before`` and by this call. The list is replaced, which others would not see.
            if sys.getrefcount(before[name]) > 3:
                raise Unsuitable(f"the list {name} that it fills is held elsewhere too")
        self._written = [n for n in kinds.inplace if isinstance(before[n], torch.Tensor)]
        self._carried = [
            _Carried(name, before[name], moving)
            for name in kinds.carried
            if before[name] is not UNBOUND and name not in self._written
        ]
        self.states = [state for carried in self._carried for state in carried.states()]
        self.finals: list[torch.Tensor] = []
        self.lasts: list[torch.Tensor] = []
        self.stacked: list[torch.Tensor] = []
        self._several: dict[str, bool] = {}
        self._last: dict[str, tuple[list[Any], Any]] = {}
        self._known: set[Any] = set()

    def open(self, index: torch.SymInt, inside: Sequence[torch.Tensor]) -> None:
        """Give the body its variables."""
        # Sizes that appear from now on belong to this one pass.
        self._known = set(index.node.shape_env.var_to_range) - index.node.expr.free_symbols
        left = iter(inside)
        for carried in self._carried:
            carried.given = carried.filled([next(left) for _ in carried.places])
            self._variables.set(carried.name, carried.given)
        for name in self._variables.kinds.grown:
            self._variables.set(name, [])  # so that what is in it afterwards is what one pass appends

    def close(self) -> None:
        """Collect what the body left in its variables."""
        kinds = self._variables.kinds
        for carried in self._carried:
            self.finals += carried.matched(self._variables.get(carried.name))
        for name in self._written:
            if self._variables.get(name) is not self._before[name]:
                raise Unsuitable(f"{name} is not the tensor any more that it was, and was written to")
        for name in kinds.grown:
            elements = self._variables.get(name)
            if isinstance(elements, Listed) or elements:
                self._several[name] = isinstance(elements, Listed) or len(elements) > 1
                tensor = stacked(elements) if self._several[name] else tensors(elements)[0]
                if not self._fixed(tensor):
                    raise Unsuitable(f"what it appends to {name} has another shape in each pass, {_kind(tensor)}")
                self.stacked.append(tensor)
        names = {carried.name for carried in self._carried}.union(self._written)
        for name in kinds.assigned:
            if name in kinds.kept and name not in names:
                self._keep(name, self._variables.get(name))

    def _keep(self, name: str, value: Any) -> None:
        """A variable that a pass only sets: the last pass counts."""
        leaves, spec = pytree.tree_flatten(value)
        numbers = [i for i, leaf in enumerate(leaves) if isinstance(leaf, (torch.Tensor, torch.SymInt, torch.SymFloat))]
        if all(self._fixed(leaves[i]) for i in numbers if isinstance(leaves[i], torch.Tensor)):
            for i in numbers:
                tensor = _as_tensor(leaves[i])
                leaves[i] = _Last(len(self.lasts), not isinstance(leaves[i], torch.Tensor))
                self.lasts.append(tensor)
            self._last[name] = (leaves, spec)

    def _fixed(self, tensor: torch.Tensor) -> bool:
        symbolic = [size for size in tensor.shape if isinstance(size, torch.SymInt)]
        return not any(size.node.expr.free_symbols - self._known for size in symbolic)

    def finish(self, results: Sequence[torch.Tensor]) -> None:
        """Set the variables to what they are after the loop."""
        variables, left = self._variables, iter(results)
        for name in variables.kinds.assigned:  # those that nobody reads any more, or that cannot be told
            if name not in self._written:
                variables.set(name, UNBOUND if name in variables.kinds.kept else self._before[name])
        for carried in self._carried:
            _set_carried(variables, carried, carried.filled([next(left) for _ in carried.places]))
        lasts = [next(left) for _ in self.lasts]
        for name, (leaves, spec) in self._last.items():
            values = [leaf.of(lasts) if isinstance(leaf, _Last) else leaf for leaf in leaves]
            variables.set(name, pytree.tree_unflatten(values, spec))
        for name in variables.kinds.grown:
            before = self._before[name]
            if name in self._several:
                tensor = next(left)
                filled = Listed(tensor.flatten(0, 1) if self._several[name] else tensor)
                before = before + filled if isinstance(before, Listed) or before else filled
            variables.set(name, before)


@dataclass(frozen=True)
class _Last:
    """The place of a result that a variable has after the loop."""

    place: int
    is_number: bool

    def of(self, lasts: Sequence[torch.Tensor]) -> Any:
        return lasts[self.place].item() if self.is_number else lasts[self.place]


def _set_carried(variables: Variables, carried: _Carried, value: Any) -> None:
    before = carried.value
    if carried.name in variables.kinds.inplace and isinstance(before, (list, dict)):
        # It is the same object as before, for everybody who holds it.
        if isinstance(before, list):
            before[:] = value
        else:
            before.update(value)
        value = before
    variables.set(carried.name, value)


def _as_tensor(value: Any) -> torch.Tensor:
    return value if isinstance(value, torch.Tensor) else torch.full((), value, dtype=_DTYPES[type(value)])


def _alike(old: Any, new: Any) -> bool:
    if not isinstance(old, torch.Tensor) or not isinstance(new, torch.Tensor):
        return False
    return old.dtype == new.dtype and old.dim() == new.dim() and statically_known_true(sym_eq(old.shape, new.shape))


def _kind(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}[{', '.join(map(str, value.shape))}]"
    return "unbound" if value is UNBOUND else "None" if value is None else f"a {type(value).__name__}"
