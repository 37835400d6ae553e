"""What a damaged file gives: one kind of error, with the place inside the file."""

from __future__ import annotations

from tonnx.errors import InvalidModel


def damaged(why: str, *, hint: str | None = None) -> InvalidModel:
    """An error without a place; every ``at`` around the raise adds its part of the place."""
    return InvalidModel("the Paddle model cannot be read", why=why, hint=hint)


class at:  # reads as a word: with at("block 0")
    """Say where in the file a fault lies: ``model.json, block 0, op 3 (conv2d)``."""

    __slots__ = ("place",)

    def __init__(self, place: str) -> None:
        self.place = place

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, InvalidModel):
            error.where = f"{self.place}, {error.where}" if error.where else self.place


def quoted(value: object, limit: int = 60) -> str:
    """What a file says, short enough for a message, whatever it is."""
    if isinstance(value, (dict, list)):  # its text could be as long and as deep as the file
        return f"{'an object' if isinstance(value, dict) else 'a list'} of {len(value)}"
    shown = repr(value[: limit + 1]) if isinstance(value, (str, bytes)) else repr(value)
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"
