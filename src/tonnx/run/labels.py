"""Label files: one label a line, or a JSON list."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tonnx.errors import InvalidArgument


def read_labels(source: Any, folder: Path | None = None) -> list[str]:
    """The labels: a list as it is, or the lines of a file, whose name may be relative to the recipe's folder."""
    if isinstance(source, Sequence) and not isinstance(source, str):
        return [str(label) for label in source]
    path = Path(str(source))
    if folder is not None and not path.is_absolute():
        path = folder / path
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidArgument(f"cannot read the label file {path}", why=str(error)) from error
    if path.suffix.lower() == ".json":
        try:
            labels = json.loads(text)
        except json.JSONDecodeError as error:
            raise InvalidArgument(f"the label file {path} is not JSON", why=str(error)) from error
        if not isinstance(labels, list):
            raise InvalidArgument(f"the label file {path} must hold a list")
        return [str(label) for label in labels]
    return text.splitlines()


def label_of(labels: Sequence[str] | None, index: int) -> str:
    """The label of a class, or its number."""
    if labels is None:
        return str(index)
    if not 0 <= index < len(labels):
        raise InvalidArgument(f"class {index} has no label", why=f"there are {len(labels)} labels")
    return labels[index]
