"""The public functions: `prepare`, `constrain`, `calibrate` and `freeze`."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache, partial, wraps
from typing import Any

import torch

from tonnx.errors import InvalidArgument, first_line, told_as
from tonnx.quant.config import Config
from tonnx.quant.training.discovery import Discovery, plan, tensors
from tonnx.quant.training.folding import fold
from tonnx.quant.training.functions import function_names
from tonnx.quant.training.interception import Interception, Naming, constrained
from tonnx.quant.training.limits import Limits
from tonnx.quant.training.sites import HOLDER, Constraint, Quantisation


def prepare(
    model: torch.nn.Module, config: Config | Mapping[str, Any] | str | None = None, *, inplace: bool = False
) -> torch.nn.Module:
    """A copy of a model that computes with quantised numbers, to be calibrated, trained, and exported like any other.

    Example::

        quantised = tonnx.quant.prepare(model, tonnx.quant.Config(weight_bits=4, scales="learned"))
        tonnx.quant.calibrate(quantised, batches)
        ...                                                    # your own training loop
        tonnx.export(quantised.eval(), (x,), "net.onnx")

    Args:
        model: a module. It is not changed, and its code needs no edit: layers and functions are found while it runs.
        config: a `Config`, a dict of its settings, or the path of a YAML file with them.
        inplace: change the model itself in the place of a copy; optimisers that hold its weights go on serving.
    """
    settings = config if isinstance(config, Config) else Config() if config is None else Config.read(config)
    _check_module(model)
    holder = holder_of(model)
    if holder is not None and holder.config is not None:
        raise InvalidArgument("the model is prepared already", hint="prepare the float model anew for another Config")
    names = [name for name, _ in model.named_modules() if name]
    functions = [".".join(filter(None, (path, kind))) for path in ("", *names) for kind in function_names()]
    settings.check_patterns([*names, *functions], complete=False)
    weights = {name: any(True for _ in module.parameters()) for name, module in model.named_modules() if name}
    settings.check_weights(weights)
    model = model if inplace else copy.deepcopy(model)
    constraint = None if holder is None else holder.constraint
    _install(model, Quantisation(settings, constraint))
    return model


def constrain(
    model: torch.nn.Module,
    *,
    activations: float | None = 8.0,
    weights: float | None = 7.0,
    weight_limit: float | None = None,
    skip: Iterable[str] = (),
    inplace: bool = False,
) -> torch.nn.Module:
    """A copy of a model whose numbers stay in a narrow range, to be trained before `prepare`, which keeps the limits.

    Example::

        net = tonnx.quant.constrain(net)          # train it on
        net = tonnx.quant.prepare(net)            # and on

    Args:
        model: a module.
        activations: what layers give is cut at ± this; None: not at all.
        weights: they are cut at this many times the mean of their magnitudes; None: not at all.
        weight_limit: they are cut at ± this as well.
        skip: layers to leave alone, by name or pattern.
        inplace: change the model itself in the place of a copy.
    """
    _check_module(model)
    for name, value in (("activations", activations), ("weights", weights), ("weight_limit", weight_limit)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0):
            raise InvalidArgument(f"{name} must be a number above 0, or None, not {value!r}")
    if holder_of(model) is not None:
        raise InvalidArgument("the model is constrained or prepared already", hint="begin with the float model")
    patterns = Config(skip=tuple([skip] if isinstance(skip, str) else skip))
    patterns.check_patterns([name for name, _ in model.named_modules() if name], complete=False)
    model = model if inplace else copy.deepcopy(model)
    _install(model, Quantisation(None, Constraint(activations, weights, weight_limit, patterns.skip)))
    return model


def calibrate(
    model: torch.nn.Module,
    batches: Iterable[Any],
    forward: Callable[[torch.nn.Module, Any], Any] | None = None,
) -> int:
    """Let the quantisers see data, in float; gives the number of batches.

    Example::

        tonnx.quant.calibrate(quantised, loader, forward=lambda model, batch: model(batch[0]))

    Args:
        model: what `prepare` gave.
        batches: as many as you like; each a tensor, a tuple of arguments, or a dict of named ones.
        forward: how a batch is run, where it is something else: ``model(*batch)`` by default.
    """
    holder = _prepared(model)
    if isinstance(batches, (torch.Tensor, Mapping, str)):
        raise InvalidArgument("batches must be a list, or another iterable, of batches", hint="[x] is one batch")
    count = 0
    with _calibrating(model, holder), torch.no_grad():
        for batch in batches:
            count += 1
            if any(x.is_floating_point() and bool(torch.isnan(x).any()) for x in tensors(batch)):
                raise InvalidArgument(f"batch {count} of the calibration data has NaN", hint="leave those samples out")
            what = f"the model does not take batch {count} of the calibration data"
            with told_as(InvalidArgument, what, why=first_line, hint="forward= says how a batch is run"):
                (forward or _run)(model, batch)
    if not count:
        raise InvalidArgument("there is no calibration data", why="batches gave none", hint="a used-up generator?")
    if not holder.planned:
        raise InvalidArgument("the calibration did not run the model", hint="forward has to call the model it is given")
    settle(model)
    return count


def freeze(model: torch.nn.Module) -> torch.nn.Module:
    """Stop ranges and folded batch normalisations from following the data; the last part of a training.

    Example::

        tonnx.quant.freeze(quantised)             # for the last epochs
    """
    _prepared(model).frozen = True
    return model


def is_prepared(model: torch.nn.Module) -> bool:
    holder = holder_of(model)
    return holder is not None and holder.config is not None


def holder_of(model: torch.nn.Module) -> Quantisation | None:
    holder = model._modules.get(HOLDER)
    return holder if isinstance(holder, Quantisation) else None


def _prepared(model: torch.nn.Module) -> Quantisation:
    _check_module(model)
    holder = holder_of(model)
    if holder is None or holder.config is None:
        raise InvalidArgument("the model is not prepared", hint="model = tonnx.quant.prepare(model) first")
    return holder


def _check_module(model: Any) -> None:
    if not isinstance(model, torch.nn.Module):
        raise InvalidArgument(f"the model must be a torch.nn.Module, not {type(model).__name__}")
    if isinstance(model, torch.jit.ScriptModule):
        raise InvalidArgument("a TorchScript module cannot be prepared", why="its functions do not run in Python")


def _run(model: torch.nn.Module, batch: Any) -> Any:
    if isinstance(batch, Mapping):
        return model(**batch)
    return model(*batch) if isinstance(batch, (tuple, list)) else model(batch)


@contextmanager
def _calibrating(model: torch.nn.Module, holder: Quantisation) -> Iterator[None]:
    flags = [(module, module.training) for module in model.modules()]
    try:
        for module, _ in flags:
            module.training = False
        holder.calibrating = True
        yield
    finally:
        holder.calibrating = False
        for module, was_training in flags:
            module.training = was_training
        holder.train(model.training)


# The model's own class, with a forward of ours around its own


def _install(model: torch.nn.Module, holder: Quantisation) -> None:
    present = holder_of(model)
    holder.train(model.training)
    model._modules[HOLDER] = holder
    if present is not None:
        return
    object.__setattr__(model, "_tonnx_naming", Naming())
    for path, module in list(model.named_modules()):
        if path and path.partition(".")[0] != HOLDER:
            is_layer = type(module).__module__.startswith("torch.nn.") and not list(module.children())
            module.register_forward_pre_hook(partial(_begin, model._tonnx_naming, path, is_layer))
            module.register_forward_hook(partial(_end, model._tonnx_naming), always_call=True)
    model.__class__ = quantised_class(type(model))  # type: ignore[arg-type]


def _begin(naming: Naming, path: str, is_layer: bool, module: torch.nn.Module, args: Any) -> None:
    naming.push(path, is_layer)


def _end(naming: Naming, module: torch.nn.Module, args: Any, result: Any) -> None:
    naming.pop()


@cache
def quantised_class(original: Any) -> Any:
    """A subclass of a model's class that runs with its functions intercepted."""

    @wraps(original.forward)
    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        return _intercepted(self, partial(original.forward, self), args, kwargs)

    def train(self: Any, mode: bool = True) -> Any:
        original.train(self, mode)
        if not mode:
            settle(self)
        return self

    def load(self: Any, state_dict: Mapping[str, Any], prefix: str, *rest: Any) -> None:
        _accept(self, state_dict, prefix)
        original._load_from_state_dict(self, state_dict, prefix, *rest)  # type: ignore[arg-type]

    def reduce(self: Any, protocol: Any) -> Any:
        return _rebuilt, (original,), self.__dict__

    body: dict[str, Any] = {"forward": forward, "train": train, "_load_from_state_dict": load, "__reduce_ex__": reduce}
    body |= {"__module__": original.__module__, "__qualname__": original.__qualname__, "__doc__": original.__doc__}
    return type(original.__name__, (original,), body)


