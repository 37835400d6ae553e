"""What one recorded pass of a loop takes and leaves behind, variable by variable."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true
from torch.utils import _pytree as pytree

from tonnx.frontends.torch.capture.python_flow.merge import Unmerged, zeros_like
from tonnx.frontends.torch.capture.python_flow.recorded_list import Listed, Ragged, listed, ragged, stacked, tensors
from tonnx.frontends.torch.capture.python_flow.scope_analysis import Unsuitable
from tonnx.frontends.torch.capture.python_flow.values import (
    DTYPES,
    SYMBOLIC,
    UNBOUND,
    alike,
    as_number,
    as_tensor,
    describe,
    fits,
    is_symbolic,
    same_kind,
    within,
)
from tonnx.frontends.torch.capture.python_flow.variables import (
    Contents,
    Variables,
    changed,
    contents_of,
    fill,
    held_elsewhere,
)

Place = tuple[str, int]
"""A variable, and the place of a tensor or number in it."""


@dataclass(frozen=True)
class _Held:
    """A list as a pass leaves it, stacked, and the axes of its elements along which passes have other sizes."""

    elements: list[Any]
    stacked: torch.Tensor
    ragged: tuple[int, ...] = ()


@dataclass
class Learned:
    """What an attempt at recording showed about the variables; the next one knows it."""

    moving: set[Place] = field(default_factory=set)
    """Numbers that change from pass to pass."""
    falling: set[Place] = field(default_factory=set)
    """Those that start at 0 or above and may get below it."""
    varying: set[tuple[str, int, int]] = field(default_factory=set)
    """Tensors and their axes whose sizes change."""
    tensors: dict[Place, torch.dtype] = field(default_factory=dict)
    """Numbers before the loop that a pass replaces by tensors of rank 0."""
    adopted: dict[str, Any] = field(default_factory=dict)
    """Variables without a value before the loop that not every pass sets, as a pass leaves them."""
    held: dict[str, _Held] = field(default_factory=dict)
    """Lists that have to be carried."""
    kinds: dict[Place, list[Any]] = field(default_factory=dict)
    """Lists whose elements are set by the passes, and are something else before the loop: one of them."""
    last: set[str] = field(default_factory=set)
    """Variables that are something else before the loop, and that every pass sets: only the last pass counts."""

    def add(self, other: Learned) -> bool:
        """Learn more; whether there was something new."""
        before = self.count()
        for part in fields(self):
            mine = getattr(self, part.name)
            mine.update(getattr(other, part.name))
        return self.count() > before

    def count(self) -> int:
        return sum(len(getattr(self, part.name)) for part in fields(self))


class Differs(Exception):
    """A variable is not after a pass what it was before it; what was learned may let the next attempt do better."""

    def __init__(self, reason: str, learned: Learned | None = None) -> None:
        super().__init__(reason)
        self.learned = learned


@dataclass(frozen=True)
class Kinds:
    """What a body does with which variable; see `names.Names`."""

    assigned: tuple[str, ...] = ()
    carried: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    inplace: tuple[str, ...] = ()
    grown: tuple[str, ...] = ()
    read: tuple[str, ...] = ()


class _Carried:
    """The tensors and numbers of one carried variable: a tensor, or tuples, lists and dicts of them."""

    def __init__(self, name: str, value: Any, learned: Learned, must: bool) -> None:
        self.name, self.value, self._learned, self._must = name, value, learned, must
        self.leaves, self.spec = _flattened(value)
        for i, leaf in enumerate(self.leaves):
            if (name, i) in learned.tensors:
                self.leaves[i] = as_tensor(leaf, learned.tensors[name, i])
            if (name, i) in learned.kinds:
                self.leaves[i] = self.leaves[i].made_for(learned.kinds[name, i][0])
        self.places = [
            i
            for i, leaf in enumerate(self.leaves)
            if isinstance(leaf, (torch.Tensor, Listed)) or (name, i) in learned.moving
        ]
        self._given: tuple[Any, list[Any]] = (None, [])

    def give(self, value: Any) -> None:
        """What the body gets. It may change the very object."""
        leaves, _ = _flattened(value)
        self._given = (value, [leaf.copied() if isinstance(leaf, Listed) else leaf for leaf in leaves])

    def states(self) -> list[torch.Tensor]:
        return [leaf.tensor if isinstance(leaf, Listed) else as_tensor(leaf) for leaf in map(self._leaf, self.places)]

    def _leaf(self, place: int) -> Any:
        return self.leaves[place]

    def varying(self) -> list[tuple[int, int]]:
        """The states, counted from this variable's first, and their axes whose sizes change."""
        own = [(self.places.index(i), axis) for name, i, axis in self._learned.varying if name == self.name]
        lists = [(k, 0) for k, i in enumerate(self.places) if isinstance(self.leaves[i], Listed)]
        return sorted({*own, *lists})

    def filled(self, states: Sequence[torch.Tensor]) -> Any:
        """The variable with other values of what is carried."""
        leaves = list(self.leaves)
        for i, state in zip(self.places, states, strict=True):
            leaf = leaves[i]
            if isinstance(leaf, Listed):
                leaves[i] = leaf.like(state)
            elif not isinstance(leaf, torch.Tensor):
                leaves[i] = as_number(state, leaf)
                if self._rises(i):
                    torch._check(leaves[i] >= 0)  # counters are sizes and places more often than not
            else:
                leaves[i] = state
        return _unflattened(leaves, self.spec)

    def matched(self, after: Any) -> list[torch.Tensor]:
        """What is carried, from the variable's value after a pass."""
        leaves, spec = _flattened(after)
        if spec != self.spec:
            self._differs(self._given[0], after)
        learned = Learned()
        for i, (old, new) in enumerate(zip(self._given[1], leaves, strict=True)):
            self._compare(i, old, new, learned)
        if learned.count():
            raise Differs(f"{self.name} is another one after a pass", learned)
        return [_state(leaves[i], self.leaves[i]) for i in self.places]

    def _compare(self, i: int, old: Any, new: Any, learned: Learned) -> None:
        if isinstance(old, Listed) and isinstance(new, Listed):
            if type(old) is not type(new) or old.tensor.dtype != new.tensor.dtype:
                learned.kinds[self.name, i] = [new.element(0)]
            return
        if old is new or alike(old, new):
            return
        if isinstance(old, torch.Tensor) and type(new) in DTYPES and fits(new, old):
            return
        if type(old) in DTYPES and type(new) in DTYPES:
            kinds = {DTYPES[type(old)], DTYPES[type(new)]}
            if len(kinds) == 1:
                if i not in self.places and not statically_known_true(old == new):
                    learned.moving.add((self.name, i))
                elif i in self.places and self._rises(i) and not statically_known_true(new - old >= 0):
                    learned.falling.add((self.name, i))
                return
            if torch.bool not in kinds and type(old) is int:  # total = 0 becomes a float
                learned.tensors[self.name, i] = torch.float64
                return
        if same_kind(old, new):
            axes = [a for a in range(old.dim()) if not statically_known_true(old.shape[a] == new.shape[a])]
            learned.varying |= {(self.name, i, axis) for axis in axes} - self._learned.varying
        elif i not in self.places and fits(old, new):
            learned.tensors[self.name, i] = new.dtype
        else:
            self._differs(old, new)

    def _rises(self, place: int) -> bool:
        """Whether a number is taken to stay at 0 or above; `_compare` proves it, pass by pass."""
        number = self.leaves[place]
        counts = isinstance(number, int) and not isinstance(number, bool) and number >= 0
        return counts and (self.name, place) not in self._learned.falling

    def _differs(self, old: Any, new: Any) -> None:
        reason = f"{self.name} is {describe(old)} before a pass and {describe(new)} after it"
        raise Differs(reason, None if self._must else Learned(last={self.name}))


