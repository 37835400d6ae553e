"""Changing somebody else's modules and objects for a while: one mechanism, one lock, always put back, in reverse.

A `Patch` says what is replaced by what, and why; `patched` enters a list of them. A function is replaced for the thread
that exports only: others that call it meanwhile get the original. There is one lock in the process: of two threads
that export at once, one waits. An export inside another one, which a model or a rule may start, sees nothing of what
the outer one has patched.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from functools import partial, reduce, wraps
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from inspect import getattr_static
from types import CodeType, FunctionType, ModuleType
from typing import Any, Protocol

from tonnx.errors import MissingDependency


class How(Enum):
    """What a patch does to an attribute."""

    FUNCTION = "function"
    """Calls come to ``replacement(original, *args, **kwargs)`` in the thread that exports."""
    CODE = "code"
    """The same for a function that others have imported by name: the function stays, its code is another."""
    VALUE = "value"
    """The attribute is the replacement, for every thread; it may be ABSENT."""
    KEPT = "kept"
    """Nothing is replaced; the attribute is put back to what it was, whatever it became meanwhile."""


ABSENT: Any = type("Absent", (), {"__repr__": lambda self: "ABSENT"})()
"""Stands for an attribute that is not there."""


@dataclass(frozen=True)
class Patch:
    """One attribute of somebody else's, and what stands there for a while."""

    owner: Any
    """An object, a dict (``name`` is a key then), or the dotted name of a module or a class in one."""
    name: Any
    """Of the attribute, or the key in the dict."""
    replacement: Any
    reason: str
    how: How = How.FUNCTION
    optional: bool = False
    """Left out where the owner is not imported, or has no such attribute in the version that is installed."""
    when_imported: str = ""
    """The owner is in this module, which is not imported for it: if somebody does that meanwhile, it is patched."""

    def __str__(self) -> str:
        return f"{self.owner if isinstance(self.owner, str) else type(self.owner).__name__}.{self.name}"

    def resolved(self) -> Any:
        """The owner; ABSENT if an optional patch has nothing to do here. A missing name is an error that names it."""
        owner = _owner(self.owner, self.optional) if isinstance(self.owner, str) else self.owner
        if self.how in (How.VALUE, How.KEPT) and (self.when_imported or not isinstance(self.owner, str)):
            return owner
        if owner is not ABSENT and (isinstance(owner, dict) or hasattr(owner, self.name)):
            return owner
        if self.optional:
            return ABSENT
        package = str(self.owner).partition(".")[0]
        version = getattr(sys.modules.get(package), "__version__", "")
        raise MissingDependency(
            f"{package} {version} has no {self}, which is replaced while a model is captured",
            why=self.reason,
            hint=f"install a version of {package} that tonnx supports",
        )


def _owner(path: str, if_imported: bool) -> Any:
    """The object with a dotted name; ABSENT if there is none, or its module is not imported and must not be."""
    parts = path.split(".")
    for count in range(len(parts), 0, -1):
        name = ".".join(parts[:count])
        module = sys.modules.get(name)
        if module is None and not if_imported:
            with contextlib.suppress(ModuleNotFoundError):
                module = importlib.import_module(name)
        if module is not None:
            return reduce(lambda owner, part: getattr(owner, part, ABSENT), parts[count:], module)
    return ABSENT


# The lock

_lock: Any = threading.RLock()
_busy = False
"""Whether somebody has the lock, as far as it matters for saying so."""


def patched_here() -> bool:
    """Whether this is the thread for which functions are replaced: the one that has the lock."""
    return bool(_lock._is_owned())


@contextlib.contextmanager
def locked(waiting: Callable[[], None] | None = None) -> Iterator[None]:
    """Hold the lock; ``waiting`` is called if another thread has it."""
    global _busy
    if waiting is not None and _busy and not patched_here():
        waiting()
    with _lock:
        before = _busy
        try:
            _busy = True
            yield
        finally:
            _busy = before


@contextlib.contextmanager
def exclusive(waiting: Callable[[], None] | None = None) -> Iterator[None]:
    """One export at a time. What an export around this one has patched is meanwhile as it was."""
    with locked(waiting):
        around = list(_changes)
        suspended = [change for change in around if isinstance(change, _Applied) and change.how is not How.KEPT]

        def resume() -> None:
            # Also what Ctrl-C has left, that came between the end of a `with` and its first line.
            _leave([change for change in _changes if not _is_in(change, around)])
            _each(suspended, _Applied.enter)

        try:
            if suspended:
                uninterrupted(lambda: _each(reversed(suspended), _Applied.leave))
            yield
        finally:
            if suspended or len(_changes) != len(around):
                uninterrupted(resume)


