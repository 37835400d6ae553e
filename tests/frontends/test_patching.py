"""Patches: replaced for one thread, put back in reverse whatever happens, one holder of the lock at a time."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import sys
import threading
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tonnx.errors import TonnxError
from tonnx.frontends import patching
from tonnx.frontends.patching import ABSENT, How, Patch, exclusive, patched, patched_here, restored


class Base:
    def inherited(self) -> str:
        return "base"


class Owner(Base):
    flag = 1

    def method(self, x: int = 0) -> str:
        return f"method {x}"

    @property
    def described(self) -> int:
        return self._hidden

    @described.setter
    def described(self, value: int) -> None:
        self._hidden = value


def taken_by_name(x: int, *, y: int = 2) -> tuple[str, int, int]:
    return "original", x, y


def answer(original: Any, *args: Any, **kwargs: Any) -> Any:
    return ("replaced", original(*args, **kwargs))


def in_thread(function: Callable[[], Any]) -> Any:
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(function()))
    thread.start()
    thread.join(30)
    assert results, "the thread does not end"
    return results[0]


@pytest.fixture
def module() -> Iterator[types.ModuleType]:
    made = types.ModuleType("some_package.part")
    made.Owner, made.function = Owner, taken_by_name  # type: ignore[attr-defined]
    sys.modules["some_package.part"] = made
    yield made
    del sys.modules["some_package.part"]


def test_function_is_replaced_for_one_thread(module: Any) -> None:
    with patched(
        [
            Patch("some_package.part.Owner", "method", answer, "a method"),
            Patch("some_package.part.Owner", "inherited", answer, "of the class above"),
            Patch(module, "function", answer, "of a module"),
        ]
    ):
        assert Owner().method(3) == ("replaced", "method 3")
        assert Owner().inherited() == ("replaced", "base")
        assert module.function(1) == ("replaced", ("original", 1, 2))
        assert Base().inherited() == "base"
        assert in_thread(lambda: (Owner().method(3), Owner().inherited(), module.function(1, y=4))) == (
            "method 3", "base", ("original", 1, 4),
        )  # fmt: skip
    assert Owner().method(3) == "method 3" and "inherited" not in vars(Owner) and module.function is taken_by_name


def test_code_of_a_function_that_others_hold(module: Any) -> None:
    code, held = taken_by_name.__code__, taken_by_name
    with patched([Patch("some_package.part", "function", answer, "imported by name", How.CODE)]):
        assert held(1) == ("replaced", ("original", 1, 2)) and held(1, y=3) == ("replaced", ("original", 1, 3))
        assert in_thread(lambda: held(1)) == ("original", 1, 2)
    assert held.__code__ is code and held(1) == ("original", 1, 2)


def test_code_of_a_closure(module: Any) -> None:
    """Libraries put one in the place of a function of PyTorch: lightning in that of torch.compile."""
    held = module.function = functools.wraps(taken_by_name)(lambda *args: (module, *taken_by_name(*args)))
    with patched([Patch("some_package.part", "function", answer, "imported by name", How.CODE)]):
        assert held(1) == ("replaced", (module, "original", 1, 2))
        assert in_thread(lambda: held(1)) == (module, "original", 1, 2)
    assert held(1) == (module, "original", 1, 2)


def test_values() -> None:
    owner, held = Owner(), {"a": 1, "b": 2, "c": 3}
    owner.described, owner.kept = 5, "before"  # type: ignore[attr-defined]
    function, code = taken_by_name, taken_by_name.__code__
    patches = [
        Patch(owner, "flag", 2, "of the class", How.VALUE),
        Patch(owner, "described", 6, "a property", How.VALUE),
        Patch(owner, "kept", None, "whatever it becomes", How.KEPT),
        Patch(held, "b", ABSENT, "an item", How.VALUE),
        Patch(function, "__code__", in_thread.__code__, "a function's code", How.VALUE),
    ]
    with patched(patches):
        assert (owner.flag, owner.described, held) == (2, 6, {"a": 1, "c": 3})
        assert function.__code__ is in_thread.__code__
        owner.kept = "after"  # type: ignore[attr-defined]
        held["d"] = 4
    assert vars(owner) == {"_hidden": 5, "kept": "before"} and owner.flag == 1
    assert list(held.items()) == [("a", 1), ("b", 2), ("c", 3)] and function.__code__ is code


def test_one_attribute_twice_is_put_back_in_reverse() -> None:
    with patched([Patch(Owner, "method", answer, "first"), Patch(Owner, "method", answer, "second")]):
        assert Owner().method() == ("replaced", ("replaced", "method 0"))
    assert Owner().method() == "method 0"


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, GeneratorExit])
def test_put_back_whatever_happens(error: type[BaseException]) -> None:
    def fails() -> Iterator[Patch]:
        yield Patch(Owner, "method", answer, "entered")
        yield Patch("some_package_that_is_not_there", "name", answer, "fails", optional=False)

    before = dict(vars(Owner))
    with pytest.raises(TonnxError), patched(fails()):
        raise AssertionError("entered")
    with pytest.raises(error), patched([Patch(Owner, "method", answer, "")]):
        raise error

    def broken() -> None:
        raise OSError

    with pytest.raises(OSError), patched([Patch(Owner, "method", answer, "")]), restored(broken):
        pass
    assert dict(vars(Owner)) == before and not patching._changes and not patched_here()


def test_names_that_vanished(module: Any) -> None:
    module.__version__ = sys.modules.setdefault("some_package", types.ModuleType("some_package")).__version__ = "9.9"  # type: ignore[attr-defined]
    try:
        message = r"some_package 9\.9 has no some_package\.part\._private, .*\n.*for lines"
        with (
            pytest.raises(TonnxError, match=message),
            patched([Patch("some_package.part", "_private", answer, "for lines")]),
        ):
            pass
        with patched(
            [
                Patch("some_package.part", "_private", answer, "", optional=True),
                Patch("some_package.part.Gone", "method", answer, "", optional=True),
                Patch("some_package.never_imported", "name", answer, "", optional=True),
            ]
        ):
            assert not patching._changes
    finally:
        del sys.modules["some_package"]


def test_an_export_inside_sees_nothing_of_the_one_around() -> None:
    with exclusive(), patched([Patch(Owner, "method", answer, "outer")]):
        with exclusive():
            assert Owner().method() == "method 0"
            with patched([Patch(Owner, "method", lambda original, self: "inner", "inner")]):
                assert Owner().method() == "inner"
        assert Owner().method() == ("replaced", "method 0")
    assert Owner().method() == "method 0"


def test_two_threads_wait_for_each_other() -> None:
    order: list[str] = []
    waiting = threading.Event()

    def other() -> None:
        with exclusive(waiting.set):
            order.append("other")

    with exclusive(lambda: order.append("nobody waits here")):
        thread = threading.Thread(target=other)
        thread.start()
        assert waiting.wait(30)
        with exclusive(), patched([Patch(Owner, "method", answer, "")]):
            order.append("this")
    thread.join(30)
    assert order == ["this", "other"]


def test_interrupt_at_every_step() -> None:
    """Ctrl-C wherever Python looks for it in the mechanism: as a function begins, and after one in C."""
    own = {patching.__file__, contextlib.__file__}
    steps = 0

    class Interrupt:
        def __init__(self, at: int) -> None:
            self.left = at

        def __call__(self, frame: Any, event: str, argument: Any) -> None:
            if frame.f_code.co_filename in own and event in ("call", "c_return"):
                self.left -= 1
                if self.left == 0:
                    signal.raise_signal(signal.SIGINT)

    handler, before, held = signal.getsignal(signal.SIGINT), dict(vars(Owner)), {"a": 1, "b": 2}
    patches = [Patch(Owner, "method", answer, ""), Patch(held, "a", ABSENT, "", How.VALUE)]
    profiler = sys.getprofile()
    for step in range(1, 1000):
        interrupt = Interrupt(step)
        with contextlib.suppress(KeyboardInterrupt):
            try:
                sys.setprofile(interrupt)
                with exclusive(), patched(patches), restored(lambda: held.pop("c", None)):  # type: ignore[arg-type]
                    held["c"] = 3
            finally:
                sys.setprofile(profiler)
        assert dict(vars(Owner)) == before and held == {"a": 1, "b": 2}, step
        assert not patching._changes and not patched_here(), step
        assert signal.getsignal(signal.SIGINT) is handler, step
        if interrupt.left > 0:
            break
        steps += 1
    assert steps > 50
    assert in_thread(lambda: patching._lock.acquire(timeout=5) and patching._lock.release() is None)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")
def test_fork_while_another_thread_holds_the_lock() -> None:
    inside, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with exclusive(), patched([Patch(Owner, "method", answer, ""), Patch(Owner, "flag", 2, "", How.VALUE)]):
            inside.set()
            leave.wait(30)

    thread = threading.Thread(target=hold)
    thread.start()
    assert inside.wait(30)
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        with exclusive():
            fine = Owner.flag == 1 and Owner().method() == "method 0" and not patching._changes
        os._exit(0 if fine else 1)
    leave.set()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    thread.join(30)
    assert Owner.flag == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_fork_inside_goes_on_inside() -> None:
    with exclusive(), patched([Patch(Owner, "method", answer, "")]):
        child = os.fork()
        if child == 0:
            signal.alarm(20)
            fine = Owner().method() == ("replaced", "method 0") and patched_here()
            os._exit(0 if fine else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
