"""Sounds: WAV files, and the array that a network takes of them: samples, or their spectrogram on the mel scale.

Files are read with care, by nothing but Python's own library.
"""

from __future__ import annotations

import os
import wave
from collections.abc import Mapping
from typing import Any

import numpy as np

from tonnx.errors import InvalidArgument

LOG_MEL = "WhisperFeatureExtractor"
"""The kind of features, by transformers' name, that are a spectrogram of a fixed length."""


def features_of(samples: np.ndarray, settings: Mapping[str, Any], spectrogram: bool) -> np.ndarray:
    """Samples between -1 and 1 as preprocessor_config.json says."""
    if not spectrogram:
        if settings.get("do_normalize"):
            samples = (samples - samples.mean()) / np.sqrt(samples.var() + 1e-7)
        return samples.astype(np.float32)
    if settings.get("feature_extractor_type") != LOG_MEL:
        raise InvalidArgument(
            f"sounds cannot be prepared as {settings.get('feature_extractor_type') or 'the checkpoint'} does it",
            hint="give the array that the network takes",
        )
    return log_mel(samples, settings)


def longest(settings: Mapping[str, Any]) -> int | None:
    """How many samples go into the network at once, if that is fixed."""
    if settings.get("feature_extractor_type") != LOG_MEL:
        return None
    return int(settings.get("chunk_length", 30)) * int(settings.get("sampling_rate", 16_000))


def log_mel(samples: np.ndarray, settings: Mapping[str, Any]) -> np.ndarray:
    """The logarithm of the spectrogram, [bands, frames]: silence is added up to the fixed length."""
    size, step = int(settings.get("n_fft", 400)), int(settings.get("hop_length", 160))
    bands, rate = int(settings.get("feature_size", 80)), int(settings.get("sampling_rate", 16_000))
    count = longest(settings) or len(samples)
    silent = np.zeros(count)
    silent[: len(samples)] = samples[:count]
    wrapped = np.pad(silent, size // 2, mode="reflect")
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(size) / size)
    frames = np.lib.stride_tricks.sliding_window_view(wrapped, size)[::step][: count // step]
    power = np.abs(np.fft.rfft(frames * window, axis=1)) ** 2
    decades = np.log10(np.maximum(power @ _mel_bands(size // 2 + 1, bands, rate), 1e-10))
    decades = np.maximum(decades, decades.max() - 8.0)
    return np.ascontiguousarray(((decades + 4.0) / 4.0).T, np.float32)


_LINEAR, _BREAK, _PER_OCTAVE = 200 / 3, 1000.0, 27 / np.log(6.4)
"""Slaney's scale: so many hertz a mel below the break, so many mels for a factor of e above it."""


def _mel_bands(bins: int, bands: int, rate: int) -> np.ndarray:
    """Triangles of equal area between equal steps of the mel scale up to 8 kHz: [bins, bands]."""
    top = _BREAK / _LINEAR + np.log(8000.0 / _BREAK) * _PER_OCTAVE
    mels = np.linspace(0.0, top, bands + 2)
    above = _BREAK * np.exp((mels - _BREAK / _LINEAR) / _PER_OCTAVE)
    corners = np.where(mels < _BREAK / _LINEAR, mels * _LINEAR, above)
    hertz = np.linspace(0, rate // 2, bins)[:, None]
    low, middle, high = corners[:-2], corners[1:-1], corners[2:]
    triangles = np.minimum((hertz - low) / (middle - low), (high - hertz) / (high - middle))
    result: np.ndarray = np.maximum(triangles, 0.0) * (2.0 / (high - low))
    return result


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