def _each(changes: Iterable[_Applied], step: Callable[[_Applied], None]) -> None:
    for change in changes:
        step(change)


def uninterrupted(step: Callable[[], Any]) -> None:
    """Run something short; Ctrl-C comes afterwards."""
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        step()
        return
    arrived: list[tuple[Any, ...]] = []
    signal.signal(signal.SIGINT, lambda *arguments: arrived.append(arguments))
    try:
        step()
    finally:
        signal.signal(signal.SIGINT, handler)
        if arrived:
            handler(*arrived[0])


_arrived: list[Callable[[], Any]] = []
"""Ctrl-C that waits for the next `interruption_point`."""


@contextlib.contextmanager
def interrupted_between_operators() -> Iterator[None]:
    """Ctrl-C and SIGTERM wait for the next `interruption_point`, or for the end; a second one comes at once.

    PyTorch changes in several steps what calls are dispatched to. An exception between two of them ends the process.
    """
    asked = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    handlers: dict[int, Any] = {number: handler for number, handler in asked.items() if callable(handler)}
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def wait(number: int, frame: Any) -> None:
        if _arrived:
            _arrived.clear()
            handlers[number](number, frame)
        else:
            _arrived.append(partial(handlers[number], number, frame))

    for number in handlers:
        signal.signal(number, wait)
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        interruption_point()


def interruption_point() -> None:
    """Where nothing is half done: what has arrived is heard now."""
    while _arrived:
        _arrived.pop()()


# What is changed


class _Change(Protocol):
    def enter(self) -> None: ...

    def leave(self) -> None: ...


_changes: list[_Change] = []
"""Everything that is changed now, in the order in which it was."""


def _is_in(change: _Change, changes: Iterable[_Change]) -> bool:
    return any(change is other for other in changes)


def _leave(changes: Iterable[_Change]) -> None:
    """Put back what is still changed of these; a fault in one does not keep the others from it."""
    fault: Exception | None = None
    for change in reversed(list(changes)):
        if _changes and _changes[-1] is change:  # nearly always: the last one goes first
            _changes.pop()
        elif _is_in(change, _changes):
            _changes[:] = [other for other in _changes if other is not change]
        else:
            continue
        try:
            change.leave()
        except Exception as error:  # noqa: BLE001 (raised again below)
            fault = fault or error
    if fault is not None:
        raise fault


@contextlib.contextmanager
def _entered(changes: Callable[[], Iterable[_Change]]) -> Iterator[None]:
    with locked():
        own: list[_Change] = []

        def enter() -> None:
            for change in changes():
                own.append(change)
                _changes.append(change)
                change.enter()

        def leave() -> None:
            _leave(own)
            own.clear()

        try:
            try:
                uninterrupted(enter)
                yield
            finally:
                uninterrupted(leave)
        finally:
            if own:  # Ctrl-C has come just before the first: then nothing has been left yet
                uninterrupted(leave)


def patched(patches: Iterable[Patch]) -> contextlib.AbstractContextManager[None]:
    """Enter patches in their order, under the lock; afterwards everything is what it was."""
    listed = list(patches)

    def changes() -> Iterator[_Change]:
        for patch in listed:
            if patch.when_imported and patch.when_imported not in sys.modules:
                yield _WhenImported(patch)
            elif (owner := patch.resolved()) is not ABSENT:
                yield _Applied(patch, owner)

    return _entered(changes)


def restored(restore: Callable[[], None]) -> contextlib.AbstractContextManager[None]:
    """Run ``restore`` afterwards as part of the same mechanism: for what is no attribute."""
    return _entered(lambda: [_Restored(restore)])


@dataclass
class _Restored:
    restore: Callable[[], None]

    def enter(self) -> None:
        """What has to be put back changes by itself."""

    def leave(self) -> None:
        self.restore()


