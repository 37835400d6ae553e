"""The options of a command as keys of a manifest: ``no-fold = true`` is ``--no-fold``.

They are read from the command's own parser, so what a command learns, manifests know.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

LEFT_OUT = ("help", "output", "report", "json", "quiet", "verbose", "debug", "weights", "opset")
"""What the zoo says itself, or what makes no sense there: the weights of a zoo are copied into its folder."""


class Options:
    """The options that a command has."""

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        self._actions: dict[str, argparse.Action] = {}
        for action in parser._actions:
            for text in action.option_strings:
                name = text.removeprefix("--")
                if text.startswith("--") and name not in LEFT_OUT and not _negates(action, name):
                    self._actions[name] = action

    @property
    def names(self) -> list[str]:
        return sorted(self._actions)

    def words(self, name: str, value: Any) -> list[str]:
        """An option with its value as words of a command line. Raises ValueError if it does not fit."""
        action, flag = self._actions[name], f"--{name}"
        if isinstance(action, argparse.BooleanOptionalAction):
            return [flag if _boolean(value) else f"--no-{name}"]
        if action.nargs == 0:
            return [flag] if _boolean(value) else []
        values = value if isinstance(value, list) else [value]
        several = isinstance(action, argparse._AppendAction) or action.nargs in ("+", "*")
        if not several and isinstance(value, list):
            if action.type is None or not _is_list(action, values):
                raise ValueError("it takes one value, not a list")
            values = [",".join(map(str, values))]
        texts = [_checked(action, one) for one in values]
        # What begins with a dash would be taken for an option of its own.
        return [word for text in texts for word in ([f"{flag}={text}"] if text.startswith("-") else [flag, text])]


def _is_list(action: argparse.Action, values: Sequence[Any]) -> bool:
    """Whether the option takes a list that is written with commas."""
    try:
        return isinstance(action.type(",".join(map(str, values))), list)  # type: ignore[operator, misc]
    except (argparse.ArgumentTypeError, ValueError, TypeError):
        return False


def _negates(action: argparse.Action, name: str) -> bool:
    """``--no-x`` of an option that ``x = false`` says already."""
    return isinstance(action, argparse.BooleanOptionalAction) and name.startswith("no-")


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"it is true or false, not {value!r}")
    return value


def _checked(action: argparse.Action, value: Any) -> str:
    """A value as text, after the command's own check of it."""
    if isinstance(value, (bool, dict, list)):
        raise ValueError(f"it is a text or a number, not {value!r}")
    text = str(value)
    try:
        converted = action.type(text) if callable(action.type) else text
    except argparse.ArgumentTypeError as error:
        raise ValueError(str(error)) from None
    except (TypeError, ValueError):
        raise ValueError(f"{text!r} does not fit") from None
    if action.choices is not None and converted not in action.choices:
        raise ValueError(f"it is one of {', '.join(map(str, action.choices))}, not {text!r}")
    return text
