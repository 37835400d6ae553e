"""linger's settings, as its YAML files have them, and what they are in a `tonnx.quant.Config`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tonnx.errors import InvalidArgument, needed
from tonnx.quant.config import Config, read_yaml

_QUANT_INFO: dict[str, Any] = {
    "weight_bits": 8,
    "activate_bits": 8,
    "bias_bits": 32,
    "is_symmetry": True,
    "is_perchannel": False,
    "round_mode": "floor_add",
    "qat_method": "MOM",
}
_CLAMP_INFO: dict[str, Any] = {
    "clamp_activation_value": 8,
    "clamp_factor_value": 7,
    "clamp_weight_value": None,
    "clamp_bias_value": None,
}
_ROUNDINGS = {"floor_add": "up", "round": "even"}
_METHODS = {"MOM": "moving", "TQT": "learned"}
_MEANINGLESS = {
    "device": "a model stays on the device that it is on",
    "dtype": "a model keeps its dtype",
    "seed": "no random number is drawn",
    "platform": "a file of ONNX's own operators is for every platform",
    "quant_method": "there is one implementation, for every device",
    "calibration": "calibration is a context manager",
    "a_calibrate_name": "ranges are those of the data, by qat_method",
    "w_calibrate_name": "a weight's range is that of its numbers",
    "a_strategy": "ranges are those of the data, by qat_method",
    "w_strategy": "a weight's range is that of its numbers",
    "activation_type": "which activation follows a layer is found while the model runs",
    "clamp_bias_value": "biases have 32 bits",
}
"""What changes nothing here, and why."""


@dataclass
class Settings:
    """linger's settings."""

    quant_info: dict[str, Any] = field(default_factory=lambda: dict(_QUANT_INFO))
    clamp_info: dict[str, Any] = field(default_factory=lambda: dict(_CLAMP_INFO))
    parts: list[tuple[list[str], dict[str, Any]]] = field(default_factory=list)
    """Names of modules, and what differs there."""
    open_quant: bool = True
    has_limits: bool = False
    """Whether the file says something about limits."""
    notes: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Settings:
        settings = cls()
        for key, value in read_yaml(path).items():
            if key == "open_quant":
                settings.open_quant = bool(value)
            elif key == "quant_info":
                settings.quant_info.update(settings._known(value, _QUANT_INFO, key))
            elif key == "clamp_info":
                settings.clamp_info.update(settings._known(value, _CLAMP_INFO, key))
                settings.has_limits = True
            elif isinstance(value, Mapping) and "name" in value:
                settings._part(key, value)
            elif key == "mix_parts":
                for number, part in enumerate(value or ()):
                    settings._part(f"mix_parts[{number}]", part)
            elif key in _MEANINGLESS:
                settings.notes.append(f"{key} changes nothing here: {_MEANINGLESS[key]}")
            else:
                settings.notes.append(f"{key} is no setting of linger's, and changes nothing")
        return settings

    def _part(self, key: str, part: Any) -> None:
        if not isinstance(part, Mapping) or "name" not in part:
            raise InvalidArgument(f"{key} must have the names of its layers", hint="name: [layer1, layer2]")
        names = [part["name"]] if isinstance(part["name"], str) else list(part["name"])
        self.parts.append((names, self._known(part.get("quant_info", {}), _QUANT_INFO, f"{key}.quant_info")))
        if part.get("clamp_info"):
            self.notes.append(f"{key}.clamp_info changes nothing here: limits are for the whole model")

    def _known(self, values: Any, allowed: Mapping[str, Any], where: str) -> dict[str, Any]:
        if not isinstance(values, Mapping):
            raise InvalidArgument(f"{where} must be a mapping, not {values!r}")
        usual = ("top_10", "abs_max", "RANGE_MEAN", "none", None)
        for name in set(values) - set(allowed):
            why = _MEANINGLESS.get(name, "it is no setting of linger's")
            if values[name] not in usual:
                self.notes.append(f"{where}.{name} changes nothing here: {why}")
        return {name: value for name, value in values.items() if name in allowed}

    def config(
        self, skip: Iterable[str], layers: Mapping[str, Mapping[str, Any]], weight_bits: int | None, fold: bool
    ) -> Config:
        own = _translated(self.quant_info)
        if own is None:
            raise InvalidArgument("activations of 32 bits are floats", hint="open_quant: false leaves a model as it is")
        if weight_bits is not None:
            own["weight_bits"] = weight_bits
        alone = list(dict.fromkeys(skip))
        by_name: dict[str, dict[str, Any]] = {}
        for names, info in self.parts:
            different = _translated(info)
            for name in names:
                if different is None:
                    alone.append(name)
                else:
                    by_name.setdefault(name, {}).update(different)
        for name, bits in layers.items():
            by_name.setdefault(name, {}).update(bits)
        return Config(power_of_two=True, fold_batch_norm=fold, skip=tuple(alone), layers=by_name, **own)

    def limits(self) -> dict[str, Any]:
        info = self.clamp_info
        return {
            "activations": info["clamp_activation_value"],
            "weights": info["clamp_factor_value"],
            "weight_limit": info["clamp_weight_value"],
        }

    def save(self, path: str | os.PathLike[str]) -> None:
        yaml = needed("yaml", "YAML files are written with PyYAML", "pip install pyyaml")
        data: dict[str, Any] = {"open_quant": self.open_quant, "quant_info": self.quant_info}
        data["clamp_info"] = self.clamp_info
        for number, (names, info) in enumerate(self.parts, 1):
            data[f"part{number}"] = {"name": names, "quant_info": info}
        Path(path).write_text(yaml.safe_dump(data, allow_unicode=True), encoding="utf-8")


def _translated(info: Mapping[str, Any]) -> dict[str, Any] | None:
    """linger's words as those of a `Config`; None: activations of 32 bits, which are not quantised."""
    if info.get("activate_bits") == 32:
        return None
    own: dict[str, Any] = {}
    for name, words in (("round_mode", _ROUNDINGS), ("qat_method", _METHODS)):
        if name in info and info[name] not in words:
            raise InvalidArgument(f"{name}: {info[name]} is not supported", hint=f"there are: {', '.join(words)}")
    if "round_mode" in info:
        own["rounding"] = _ROUNDINGS[info["round_mode"]]
    if "qat_method" in info:
        own["scales"] = _METHODS[info["qat_method"]]
    for name, here in (("weight_bits",) * 2, ("activate_bits", "activation_bits"), ("bias_bits",) * 2):
        if name in info:
            own[here] = info[name]
    if "is_symmetry" in info:
        own["symmetric_weights"] = own["symmetric_activations"] = info["is_symmetry"]
    if "is_perchannel" in info:
        own["per_channel"] = info["is_perchannel"]
    return own
