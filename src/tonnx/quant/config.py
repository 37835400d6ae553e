"""How a network is quantised while it is trained: `Config`, by Python or YAML, with other settings for some layers."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from tonnx.errors import InvalidArgument, did_you_mean, needed, told_as

SCALES = ("max", "moving", "percentile", "learned")
ROUNDINGS = ("even", "up")


@dataclass(frozen=True)
class Config:
    """What `tonnx.quant.prepare` puts on a network.

    Example::

        Config(weight_bits=4, scales="learned", skip=("stem",), layers={"head": {"weight_bits": 8}})

    A name in ``layers`` and ``skip`` is that of a module (``features.0``), which stands for all inside of it, too, or
    of a function in one (``block.add``; of several, ``block.add#1`` is the second). ``*``, ``?``, ``[…]`` are patterns.
    """

    weight_bits: int = 8
    """2 to 8. A file stores them in 8 bits, or in 4 from opset 21 on."""
    activation_bits: int = 8
    """8 or 16."""
    bias_bits: int | None = 32
    """32, in steps of input times weight, as integer kernels add them; None leaves biases floats."""
    symmetric_weights: bool = True
    """The zero point is 0."""
    symmetric_activations: bool = False
    """The zero point is 0, which TensorRT and most accelerators want; without, ReLUs cost no bit."""
    per_channel: bool = True
    """A scale for each channel of a weight; False: one for all of it."""
    power_of_two: bool = False
    """Scales are powers of two."""
    scales: str = "moving"
    """Where the ranges of activations come from: ``max``, the widest seen; ``moving``, an average that follows; these
    two go on in training until `freeze`. ``percentile``, of what calibration saw. ``learned``: trained like a weight,
    from there on (LSQ; with powers of two TQT), also those of weights, which otherwise span their largest number."""
    momentum: float = 0.1
    """How fast ``moving`` follows."""
    percentile: float = 99.99
    rounding: str = "even"
    """Of a number between two steps: to the ``even`` one, as ONNX does, or ``up``, which the file says with Floor."""
    fold_batch_norm: bool = True
    """Batch normalisations are part of the convolution or linear layer before them, in training as in the file."""
    skip: tuple[str, ...] = ()
    """Layers to leave alone."""
    layers: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Other settings for some layers, by name or pattern; of several that match, later ones win."""

    def __post_init__(self) -> None:
        skip = (self.skip,) if isinstance(self.skip, str) else tuple(self.skip)
        object.__setattr__(self, "skip", skip)
        if not isinstance(self.layers, Mapping):
            raise InvalidArgument(f"layers must be a dict from names to settings, not {self.layers!r}")
        object.__setattr__(self, "layers", {name: dict(own) for name, own in self.layers.items()})
        _check(self)
        for name, own in self.layers.items():
            _check_names(own, of=f"layers[{name!r}]", allowed=_OF_A_LAYER)
            try:
                replace(self, layers={}, skip=(), **own)
            except InvalidArgument as error:
                raise InvalidArgument(f"layers[{name!r}]: {error.what}", why=error.why, hint=error.hint) from None

    @classmethod
    def read(cls, source: str | os.PathLike[str] | Mapping[str, Any]) -> Config:
        """From a YAML file, or from a dict of the same form."""
        data = source if isinstance(source, Mapping) else read_yaml(source)
        _check_names(data, of="the configuration", allowed=tuple(f.name for f in fields(cls)))
        values: dict[str, Any] = dict(data)
        return cls(**values)

    def data(self) -> dict[str, Any]:
        """As plain data, which `read` takes."""
        return {**asdict(self), "skip": list(self.skip)}

    def of(self, name: str) -> Config | None:
        """The settings of one layer or function; None: it is left alone."""
        if any(matches(pattern, name) for pattern in self.skip):
            return None
        own: dict[str, Any] = {}
        for pattern, part in self.layers.items():
            own.update(part if matches(pattern, name) else {})
        return replace(self, layers={}, skip=(), **own) if own else self

    def check_patterns(self, names: Iterable[str], *, complete: bool) -> None:
        """Refuse patterns that match none of these names; those of functions may come later unless ``complete``."""
        candidates = list(names)
        for pattern in (*self.skip, *self.layers):
            if not any(matches(pattern, name) for name in candidates):
                where = "that the model runs" if complete else "of the model"
                hint = did_you_mean(pattern, candidates, f"there are: {_some(candidates)}")
                raise InvalidArgument(f"{pattern!r} matches no layer {where}", hint=hint)

    def check_weights(self, weights: Mapping[str, bool]) -> None:
        """Refuse other bits for the weights of layers that have none, by the names of all."""
        for pattern, own in self.layers.items():
            named = [name for name in weights if matches(pattern, name)]
            if "weight_bits" in own and named and not any(weights[name] for name in named):
                raise InvalidArgument(
                    f"{pattern!r} cannot have weight_bits={own['weight_bits']}",
                    why=f"{'it has' if named == [pattern] else _some(named) + ' have'} no weights",
                )

    def difference(self, other: Config) -> str | None:
        """The first setting in which another differs, in words; None if there is none."""
        mine, theirs = self.data(), other.data()
        name = next((name for name in mine if mine[name] != theirs[name]), None)
        return None if name is None else f"{name} is {theirs[name]!r} there and {mine[name]!r} here"


_OF_A_LAYER = tuple(f.name for f in fields(Config) if f.name not in ("skip", "layers", "fold_batch_norm"))


def matches(pattern: str, name: str) -> bool:
    """Whether a pattern names a layer, or a module that it is in. A call's number (``block.add#1``) may be left out."""
    if "#" in name and matches(pattern, name.partition("#")[0]):
        return True
    parts = name.split(".")
    return any(fnmatchcase(".".join(parts[: count + 1]), pattern) for count in range(len(parts)))


def read_yaml(path: str | os.PathLike[str]) -> Mapping[str, Any]:
    yaml = needed("yaml", "YAML files are read with PyYAML", "pip install pyyaml")
    with told_as(InvalidArgument, f"{os.fspath(path)} cannot be read", OSError, UnicodeDecodeError, yaml.YAMLError):
        data = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    if data is None:
        return {}
    if not isinstance(data, Mapping) or not all(isinstance(key, str) for key in data):
        why = f"it is a {type(data).__name__}, not a mapping"
        raise InvalidArgument(f"{os.fspath(path)} holds no settings", why=why)
    return data


def _check_names(data: Mapping[str, Any], *, of: str, allowed: tuple[str, ...]) -> None:
    for name in data:
        if name not in allowed:
            hint = did_you_mean(name, allowed, f"there are: {', '.join(allowed)}")
            raise InvalidArgument(f"{of} has no setting {name!r}", hint=hint)


def _check(config: Config) -> None:
    _check_integer("weight_bits", config.weight_bits, range(2, 9), "weights have 2 to 8 bits")
    _check_integer("activation_bits", config.activation_bits, (8, 16), "activations have 8 or 16 bits")
    if config.bias_bits is not None:
        _check_integer("bias_bits", config.bias_bits, (32,), "biases have 32 bits, or None leaves them floats")
    for name in ("symmetric_weights", "symmetric_activations", "per_channel", "power_of_two", "fold_batch_norm"):
        if not isinstance(getattr(config, name), bool):
            raise InvalidArgument(f"{name} must be True or False, not {getattr(config, name)!r}")
    for name, choices in (("scales", SCALES), ("rounding", ROUNDINGS)):
        value = getattr(config, name)
        if value not in choices:
            raise InvalidArgument(f"{name} must be {', '.join(choices[:-1])} or {choices[-1]}, not {value!r}")
    for name, low, high in (("momentum", 0.0, 1.0), ("percentile", 50.0, 100.0)):
        value = getattr(config, name)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not low < value <= high:
            raise InvalidArgument(f"{name} must be above {low:g}, and {high:g} at most, not {value!r}")


def _check_integer(name: str, value: Any, choices: Iterable[int], why: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value not in choices:
        raise InvalidArgument(f"{name} cannot be {value!r}", why=why)


def _some(names: list[str]) -> str:
    return ", ".join(names[:8]) + (" …" if len(names) > 8 else "")
