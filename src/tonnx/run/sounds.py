"""Read sounds with care: WAV files, with nothing but Python's own library."""

from __future__ import annotations

import os
import wave

import numpy as np

from tonnx.errors import InvalidArgument

_SAMPLES = {1: (np.uint8, 128, 128.0), 2: (np.int16, 0, 32768.0), 4: (np.int32, 0, 2147483648.0)}
"""By bytes a sample: how it is stored, what stands for silence, and the largest value."""


def read_wav(path: str | os.PathLike[str], rate: int) -> np.ndarray:
    """One channel of samples between -1 and 1; channels are averaged. The file must have this many samples a second."""
    name = os.fspath(path)
    try:
        with wave.open(name, "rb") as file:
            found, width, channels = file.getframerate(), file.getsampwidth(), file.getnchannels()
            data = file.readframes(file.getnframes())
    except FileNotFoundError:
        raise InvalidArgument(f"there is no file {name}") from None
    except (wave.Error, EOFError, OSError) as error:
        raise InvalidArgument(f"{name} cannot be read as a WAV file", why=str(error)) from error
    if found != rate:
        raise InvalidArgument(f"{name} has {found} samples a second, the model takes {rate}", hint="resample it first")
    if width not in _SAMPLES:
        raise InvalidArgument(f"{name} has {8 * width} bits a sample", why="known are 8, 16 and 32")
    dtype, silence, largest = _SAMPLES[width]
    samples = (np.frombuffer(data, dtype).astype(np.float32) - silence) / np.float32(largest)
    return np.asarray(samples.reshape(-1, channels).mean(axis=1), np.float32)