_Spec = tuple[pytree.TreeSpec, tuple[int | None, ...]]
"""The tree of a value, and the axis of each leaf that is a list of tensors of different sizes: that one is two."""


def _flattened(value: Any) -> tuple[list[Any], _Spec]:
    leaves, spec = pytree.tree_flatten(value)
    parts = [leaf.held if isinstance(leaf, Ragged) else (leaf,) for leaf in leaves]
    axes = tuple(leaf.axis if isinstance(leaf, Ragged) else None for leaf in leaves)
    return [part for held in parts for part in held], (spec, axes)


def _unflattened(parts: Sequence[Any], spec: _Spec) -> Any:
    left = iter(parts)
    leaves = [next(left) if axis is None else Ragged(next(left), next(left), axis) for axis in spec[1]]
    return pytree.tree_unflatten(leaves, spec[0])


def _state(leaf: Any, like: Any) -> torch.Tensor:
    if isinstance(leaf, Listed):
        return leaf.tensor
    return as_tensor(leaf, like.dtype if isinstance(like, torch.Tensor) else None)


class Recording:
    """What one recorded pass takes and leaves behind."""

    def __init__(
        self, variables: Variables, kinds: Kinds, before: dict[str, Any], learned: Learned, outer_symbols: set[Any]
    ) -> None:
        self._variables, self._kinds, self._before, self._learned = variables, kinds, before, learned
        self._outer_symbols = outer_symbols
        for name in kinds.grown:
            if not isinstance(before[name], list):
                raise Unsuitable(f"it appends to {name}, which is not a list of the function")
            if held_elsewhere(before[name], 0):  # it is replaced, which others would not see
                raise Unsuitable(f"the list {name} that it fills is held elsewhere too")
        self._written = [n for n in kinds.inplace if isinstance(before[n], torch.Tensor)]
        for name in kinds.read:
            if before[name] and name not in learned.held and not isinstance(before[name], Ragged):
                learned.held[name] = _Held(before[name], stacked(before[name]))
        self._held = [name for name in kinds.grown if name in learned.held or isinstance(before[name], Ragged)]
        self._grown = [name for name in kinds.grown if name not in self._held]
        self._carried = [self._carry(name) for name in dict.fromkeys((*kinds.carried, *kinds.kept)) if self._is(name)]
        self._carried += [_Carried(name, self._as_held(name), learned, True) for name in self._held]
        self.states = [state for carried in self._carried for state in carried.states()]
        self.varying: list[int] = []
        first = 0
        for carried in self._carried:
            self.varying += [n for place, axis in carried.varying() for n in (first + place, axis)]
            first += len(carried.places)
        self.finals: list[torch.Tensor] = []
        self.lasts: list[torch.Tensor] = []
        self.stacked: list[torch.Tensor] = []
        self._several: dict[str, list[Any]] = {}
        self._last: dict[str, tuple[list[Any], Any]] = {}
        self._contents: Contents = {}

    def _is(self, name: str) -> bool:
        """Whether a variable is carried: it has a value before the loop, and passes hand it on or may not happen."""
        bound = self._before[name] is not UNBOUND or name in self._learned.adopted
        return bound and name not in self._written and name not in self._learned.last

    def _carry(self, name: str) -> _Carried:
        value = self._before[name]
        if value is UNBOUND:
            value = _nothing(self._learned.adopted[name], self._outer_symbols)
        return _Carried(name, value, self._learned, name in self._kinds.carried)

    def _as_held(self, name: str) -> Listed | Ragged:
        before = self._before[name]
        if isinstance(before, Ragged):
            return before
        after = self._learned.held[name]
        if len(after.ragged) > 1 or (after.ragged and isinstance(before, Listed)):
            raise Unsuitable(f"what it appends to {name} has another shape in each pass, {describe(after.stacked[0])}")
        if after.ragged:
            return ragged(before, after.stacked[0], *after.ragged)
        if isinstance(before, Listed):
            return before
        if before:
            return listed(before, stacked(before))
        return listed(after.elements, torch.zeros([0, *after.stacked.shape[1:]], dtype=after.stacked.dtype))

    def open(self, inside: Sequence[torch.Tensor]) -> None:
        """Give the body its variables. Sizes that are not known yet belong to this one pass."""
        left = iter(inside)
        for carried in self._carried:
            value = carried.filled([next(left) for _ in carried.places])
            self._variables.set(carried.name, value)
            carried.give(value)
        for name in self._grown:
            self._variables.set(name, [])  # so that what is in it afterwards is what one pass appends
        own = {carried.name for carried in self._carried}.union(self._grown)
        self._contents = contents_of([v for name, v in self._variables.values().items() if name not in own])

    def close(self) -> None:
        """Collect what the body left in its variables."""
        self._check_contents()
        for carried in self._carried:
            self.finals += carried.matched(self._variables.get(carried.name))
        for name in self._written:
            if self._variables.get(name) is not self._before[name]:
                raise Unsuitable(f"{name} is not the tensor any more that it was, and was written to")
        for name in self._grown:
            elements = self._variables.get(name)
            if isinstance(elements, Listed) or elements:
                self._grow(name, elements)
        names = {carried.name for carried in self._carried}.union(self._written)
        for name in self._kinds.assigned:
            if name in self._kinds.kept and name not in names:
                self._keep(name, self._variables.get(name))

    def _check_contents(self) -> None:
        now = contents_of([content.owner for content in self._contents.values()])
        for key in changed(self._contents, now):
            owner = self._contents[key].owner
            raise Unsuitable(f"its body changes an object from outside of it, a {type(owner).__name__}")

    def _grow(self, name: str, elements: list[Any]) -> None:
        several = isinstance(elements, Listed) or len(elements) > 1
        tensor = stacked(elements) if several else tensors(elements)[0]
        if name in self._kinds.read or not self._fixed(tensor):
            whole = tensor if several else tensor.unsqueeze(0)
            sizes = enumerate(whole.shape[1:])
            differ = tuple(axis for axis, size in sizes if not within([size], self._outer_symbols))
            held = _Held(elements, whole, differ)
            raise Differs(f"the list {name} has another length after a pass", Learned(held={name: held}))
        self._several[name] = elements
        self.stacked.append(tensor)

    def _keep(self, name: str, value: Any) -> None:
        """A variable that has no value before the loop."""
        if value is UNBOUND or isinstance(value, Unmerged):
            return
        if name in self._kinds.carried and name not in self._learned.last:
            raise Differs(f"{name} has no value before a pass", Learned(adopted={name: value}))
        leaves, spec = pytree.tree_flatten(value)
        numbers = [i for i, leaf in enumerate(leaves) if isinstance(leaf, (torch.Tensor, *SYMBOLIC))]
        if all(self._fixed(leaves[i]) for i in numbers if isinstance(leaves[i], torch.Tensor)):
            for i in numbers:
                tensor = as_tensor(leaves[i])
                leaves[i] = _Last(len(self.lasts), leaves[i])
                self.lasts.append(tensor)
            self._last[name] = (leaves, spec)

    def _fixed(self, tensor: torch.Tensor) -> bool:
        return within(tensor.shape, self._outer_symbols)

    def finish(self, results: Sequence[torch.Tensor]) -> None:
        """Set the variables to what they are after the loop."""
        variables, kinds, left = self._variables, self._kinds, iter(results)
        for name in kinds.assigned:  # those that nobody reads any more, or that cannot be told
            if name not in self._written:
                variables.set(name, UNBOUND if name in kinds.kept else self._before[name])
        for carried in self._carried:
            self._set_carried(carried, carried.filled([next(left) for _ in carried.places]))
        lasts = [next(left) for _ in self.lasts]
        for name, (leaves, spec) in self._last.items():
            values = [leaf.of(lasts) if isinstance(leaf, _Last) else leaf for leaf in leaves]
            variables.set(name, pytree.tree_unflatten(values, spec))
        for name in self._grown:
            before = self._before[name]
            if name in self._several:
                tensor, elements = next(left), self._several[name]
                several = isinstance(elements, Listed) or len(elements) > 1
                filled = listed(elements, tensor.flatten(0, 1) if several else tensor)
                before = before + filled if isinstance(before, Listed) or before else filled
            variables.set(name, before)

    def _set_carried(self, carried: _Carried, value: Any) -> None:
        before = carried.value
        if carried.name in self._kinds.inplace and isinstance(before, (list, dict)) and not isinstance(before, Listed):
            fill(before, value)  # it is the same object as before, for everybody who holds it
            value = before
        self._variables.set(carried.name, value)


@dataclass(frozen=True)
class _Last:
    """The place of a result that a variable has after the loop."""

    place: int
    like: Any

    def of(self, lasts: Sequence[torch.Tensor]) -> Any:
        result = lasts[self.place]
        return result if isinstance(self.like, torch.Tensor) else as_number(result, self.like)


def _nothing(value: Any, outer_symbols: set[Any]) -> Any:
    """A value of the same kind: Python itself would fail if somebody read it."""

    def nothing(leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor):
            return zeros_like(leaf, outer_symbols)
        return (
            {torch.bool: False, torch.int64: 0, torch.float64: 0.0}[DTYPES[type(leaf)]] if is_symbolic(leaf) else leaf
        )

    return pytree.tree_map(nothing, value)
