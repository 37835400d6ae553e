"""linger's interface with another import, on any PyTorch: what it trains is exported with ONNX's own operators.

    import tonnx.linger as linger

    net = linger.init(net)                      # train it on
    linger.onnx.export(net, x, "net.onnx", opset_version=12)

The functions of linger 1.x and 3.x are here; docs/quantise.md says what each becomes. Settings that have no meaning
here are answered with a warning. Numbers are what linger's are: scales are powers of two, halves are rounded up.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary, WeakSet

from tonnx.errors import InvalidArgument
from tonnx.linger import onnx
from tonnx.linger.settings import Settings

if TYPE_CHECKING:
    import torch

__all__ = [
    "calibration",
    "config_save_to_yaml",
    "constrain",
    "disable_normalize",
    "disable_quant",
    "init",
    "normalize_layers",
    "normalize_module",
    "onnx",
    "quant_module",
    "quant_module_by_type",
    "trace_layers",
]


@dataclass
class _Wishes:
    """What was asked for a module before the model that it is in was prepared."""

    skip_quant: bool = False
    skip_limits: bool = False
    fold: bool | None = None
    bits: list[tuple[Any, dict[str, int]]] = field(default_factory=list)


_wishes: WeakKeyDictionary[Any, _Wishes] = WeakKeyDictionary()
_models: WeakSet[Any] = WeakSet()
_last = Settings()


def init(
    model: torch.nn.Module,
    config_file: str | os.PathLike[str] | None = None,
    disable_module: Any = None,
    disable_submodel: Iterable[str] | None = None,
    *,
    quant_modules: Any = None,
    parameter_bits: int | None = None,
    mode: Any = None,
) -> torch.nn.Module:
    """Quantise a model, in place, to be trained on; it is given back, too.

    Args:
        model: a float model, or one of `constrain`.
        config_file: a YAML file of linger.
        disable_module: types of layers that stay floats.
        disable_submodel: names of layers that stay floats, or patterns.
        quant_modules: types of layers that are quantised, of which all others stay floats (1.x).
        parameter_bits: of the weights (1.x).
        mode: linger's kind of quantisation (1.x): there is one here.
    """
    from tonnx.quant import constrain as limit
    from tonnx.quant import prepare
    from tonnx.quant.training.prepare import holder_of

    settings = _read(config_file)
    if mode is not None and "QValue" not in str(mode):
        warnings.warn(f"tonnx.linger: mode={mode} changes nothing here: scales are powers of two", stacklevel=2)
    if not settings.open_quant:
        warnings.warn("tonnx.linger: open_quant is false: the model stays as it is", stacklevel=2)
        return model
    skip = [*_of_types(model, disable_module), *(disable_submodel or ()), *_wished(model, "skip_quant")]
    if quant_modules is not None:
        skip += _others_than(model, quant_modules)
    config = settings.config(skip, _layers(model), parameter_bits, _fold(model))
    if settings.has_limits and holder_of(model) is None:
        limit(model, inplace=True, **settings.limits())
    prepare(model, config, inplace=True)
    _models.add(model)
    return model


def constrain(
    model: torch.nn.Module,
    config_file: str | os.PathLike[str] | None = None,
    disable_module: Any = None,
    disable_submodel: Iterable[str] | None = None,
) -> torch.nn.Module:
    """Keep the numbers of a model in a narrow range, in place: the first stage of a training in two."""
    from tonnx.quant import constrain as limit

    settings = _read(config_file)
    skip = [*_of_types(model, disable_module), *(disable_submodel or ()), *_wished(model, "skip_limits")]
    return limit(model, skip=skip, inplace=True, **settings.limits())


def normalize_layers(
    model: torch.nn.Module,
    *,
    normalize_modules: Any = None,
    normalize_weight_value: float | None = 8,
    normalize_bias_value: float | None = None,
    normalize_output_value: float | None = 8,
) -> torch.nn.Module:
    """`constrain` as linger 1.x has it: weights are cut at a number of their own."""
    from tonnx.quant import constrain as limit

    if normalize_bias_value is not None:
        warnings.warn("tonnx.linger: normalize_bias_value changes nothing here: biases have 32 bits", stacklevel=2)
    skip = _wished(model, "skip_limits")
    if normalize_modules is not None:
        skip += _others_than(model, normalize_modules)
    return limit(
        model,
        activations=normalize_output_value,
        weights=None,
        weight_limit=normalize_weight_value,
        skip=skip,
        inplace=True,
    )


def normalize_module(module: torch.nn.Module, *args: Any, **values: Any) -> torch.nn.Module:
    """Limits for one module: here they are those of the model that it is in, which `normalize_layers` gets."""
    warnings.warn("tonnx.linger: limits are for the whole model: give them to normalize_layers", stacklevel=2)
    return module


def disable_normalize(module: torch.nn.Module) -> torch.nn.Module:
    """Keep `constrain` and `normalize_layers` from a module."""
    _wishes.setdefault(module, _Wishes()).skip_limits = True
    return module


def disable_quant(module: torch.nn.Module) -> torch.nn.Module:
    """Keep `init` from a module: it stays a float."""
    _wishes.setdefault(module, _Wishes()).skip_quant = True
    return module


def quant_module(
    module: torch.nn.Module,
    type_modules: Any = None,
    mode: Any = None,
    data_bits: int = 8,
    parameter_bits: int | None = None,
    out_bits: int | None = None,
    *,
    weight_bits: int | None = None,
    bias_bits: int = 32,
    **limits: Any,
) -> torch.nn.Module:
    """Other bits for one module, before `init` or right after it.

    ``parameter_bits`` is linger 1.x's word for ``weight_bits``. Inputs and outputs have the larger of their bits.
    """
    if limits or (type_modules is not None and isinstance(type_modules, (int, float))):
        warnings.warn("tonnx.linger: limits are for the whole model: give them to constrain", stacklevel=2)
        type_modules = None
    bits = {"activation_bits": max(data_bits, out_bits or data_bits), "bias_bits": bias_bits}
    weights = weight_bits if weight_bits is not None else parameter_bits
    if weights is not None:
        bits["weight_bits"] = weights
    _wishes.setdefault(module, _Wishes()).bits.append((type_modules, bits))
    for model in list(_models):
        if any(module is part for part in model.modules()):
            _set_bits(model)
    return module


def quant_module_by_type(module: torch.nn.Module, type_modules: Any = None, *args: Any, **bits: Any) -> torch.nn.Module:
    """`quant_module`, for the layers of some types in a module."""
    return quant_module(module, type_modules, *args, **bits)


def trace_layers(
    root_model: torch.nn.Module, target_model: torch.nn.Module | None = None, *args: Any, fuse_bn: bool = True, **_: Any
) -> torch.nn.Module:
    """Say whether `init` folds batch normalisations; which ones follow a layer is found while the model runs."""
    _wishes.setdefault(root_model, _Wishes()).fold = fuse_bn
    return root_model


@contextmanager
def calibration() -> Iterator[None]:
    """Inside of it, every model of `init` only looks at what it is given: as many batches as one likes."""
    from tonnx.quant.training.prepare import _prepared, settle

    holders = [(model, _prepared(model)) for model in list(_models)]
    for _, holder in holders:
        holder.calibrating = True
    try:
        yield
    finally:
        for model, holder in holders:
            holder.calibrating = False
            settle(model)


def config_save_to_yaml(yaml_save_path: str | os.PathLike[str]) -> None:
    """Write the settings that were read last, or linger's own, as a YAML file of linger."""
    _last.save(yaml_save_path)