class _WhenImported:
    """A patch of a module that is not imported yet; in force from then on."""

    def __init__(self, patch: Patch) -> None:
        self._patch = patch
        self._applied: list[_Change] = []

    def enter(self) -> None:
        sys.meta_path.insert(0, self)  # type: ignore[arg-type]

    def leave(self) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)  # type: ignore[arg-type]
        _leave(self._applied)

    def find_spec(self, name: str, path: Any = None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != self._patch.when_imported:
            return None
        sys.meta_path.remove(self)  # type: ignore[arg-type]
        spec = find_spec(name)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def executed(module: ModuleType) -> None:
                execute(module)
                change = _Applied(self._patch, self._patch.resolved())
                self._applied.append(change)
                _changes.append(change)
                change.enter()

            spec.loader.exec_module = executed  # type: ignore[method-assign]
        return spec


class _Applied:
    """A patch that is in force."""

    def __init__(self, patch: Patch, owner: Any) -> None:
        if patch.how is How.CODE:
            owner, patch = getattr(owner, patch.name), Patch(owner, patch.name, patch.replacement, patch.reason)
            self._name, self._value = "__code__", _dispatching_code(owner, patch)
        elif patch.how is How.FUNCTION:
            self._name, self._value = patch.name, _dispatching(owner, patch)
        else:
            self._name, self._value = patch.name, patch.replacement
        self._owner, self.how = owner, patch.how
        self._before = getattr(owner, self._name) if self.how is How.KEPT else _held(owner, self._name)
        # What is taken out of a dict comes back in its old place; anything else stays where it is.
        self._items = list(owner.items()) if isinstance(owner, dict) and self._value is ABSENT else None

    def enter(self) -> None:
        if self.how is not How.KEPT:
            _put(self._owner, self._name, self._value)

    def leave(self) -> None:
        if self._items is not None:
            self._owner.clear()
            self._owner.update(self._items)
        else:
            _put(self._owner, self._name, self._before)


def _held(owner: Any, name: str) -> Any:
    """What the owner itself has, not its class."""
    held = owner if isinstance(owner, dict) else vars(owner)
    if name in held:
        return held[name]
    is_described = not isinstance(owner, (type, dict)) and hasattr(getattr_static(type(owner), name, None), "__set__")
    return getattr(owner, name) if is_described else ABSENT


def _put(owner: Any, name: str, value: Any) -> None:
    if isinstance(owner, dict):
        if value is ABSENT:
            owner.pop(name, None)
        else:
            owner[name] = value
    elif value is not ABSENT:
        setattr(owner, name, value)
    elif name in vars(owner):
        delattr(owner, name)


def _dispatching(owner: Any, patch: Patch) -> Any:
    """A function that calls the replacement in the thread that exports, and the original in all others."""
    original = getattr_static(owner, patch.name) if isinstance(owner, type) else getattr(owner, patch.name)
    function: Any = wraps(original)(_dispatcher(patch.replacement, original))
    function._torchdynamo_inline = original  # what torch._dynamo, which some operators use, takes it for
    return function


def _dispatcher(replacement: Callable[..., Any], original: Callable[..., Any]) -> Any:
    def call(*args: Any, **kwargs: Any) -> Any:
        if patched_here():
            return replacement(original, *args, **kwargs)
        return original(*args, **kwargs)

    return call


DISPATCH: CodeType = _dispatcher(id, id).__code__
"""The code of every such function, by which a replacement that looks for its caller knows its frame."""


_originals: dict[str, tuple[Any, Any]] = {}
"""By the name of a function: what its code does for the thread that exports, and what it did before."""


def _dispatching_code(function: FunctionType, patch: Patch) -> CodeType:
    """Code without variables of its own, for a function whose globals are somebody else's."""
    name = f"{function.__module__}.{function.__qualname__}"
    original = FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )
    original.__kwdefaults__ = function.__kwdefaults__
    _originals[name] = (patch.replacement, original)

    def code(*args, **kwargs):  # type: ignore[no-untyped-def]
        from tonnx.frontends.patching import call_replaced

        return call_replaced("NAME", *args, **kwargs)

    constants = tuple(name if constant == "NAME" else constant for constant in code.__code__.co_consts)
    # A closure, such as lightning puts in the place of torch.compile, takes only code that names as many variables.
    return code.__code__.replace(co_consts=constants, co_freevars=function.__code__.co_freevars)


def call_replaced(name: str, *args: Any, **kwargs: Any) -> Any:
    """What a function does whose code was replaced."""
    replacement, original = _originals[name]
    return replacement(original, *args, **kwargs) if patched_here() else original(*args, **kwargs)


def _after_fork() -> None:
    """In the child of a fork there is one thread; what another one has patched, nobody else would put back."""
    global _lock, _busy
    if patched_here():  # the child goes on inside the export, as its parent does
        return
    _lock, _busy = threading.RLock(), False
    while _changes:
        change = _changes.pop()
        if isinstance(change, _Applied):  # tensors may not be touched here: the threads of their kernels are gone
            change.leave()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
