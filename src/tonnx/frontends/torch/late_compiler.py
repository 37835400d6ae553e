"""PyTorch's compiler is imported when somebody asks for it, not because tensors without values read its options.

`FakeTensorMode` reads a module of `torch._dynamo`, sizes that are symbols three more. Those are small; the package
itself imports the whole compiler: half of a process's first export, and a quarter of its memory.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

from torch.utils._python_dispatch import _disable_current_modes

from tonnx.frontends.patching import DISPATCH
from tonnx.late_modules import late

_PACKAGE = "torch._dynamo"
_PARTS = ("config", "exc", "utils", "source")
"""What tensors without values read."""
_VALIDATOR = "torch.fx.experimental.validator"
"""It imports parts of the compiler; ``ShapeEnv`` asks it whether it is to do anything."""

_waits = False
"""Until the package is whole: also while its own code runs, which computes."""
_not_disabled: list[Any] = []
"""Functions that PyTorch wants to keep from the compiler, and that had nothing to be kept from so far."""


def prepare() -> None:
    """Let the compiler wait, unless it is imported; of its parts those can be imported alone that a capture needs."""
    global _waits
    spec = None if _PACKAGE in sys.modules else find_spec(_PACKAGE)
    if spec is not None:
        _waits = True
        late(spec, _around, _PARTS, disable=_disable)
    spec = None if _VALIDATOR in sys.modules else find_spec(_VALIDATOR)
    if spec is not None:
        late(spec, translation_validation_enabled=_validates)


def _validates() -> bool:
    """``translation_validation_enabled``; only where the option is set, its module has to be there for that."""
    from torch.fx.experimental import _config

    if not _config.translation_validation:
        return False
    validator = sys.modules[_VALIDATOR]
    vars(validator).pop("translation_validation_enabled", None)
    return bool(validator.translation_validation_enabled())


def function_rules(original: Any) -> dict[Any, Any]:
    """The compiler's table of functions. Made while some are replaced, it would know only what stands in for them."""
    is_new = not original.cache_info().currsize
    rules: dict[Any, Any] = original()
    if is_new:
        replaced = [function for function in rules if getattr(function, "__code__", None) is DISPATCH]
        rules.update({function._torchdynamo_inline: rules[function] for function in replaced})
    return rules


def _disable(function: Any, *args: Any, **options: Any) -> Any:
    """``torch._dynamo.disable``; what PyTorch disables of its own stays as it is until there is a compiler."""
    if _waits and sys._getframe(1).f_globals.get("__name__") == "torch._compile":
        _not_disabled.append(function)
        return function
    from torch._dynamo.decorators import disable

    return disable(function, *args, **options)


@contextlib.contextmanager
def _around() -> Iterator[None]:
    """The package computes as it is executed, which is no part of a capture that is under way."""
    global _waits
    try:
        with _disable_current_modes():
            yield
    finally:
        _waits = False
        while _not_disabled:  # PyTorch keeps there what it got
            vars(_not_disabled.pop()).pop("__dynamo_disable", None)