def _rebuilt(original: type[torch.nn.Module]) -> torch.nn.Module:
    cls = quantised_class(original)  # type: ignore[arg-type]
    return cls.__new__(cls)


def _accept(model: torch.nn.Module, state_dict: Mapping[str, Any], prefix: str) -> None:
    holder = holder_of(model)
    assert holder is not None
    state = state_dict.get(f"{prefix}{HOLDER}._extra_state")
    if state is not None:
        holder.accept(state)
    elif holder.planned:
        raise InvalidArgument(
            "the checkpoint is of a model that is not quantised",
            why="this one has scales already, which would not fit its weights",
            hint="load it before the model is calibrated or trained",
        )


def _intercepted(model: Any, forward: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    holder, naming = holder_of(model), model._tonnx_naming
    assert holder is not None
    naming.start()
    del model._modules[HOLDER]  # while it runs: a Sequential, and others, call all modules that they have
    try:
        if holder.config is None:
            with Limits(holder, naming):
                return forward(*args, **kwargs)
        capturing = torch._guards.detect_fake_mode((args, kwargs)) is not None
        if not holder.planned and (holder.calibrating or holder.training) and not capturing:
            _discover(model, holder, naming, forward, args, kwargs)
            naming.start()
        with Interception(model, holder, naming, capturing):
            return forward(*args, **kwargs)
    finally:
        naming.stack.clear()
        model._modules[HOLDER] = holder


def _discover(
    model: torch.nn.Module, holder: Quantisation, naming: Naming, forward: Callable[..., Any], args: Any, kwargs: Any
) -> None:
    """One run as in evaluation, of which nothing stays but the plan."""
    flags = [(module, module.training) for module in model.modules()]
    try:
        for module, _ in flags:
            module.training = False
        with torch.no_grad(), torch.random.fork_rng(), Discovery(naming) as discovery:
            discovery.returned(forward(*args, **kwargs))
    finally:
        for module, was_training in flags:
            module.training = was_training
    plan(holder, model, discovery)


@torch.no_grad()
def settle(model: torch.nn.Module) -> None:
    """Scales for evaluation, from weights and parameters as they are now."""
    holder = holder_of(model)
    if holder is None or holder.config is None:
        return
    for site in holder.all_sites():
        for quantiser in site.values():
            quantiser.settle()  # type: ignore[operator]
        if site.weight_name is not None and "weight" in site:
            weight = model.get_parameter(site.weight_name)
            if site.folds is not None:
                norm: Any = model.get_submodule(site.folds)
                weight = fold(site.kind, weight, None, norm, norm.running_mean, norm.running_var).weight
            site["weight"].span_weight(constrained(weight, holder))  # type: ignore[operator]
