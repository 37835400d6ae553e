"""The fake tensors of the recorder: of weights, and of results that a call like one before has.

A network calls the same operators on tensors of the same form, layer by layer. What PyTorch says of the first such call
holds for all of them, and is asked for once. Most operators keep the shape of what they work on: of those PyTorch is
asked at the example's sizes, where it needs no algebra, and the symbols of the sizes stay where they were.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

import sympy
import torch
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.fake_tensor import FakeTensor, in_kernel_invocation_manager
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils._python_dispatch import _disable_current_modes

from tonnx.frontends.torch.capture.call_kinds import (
    by_element,
    depends_on_forms,
    keeps_shape,
    may_share_memory,
    writes_first,
)
from tonnx.frontends.torch.capture.carried_sizes import Seen, carried, dense_strides, joint_shape, size_key, view_of
from tonnx.frontends.torch.operators.symbolic_sizes import SYMBOLIC
from tonnx.frontends.torch.versions import example_sizes, fake_mode

PLAIN = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)


def is_plain(tensor: torch.Tensor) -> bool:
    """Whether a tensor is no more than numbers in memory."""
    marked = tensor.is_quantized or tensor.is_conj() or tensor.is_neg()
    return type(tensor) in PLAIN and tensor.layout is torch.strided and not marked


class _Form(NamedTuple):
    """All that there is of a tensor without values, but for its memory."""

    key: Any
    """It, with expressions in the place of symbolic sizes, which cannot be compared."""
    shape: Any
    stride: Any
    offset: Any
    dtype: torch.dtype
    device: torch.device

    @property
    def sizes(self) -> tuple[Any, ...]:
        """The sizes, as they can be compared."""
        sizes: tuple[Any, ...] = self.key[0][: len(self.shape)]
        return sizes

    @property
    def dense(self) -> bool:
        """Whether the elements lie one behind the other, at all sizes and from the beginning of the memory."""
        *strides, offset = self.key[0][len(self.shape) :]
        step: Any = 1
        for size, stride in zip(reversed(self.sizes), reversed(strides), strict=True):
            if stride != step:
                return False
            step = step * size
        return bool(offset == 0)

    def fits(self, larger: _Form) -> bool:
        """Whether it broadcasts to the shape of another, at all sizes."""
        sizes = zip(reversed(self.sizes), reversed(larger.sizes), strict=False)
        return all(size in (1, other) for size, other in sizes)


class _Result(NamedTuple):
    """What a call gives, by the forms of its arguments."""

    form: _Form | None
    """None: the argument itself."""
    place: int | None = None
    """Which of the tensors among the arguments it is, or shares its memory with."""


class _NoKey(Exception):
    """An argument of which more than its form may matter."""


class Fakes:
    """Makes the fake tensors of one capture."""

    def __init__(self, env: ShapeEnv, has_sizes: bool) -> None:
        self.mode = fake_mode(env)
        # What it remembers itself serves later captures, too; but symbols are those of one capture.
        self.mode.cache_enabled = self.mode.cache_enabled and not has_sizes
        self._example_mode = fake_mode(None) if has_sizes else None
        """Where sizes are those of the example; what it remembers serves all captures."""
        self._storages: dict[int, tuple[Any, Any]] = {}
        """By the address of a weight's memory: that, which lives on, and what stands for it."""
        self._forms: dict[int, tuple[torch.Tensor, _Form | None]] = {}
        """By the identity of a fake tensor: itself, which lives on, and its form, if that is all that matters of it."""
        self._results: dict[Any, _Result | list[_Result]] = {}
        """By an operator and the forms of its arguments."""
        self._elements: dict[Any, Any] = {}
        """How many numbers there are in the memory of a dense form, by its key."""

    @property
    def known(self) -> tuple[dict[Any, Any], ...]:
        """What is remembered; it may rest on facts that hold for a while only."""
        return self._results, self._forms

    def of_weight(self, tensor: torch.Tensor) -> torch.Tensor:
        """A fake of a tensor of plain class. Where weights share memory, their fakes do."""
        if not is_plain(tensor):
            fake: torch.Tensor = self.mode.from_tensor(tensor, static_shapes=True)
            return fake
        real = tensor.untyped_storage()
        with torch._C._DisableTorchDispatch():
            if real._cdata not in self._storages:
                self._storages[real._cdata] = real, torch.UntypedStorage(real.nbytes(), device="meta")
            meta = torch.empty(0, dtype=tensor.dtype, device="meta")
            meta.set_(self._storages[real._cdata][1], tensor.storage_offset(), tensor.size(), tensor.stride())
        return FakeTensor(self.mode, meta, tensor.device)

    def dense(self, sizes: list[Any], like: torch.Tensor) -> torch.Tensor:
        """A fake of these sizes, its elements one behind the other, of the kind of another tensor."""
        with torch._C._DisableTorchDispatch():
            meta = torch.empty(sizes, dtype=like.dtype, device="meta")
        return FakeTensor(self.mode, meta, like.device)

    def call(self, func: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """What an operator gives. Tensors among the arguments are fakes, and what holds several is a list."""
        if not depends_on_forms(func):
            if writes_first(func) and self._like_operands(func, args, kwargs) is not None:
                return args[0]
            return _asked(func, args, kwargs)
        try:
            key = func, self._key(args), self._key(kwargs)
            known = self._results.get(key)
        except (_NoKey, TypeError):  # what cannot be compared is no key
            return _asked(func, args, kwargs)
        if known is not None:
            again = partial(self._again, [args, kwargs])
            return list(map(again, known)) if isinstance(known, list) else again(known)
        if not may_share_memory(func):
            form = self._like_operands(func, args, kwargs) or self._like_leading(func, args, kwargs)
            if form is not None:
                self._results[key] = _Result(form)
                return self._made(form)
        view = self._viewed(func, args) if args and not kwargs else None
        result = _asked(func, args, kwargs) if view is None else view
        many = isinstance(result, (list, tuple))
        parts = self._understood(result if many else [result], list(_tensors([args, kwargs])))
        if parts is not None:
            self._results[key] = parts if many else parts[0]
        return result

    def _understood(self, results: Any, arguments: list[torch.Tensor]) -> list[_Result] | None:
        """Where the memory of results is, and what they are beside that; None if that cannot be told."""
        if not all(isinstance(result, torch.Tensor) for result in results):
            return None  # what a gradient is not asked for
        if not _sizes_only_the_run_knows(results) <= _sizes_only_the_run_knows(arguments):
            return None  # torch.where(mask) finds as many places as there are, and another number the next time
        memory = [tensor.untyped_storage()._cdata for tensor in (*arguments, *results)]
        parts, own = [], memory[len(arguments) :]
        for result, here in zip(results, own, strict=True):
            places = [place for place, there in enumerate(memory[: len(arguments)]) if there == here]
            if len(places) > 1 or (not places and own.count(here) > 1):
                return None  # tensors may be alike, and share no memory the next time
            is_argument = bool(places) and result is arguments[places[0]]
            form = None if is_argument else self._form(result)
            if form is None and not is_argument:
                return None
            if places and result.dtype != arguments[places[0]].dtype:
                return None
            parts.append(_Result(form, places[0] if places else None))
        return parts

    def _again(self, arguments: list[Any], part: _Result) -> torch.Tensor:
        form, place = part
        if place is None:
            assert form is not None
            return self._made(form)
        base = next(islice(_tensors(arguments), place, None))
        if form is None:
            return base
        with torch._C._AutoDispatchBelowAutograd(), in_kernel_invocation_manager(self.mode):
            meta = torch.as_strided(base, form.shape, form.stride, form.offset)
        return self._noted(meta, form)

    def reshaped(self, tensor: torch.Tensor) -> None:
        """A tensor looks at its memory in another way from now on."""
        self._forms[id(tensor)] = tensor, None

    def _key(self, argument: Any) -> Any:
        if isinstance(argument, torch.Tensor):
            form = self._form(argument)
            if form is None:
                raise _NoKey
            return form.key
        if isinstance(argument, list):
            return tuple([self._key(part) for part in argument])
        if isinstance(argument, dict):
            return tuple([(name, self._key(part)) for name, part in argument.items()])
        return _number_key(argument) if isinstance(argument, SYMBOLIC) else (type(argument), argument)

    def _form(self, tensor: Any) -> _Form | None:
        if (held := self._forms.get(id(tensor))) is not None:
            return held[1]
        form = None
        if isinstance(tensor, FakeTensor):
            if tensor.constant is None and tensor.layout is torch.strided and not tensor.dtype.is_complex:
                shape, stride, offset = tensor.shape, tensor.stride(), tensor.storage_offset()
                numbers = tuple([size_key(n) for n in (*shape, *stride, offset)])
                key = numbers, tensor.dtype, tensor.device
                form = _Form(key, shape, stride, offset, tensor.dtype, tensor.device)
            self._forms[id(tensor)] = tensor, form
        return form

    def _like_operands(self, func: Any, args: list[Any], kwargs: dict[str, Any]) -> _Form | None:
        """The form of a result that has the shape of the largest operand, if it can be told without algebra."""
        if self._example_mode is None or not keeps_shape(func) or kwargs.get("memory_format") is not None:
            return None
        try:
            operands = [self._form(arg) for arg in (*args, *kwargs.values()) if isinstance(arg, torch.Tensor)]
            largest = max(filter(None, operands), key=lambda form: len(form.shape), default=None)
            if largest is None or (func._schema.is_mutable and largest is not self._form(args[0])):
                return None
            if not all(form and form.dense for form in operands):
                return None
            shape: Any = largest.shape
            if by_element(func) and not all(form and form.fits(largest) for form in operands):
                shape = joint_shape([(form.shape, form.sizes) for form in operands if form])
                if shape is None or func._schema.is_mutable:
                    return None
            example_args, example_kwargs = self._at_example(args), self._at_example(kwargs)
            sizes = self._at_example(list(shape))
        except _NoKey:
            return None
        with _disable_current_modes():
            result = func(*example_args, **example_kwargs)
            if list(result.shape) != sizes or list(result.stride()) != dense_strides(result.shape):
                return None
            dtype, device = result.dtype, result.device
        if shape is not largest.shape:
            return _dense_form(tuple(shape), dtype, device)
        return _Form((largest.key[0], dtype, device), largest.shape, largest.stride, 0, dtype, device)

    def _like_leading(self, func: Any, args: list[Any], kwargs: dict[str, Any]) -> _Form | None:
        """The form of a result that begins as an operand does, and whose other sizes are fixed."""
        found = carried(func, args) if self._example_mode is not None and not kwargs else None
        if found is None:
            return None
        place, count = found
        operand = self._form(args[place])
        if operand is None or not operand.dense:
            return None
        if not all(map(self._is_fixed, [*operand.sizes[count:], *args[:place], *args[place + 1 :]])):
            return None
        try:
            example = [self._at_example(arg) for arg in args]
        except _NoKey:
            return None
        with _disable_current_modes():
            result = func(*example)
            begins_alike = result.shape[:count] == example[place].shape[:count]
            if not begins_alike or list(result.stride()) != dense_strides(result.shape):
                return None
            shape, dtype, device = (*operand.shape[:count], *result.shape[count:]), result.dtype, result.device
        return _dense_form(shape, dtype, device)

    def _is_fixed(self, argument: Any) -> bool:
        """Whether no size of an argument is dynamic."""
        if isinstance(argument, torch.Tensor):
            form = self._form(argument)
            return form is not None and all(type(number) is int for number in form.key[0])
        if isinstance(argument, list):
            return all(map(self._is_fixed, argument))
        return not isinstance(argument, (*SYMBOLIC, sympy.Basic))

    def _viewed(self, func: Any, args: list[Any]) -> torch.Tensor | None:
        """A view, or the argument itself, as far as it can be told what it looks at without algebra."""
        if func is torch.ops.aten.to.dtype and len(args) == 2 and args[1] == args[0].dtype:
            return args[0]  # type: ignore[no-any-return]
        form = self._form(args[0]) if self._example_mode is not None and isinstance(args[0], FakeTensor) else None
        if form is None:
            return None
        view = view_of(func, Seen(form.shape, form.sizes, form.stride, form.offset, form.dense), args[1:])
        if view is None:
            return None
        with in_kernel_invocation_manager(self.mode):
            meta = torch.as_strided(args[0], view.shape, view.stride, view.offset)
        return FakeTensor(self.mode, meta, form.device)

    def _at_example(self, argument: Any) -> Any:
        if isinstance(argument, torch.Tensor):
            sizes, strides = self._at_example(list(argument.shape)), self._at_example(list(argument.stride()))
            with torch._C._DisableTorchDispatch():
                meta = torch.empty_strided(sizes, strides, dtype=argument.dtype, device="meta")
            return FakeTensor(self._example_mode, meta, argument.device)
        if isinstance(argument, list):
            return [self._at_example(part) for part in argument]
        if isinstance(argument, dict):
            return {name: self._at_example(part) for name, part in argument.items()}
        if not isinstance(argument, SYMBOLIC):
            return argument
        hint = argument.node.hint
        if type(hint) not in (int, float, bool):
            raise _NoKey  # a number that only the run knows
        return hint

    def _made(self, form: _Form) -> torch.Tensor:
        """A tensor with memory of its own; how long that of a dense one is, is computed once."""
        with torch._C._DisableTorchDispatch():
            if form.dense:
                if form.key not in self._elements:
                    self._elements[form.key] = math.prod(form.shape)
                meta = torch.empty(self._elements[form.key], dtype=form.dtype, device="meta")
                meta = meta.as_strided(form.shape, form.stride)
            else:
                meta = torch.empty_strided(form.shape, form.stride, dtype=form.dtype, device="meta")
        return self._noted(meta, form)

    def _noted(self, meta: torch.Tensor, form: _Form) -> torch.Tensor:
        fake = FakeTensor(self.mode, meta, form.device)
        self._forms[id(fake)] = fake, form
        return fake


def _dense_form(shape: tuple[Any, ...], dtype: torch.dtype, device: torch.device) -> _Form:
    stride = tuple(dense_strides(shape))
    numbers = tuple([size_key(number) for number in (*shape, *stride, 0)])
    return _Form((numbers, dtype, device), shape, stride, 0, dtype, device)


def _sizes_only_the_run_knows(tensors: Iterable[torch.Tensor]) -> set[Any]:
    sizes = [size.node for tensor in tensors for size in tensor.shape if isinstance(size, torch.SymInt)]
    return {symbol for size in sizes for symbol in size.expr.free_symbols - example_sizes(size.shape_env).keys()}


def _asked(func: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """What PyTorch says. Shapes may be found by other operators, of which some take symbols in Python only."""
    with enable_python_dispatcher():
        return func(*args, **kwargs)


def _number_key(number: Any) -> Any:
    return number.node.expr


def _tensors(arguments: Any) -> Iterator[torch.Tensor]:
    """The tensors among arguments, in order."""
    for argument in arguments.values() if isinstance(arguments, dict) else arguments:
        if isinstance(argument, torch.Tensor):
            yield argument
        elif isinstance(argument, (list, dict)):
            yield from _tensors(argument)