def _read(config_file: str | os.PathLike[str] | None) -> Settings:
    global _last
    if config_file is not None:
        _last = Settings.read(config_file)
        for note in _last.notes:
            warnings.warn(f"tonnx.linger: {note}", stacklevel=3)
    return _last if config_file is not None else Settings()


# Modules as names: a Config speaks of those


def _types(types: Any) -> tuple[Any, ...]:
    return () if types is None else tuple(types) if isinstance(types, (tuple, list, set)) else (types,)


def _modules(model: torch.nn.Module) -> Iterator[tuple[str, torch.nn.Module]]:
    """The model's own: `constrain` has added one that is not."""
    from tonnx.quant.training.prepare import holder_of

    holder = holder_of(model)
    added = set() if holder is None else set(holder.modules())
    return ((name, module) for name, module in model.named_modules() if module not in added)


def _of_types(model: torch.nn.Module, types: Any) -> list[str]:
    """The layers of some types, which are classes or their names."""
    wanted = _types(types)
    return [
        name
        for name, module in _modules(model)
        if name and any(module.__class__.__name__ == t if isinstance(t, str) else isinstance(module, t) for t in wanted)
    ]


def _others_than(model: torch.nn.Module, types: Any) -> list[str]:
    """Layers without layers inside that are of none of these types; batch normalisations belong to those before."""
    kept = {*_of_types(model, types), *_of_types(model, ("BatchNorm1d", "BatchNorm2d", "BatchNorm3d"))}
    leaves = [name for name, module in _modules(model) if name and not any(True for _ in module.children())]
    return [name for name in leaves if name not in kept]


def _wished(model: torch.nn.Module, what: str) -> list[str]:
    names = {
        name: module for name, module in model.named_modules() if module in _wishes and getattr(_wishes[module], what)
    }
    if "" in names:
        raise InvalidArgument("the whole model was asked to stay as it is", hint="leave the call out")
    return list(names)


def _layers(model: torch.nn.Module) -> dict[str, dict[str, int]]:
    """What `quant_module` asked for, by name."""
    layers: dict[str, dict[str, int]] = {}
    for name, module in model.named_modules():
        for types, bits in _wishes[module].bits if module in _wishes else ():
            inside = [name] if types is None else [".".join(filter(None, (name, n))) for n in _of_types(module, types)]
            for layer in inside:
                layers.setdefault(layer or "*", {}).update(bits)
    return layers


def _fold(model: torch.nn.Module) -> bool:
    wish = next((_wishes[module].fold for module in model.modules() if module in _wishes), None)
    return True if wish is None else wish


def _set_bits(model: torch.nn.Module) -> None:
    from dataclasses import replace

    from tonnx.quant.training.prepare import _prepared

    holder = _prepared(model)
    if holder.planned:
        raise InvalidArgument(
            "the model has run already, so its bits are settled", hint="call quant_module before it runs"
        )
    assert holder.config is not None
    holder.config = replace(holder.config, layers={**holder.config.layers, **_layers(model)})
