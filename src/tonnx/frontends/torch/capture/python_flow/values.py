"""What the variables of recorded code hold: tensors, numbers, and what torch knows of their sizes."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextvars import ContextVar
from functools import partial
from typing import Any

import torch
from torch.fx.experimental.proxy_tensor import get_proxy_mode, get_proxy_slot
from torch.fx.experimental.symbolic_shapes import statically_known_true, sym_eq
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import _disable_current_modes

UNBOUND = object()

SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)

DTYPES: dict[type, torch.dtype] = {
    bool: torch.bool,
    torch.SymBool: torch.bool,
    int: torch.int64,
    torch.SymInt: torch.int64,
    float: torch.float64,
    torch.SymFloat: torch.float64,
}
"""Numbers are handed on as tensors of rank 0."""


def is_symbolic(number: Any) -> bool:
    """Whether a number is known only at run time."""
    return isinstance(number, SYMBOLIC) and not number.node.is_constant()


def as_tensor(value: Any, dtype: torch.dtype | None = None) -> torch.Tensor:
    """A number as a tensor of rank 0; a tensor as it is."""
    return value if isinstance(value, torch.Tensor) else torch.full((), value, dtype=dtype or DTYPES[type(value)])


def as_number(tensor: torch.Tensor, like: Any) -> Any:
    """A tensor of rank 0 as a number of the kind of ``like``. A truth value stays a tensor: it is only asked."""
    return tensor if DTYPES[type(like)] == torch.bool else tensor.item()


def is_array(value: Any) -> bool:
    """Whether it is an array of PyTorch's own NumPy (`patches.numpy_sizes`), which hardly a model makes."""
    arrays = sys.modules.get("torch._numpy")
    return arrays is not None and isinstance(value, arrays.ndarray)


def unwrapped(value: Any) -> Any:
    """The tensor of an array; anything else as it is."""
    return value.tensor if is_array(value) else value


def alike(old: Any, new: Any) -> bool:
    """Whether two values are tensors of one dtype and shape."""
    return same_kind(old, new) and statically_known_true(sym_eq(old.shape, new.shape))


def same_kind(old: Any, new: Any) -> bool:
    """Whether two values are tensors of one dtype and rank."""
    if not isinstance(old, torch.Tensor) or not isinstance(new, torch.Tensor):
        return False
    return old.dtype == new.dtype and old.dim() == new.dim()


def fits(number: Any, tensor: Any) -> bool:
    """Whether a number may stand for a tensor of rank 0: PyTorch's arithmetic treats both alike."""
    if type(number) not in DTYPES or not isinstance(tensor, torch.Tensor) or tensor.dim():
        return False
    kind = DTYPES[type(number)]
    if kind == torch.bool or tensor.dtype == torch.bool:
        return kind == tensor.dtype
    return kind == torch.int64 or tensor.dtype.is_floating_point


def describe(value: Any) -> str:
    """The kind of a value, for messages."""
    if isinstance(value, torch.Tensor):
        sizes = ["?" if is_symbolic(size) else str(size) for size in value.shape]
        return f"{str(value.dtype).removeprefix('torch.')}[{', '.join(sizes)}]"
    if isinstance(value, list):
        return f"a list of {list.__len__(value)}"
    if isinstance(value, (int, float, str)):
        return repr(value)
    return "unbound" if value is UNBOUND else "None" if value is None else f"a {type(value).__name__}"


# What torch believes of values


class Constants:
    """The tensors among some values of which torch knows the content, such as ``torch.tensor(0)``.

    It follows writes to them, which is wrong where the run decides whether, or how often, they happen.
    """

    def __init__(self, values: Iterable[Any]) -> None:
        leaves = pytree.tree_leaves(list(values))
        self._found = [leaf for leaf in leaves if getattr(leaf, "constant", None) is not None]
        with _disable_current_modes():
            self._before = [leaf.constant.clone() for leaf in self._found]

    def forget(self) -> None:
        """Only the run knows them from now on."""
        for leaf in self._found:
            _forget(leaf)

    def written(self) -> bool:
        """Whether somebody has written to one of them; it is forgotten then."""
        with _disable_current_modes():
            changed = [
                leaf
                for leaf, before in zip(self._found, self._before, strict=True)
                if leaf.constant is not None and not torch.equal(leaf.constant, before)
            ]
        for leaf in changed:
            _forget(leaf)
        return bool(changed)

    def lost(self) -> bool:
        """Whether that happened, or somebody has made us forget one."""
        return self.written() or any(leaf.constant is None for leaf in self._found)


def entered_modules() -> Callable[[], None]:
    """A function that leaves the modules that were entered since: torch does not, where an exception goes through."""
    mode = get_proxy_mode()
    stack = getattr(None if mode is None else mode.tracer, "module_stack", {})
    before = dict(stack)

    def leave() -> None:
        stack.clear()
        stack.update(before)

    return leave


def _forget(tensor: Any) -> None:
    tensor.constant = None
    mode = get_proxy_mode()  # it has a note of its own
    slot: Any = None if mode is None else get_proxy_slot(tensor, mode.tracer, None)
    if hasattr(slot, "constant"):
        slot.constant = None


# What torch believes of sizes


def shape_env() -> Any:
    """The environment of the capture that runs; None outside of one."""
    mode = torch._guards.detect_fake_mode()
    return None if mode is None else mode.shape_env


def symbols() -> set[Any]:
    return set(shape_env().var_to_range)


def within(sizes: Sequence[Any], outer_symbols: set[Any]) -> bool:
    return not any(size.node.expr.free_symbols - outer_symbols for size in sizes if isinstance(size, SYMBOLIC))


_memos: ContextVar[list[Callable[[], None]] | None] = ContextVar("_memos", default=None)
"""How to forget the numbers of tensors that were found out since the side or pass began."""


def number_kept(original: Any, descriptor: Any, tensor: Any, number: Any) -> None:
    """``SymNumberMemoDescriptor.__set__``: torch has one symbol for a tensor's number, whenever that is asked for."""
    original(descriptor, tensor, number)
    if (memos := _memos.get()) is not None and number is not None:
        memos.append(partial(original, descriptor, tensor, None))


@contextlib.contextmanager
def own_facts() -> Iterator[None]:
    """Forget afterwards what torch concluded about sizes from outside.

    It holds for as long as the side of a branch, or the pass of a loop, runs: the other side is taken when it does not.
    """
    env = shape_env()
    replaced, ranges = dict(env.replacements), dict(env.var_to_range)
    asserted = {symbol: len(asserts) for symbol, asserts in env.deferred_runtime_asserts.items()}
    memos: list[Callable[[], None]] = []
    token = _memos.set(memos)
    try:
        yield
    finally:
        _memos.reset(token)
        for forget in memos:
            forget()
        for symbol in ranges:
            if symbol in replaced:
                env.replacements[symbol] = replaced[symbol]
            else:
                env.replacements.pop(symbol, None)
            env.var_to_range[symbol] = ranges[symbol]
            if symbol in env.deferred_runtime_asserts:
                del env.deferred_runtime_asserts[symbol][asserted.get(symbol, 0) :]
        env.num_deferred_runtime_asserts += 1  # the key of its caches
        env._update_version_counter()
