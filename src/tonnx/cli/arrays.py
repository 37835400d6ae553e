"""Real input values from files."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tonnx.errors import InvalidArgument


def read_arrays(paths: Sequence[str]) -> dict[str, np.ndarray]:
    """``data.npz`` has its own names; ``x.npy`` is called by its file, ``ids=some.npy`` as it says."""
    arrays: dict[str, np.ndarray] = {}
    for text in paths:
        name, equals, path = text.rpartition("=")
        file = Path(path)
        try:
            content = np.load(file, allow_pickle=False)
        except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
            # numpy takes everything that it does not know for a pickle
            why = "it is not in numpy's format" if "pickle" in str(error) else str(error)
            raise InvalidArgument(f"cannot read {file}", why=why, hint="give a .npz or .npy file") from error
        if isinstance(content, np.ndarray):
            arrays[name if equals else file.stem] = content
        else:
            with content:
                arrays.update(content.items())
    return arrays
