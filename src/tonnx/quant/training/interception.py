"""A prepared model at work: every call of PyTorch goes through here, and some of them are quantised."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from tonnx.errors import InvalidArgument
from tonnx.quant.training import recurrent
from tonnx.quant.training.folding import FoldedNorm, folded
from tonnx.quant.training.functions import CLIPPED, NORMS, RECURRENT, WEIGHTED, kind_of
from tonnx.quant.training.operators import fake_quantise_bias
from tonnx.quant.training.quantiser import Quantiser
from tonnx.quant.training.sites import Quantisation, Site, operands

_MARK = "_tonnx_quantiser"
"""The attribute of a tensor that lies on the steps of a quantiser."""
_DEEP = 16.0
"""How far below the largest number softmax looks: e^-16 is nothing beside 1, and masks are far below."""
_MASK = 1e8
"""Numbers beyond this are no activations."""


def on_steps_of(x: Any) -> Quantiser | None:
    """The quantiser on whose steps a tensor lies."""
    return getattr(x, _MARK, None)


def mark(x: Any, quantiser: Quantiser | None) -> Any:
    """Say that tensors lie on the steps of a quantiser."""
    if quantiser is not None:
        for tensor in x if isinstance(x, (tuple, list)) else (x,):
            if isinstance(tensor, torch.Tensor) and tensor.is_floating_point():
                setattr(tensor, _MARK, quantiser)
    return x


class Naming:
    """Which module runs, and which call of a function this is: what sites are named by."""

    def __init__(self) -> None:
        self.stack: list[tuple[str, bool]] = []
        self._counts: Counter[str] = Counter()

    def start(self) -> None:
        """The model itself begins, whatever an interrupted run has left."""
        self.stack = [("", False)]
        self._counts.clear()

    def push(self, path: str, is_layer: bool) -> None:
        self.stack.append((path, is_layer))

    def pop(self) -> None:
        if self.stack:
            self.stack.pop()

    def name(self, kind: str) -> str:
        """Of the call that comes now: that of the layer, or of the function in its module, and which call it is."""
        path, is_layer = self.stack[-1]
        name = path if is_layer else ".".join(filter(None, (path, kind)))
        self._counts[name] += 1
        return name if self._counts[name] == 1 else f"{name}#{self._counts[name] - 1}"


class Interception(TorchFunctionMode):
    """The calls of one run of a model, quantised."""

    def __init__(self, root: torch.nn.Module, quantisation: Quantisation, naming: Naming, capturing: bool) -> None:
        super().__init__()
        self.root, self.quantisation, self.naming, self.capturing = root, quantisation, naming, capturing
        self.batch_statistics: dict[str, FoldedNorm] = {}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        kind = kind_of(func) if self.naming.stack else None
        if kind is None:
            return func(*args, **kwargs)
        if kind == "moved":
            return mark(func(*args, **kwargs), on_steps_of(args[0]) if args else None)
        if not is_float(args):  # such as the counting of batches, which has no place in the counting of calls
            return func(*args, **kwargs)
        name = self.naming.name(kind)
        if not self._wanted(name):
            return func(*args, **kwargs)
        site = self._site(name, kind)
        if site is None or site.left is not None:
            return func(*args, **kwargs)
        return self._handler(kind)(site, func, args, kwargs)

    # What a call becomes

    def _handler(self, kind: str) -> Callable[[Site, Any, Any, Any], Any]:
        if kind in WEIGHTED:
            return self._layer
        if kind in RECURRENT:
            return self._recurrent
        if kind in CLIPPED:
            return self._clipped
        others = {"embedding": self._embedding, "batch_norm": self._batch_norm, "cat": self._cat}
        others["attention"] = self._attention
        return others.get(kind, self._function)

    def _wanted(self, name: str) -> bool:
        config = self.quantisation.config
        return config is not None and config.of(name) is not None

    def _site(self, name: str, kind: str) -> Site | None:
        site = self.quantisation.site(name)
        if site is None:
            if not self._may_observe():
                if "#" in name:  # a loop that runs longer than before
                    return self._site(_earlier(name), kind)
                raise InvalidArgument(
                    f"{name or 'the model'} ({kind}) has never seen data, so it has no scale",
                    hint="tonnx.quant.calibrate(model, batches), or train it, before it is evaluated or exported",
                )
            site = self.quantisation.add(name, kind)
        return site

    def _may_observe(self) -> bool:
        return (self.quantisation.calibrating or self.quantisation.training) and not self.capturing

    def _layer(self, site: Site, func: Any, args: Any, kwargs: Any) -> Any:
        arguments: list[Any] = list(args)
        x, weight, bias, *rest = arguments + [None] * (3 - len(arguments))
        weight, bias = kwargs.pop("weight", weight), kwargs.pop("bias", bias)
        x = self._operand(site, 0, x)
        if site.folds is not None:
            norm = self.root.get_submodule(site.folds)
            parts = folded(site.kind, func, x, weight, bias, tuple(rest), kwargs, norm, self.quantisation.frozen)
            self.batch_statistics[site.folds] = parts
            weight, bias = parts.weight, parts.bias
        axis = _channels(site.kind, rest, kwargs)
        weight, quantiser = self._weight(site, "weight", weight, axis)
        result = func(x, weight, self._bias(site, bias, x, quantiser), *rest, **kwargs)
        return self._result(site, result)

    def _function(self, site: Site, func: Any, args: Any, kwargs: Any) -> Any:
        args, kwargs = list(args), dict(kwargs)
        count = operands(site.kind)
        if self._may_observe() and site.kind != "softmax" and any(_is_mask(x) for x in args[:count]):
            site.left = "it has numbers that are masks"
            return func(*args, **kwargs)
        for number in range(min(count, len(args))):
            args[number] = self._operand(site, number, args[number])
        if "other" in kwargs and count == 2:
            kwargs["other"] = self._operand(site, 1, kwargs["other"])
        self._norm_weight(site, args, kwargs)
        return self._result(site, func(*args, **kwargs))

    def _norm_weight(self, site: Site, args: list[Any], kwargs: dict[str, Any]) -> None:
        place = NORMS.get(site.kind)
        if place is None:
            return
        if isinstance(kwargs.get("weight"), torch.Tensor):
            kwargs["weight"] = self._weight(site, "weight", kwargs["weight"], None)[0]
        elif len(args) > place and isinstance(args[place], torch.Tensor):
            args[place] = self._weight(site, "weight", args[place], None)[0]

    def _cat(self, site: Site, func: Any, args: Any, kwargs: Any) -> Any:
        tensors, *rest = args
        operands_ = [self._operand(site, number, x) for number, x in enumerate(tensors)]
        return self._result(site, func(operands_, *rest, **kwargs))

    def _clipped(self, site: Site, func: Any, args: Any, kwargs: Any) -> Any:
        quantiser = on_steps_of(args[0])
        result = func(*args, **kwargs)
        if quantiser is None:
            return self._result(site, result)
        if self.quantisation.calibrating or quantiser.half_up:
            return mark(result, quantiser)
        # On the same steps: written down once more, since runtimes look for QuantizeLinear around every layer.
        return mark(quantiser(result), quantiser)

    def _embedding(self, site: Site, func: Any, args: Any, kwargs: Any) -> Any:
        index, weight, *rest = args
        weight, quantiser = self._weight(site, "weight", weight, None)
        return mark(func(index, weight, *rest, **kwargs), quantiser)

    def _batch_norm(self, site: Site, func: Any, args: Any, kwargs: Any) -> Any:
        if not site.folded:
            return self._function(site, func, args, kwargs)
        # Part of the layer before it, which is done; its statistics go on.
        path = self.naming.stack[-1][0]
        statistics = self.batch_statistics.pop(path, None)
        if statistics is not None:
            statistics.update(*args, **kwargs)
        return args[0] if on_steps_of(args[0]) is not None or site.deferred else self._result(site, args[0])

    def _attention(self, site: Site, func: Any, args: Any, kwargs: Any) -> Any:
        """PyTorch's attention, which is one function: what goes in, the weights of its projections, what comes out."""
        call = inspect.signature(func).bind(*args, **kwargs).arguments
        projected: dict[int, Any] = {}  # the function looks whether they are one tensor
        for number, name in enumerate(("query", "key", "value")):
            if id(call[name]) not in projected:
                projected[id(call[name])] = self._operand(site, number, call[name])
            call[name] = projected[id(call[name])]
        for name in ("in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight", "out_proj_weight"):
            if call.get(name) is not None:
                call[name] = self._weight(site, f"weight_{name.removesuffix('_weight')}", call[name], 0)[0]
        result, weights = func(**call)
        return self._result(site, result), weights

    def _recurrent(self, site: Site, func: Any, args: Any, kwargs: Any) -> Any:
        call = _recurrent_call(site.name, args, kwargs)
        if call is None:
            raise InvalidArgument(
                f"{site.name!r} gets packed sequences, which are not quantised",
                hint=f"pad them instead, or leave it alone: skip=({site.name!r},)",
            )
        x, hx, params, has_biases, num_layers, bidirectional, batch_first = call
        x = self._operand(site, 0, x)
        hidden = [self.quantisation.quantiser(site, role) for role in ("hidden", "cell")[: len(hx)]]
        each = 4 if has_biases else 2
        quantised: list[torch.Tensor] = []
        for at in range(0, len(params), each):
            parts = params[at : at + each]
            beside = x if at < each * (2 if bidirectional else 1) else None
            for number, (weight, bias) in enumerate(zip(parts[:2], parts[2:] or (None, None), strict=True)):
                rounded, quantiser = self._weight(site, f"weight_{at + number}", weight, 0)
                quantised.append(rounded)
                if bias is not None:
                    source = beside if number == 0 and beside is not None else mark(torch.empty(0), hidden[0])
                    parts[number + 2] = self._bias(site, bias, source, quantiser)
            quantised += parts[2:]
        shape = (has_biases, num_layers, bidirectional, batch_first)
        observes = self._observes(hidden[0])
        if observes or torch.is_grad_enabled():
            through: recurrent.State = lambda number, state: self._through(hidden[number], state)  # noqa: E731
            results = recurrent.run(site.kind, x, hx, quantised, *shape, through)
        else:
            results = recurrent.quantised_rnn(
                x, list(hx), quantised, *shape, site.kind, [q.scale for q in hidden], [q.zero_point for q in hidden],
                [q.low for q in hidden], [q.high for q in hidden], hidden[0].half_up,
            )  # fmt: skip
        for result, quantiser in zip(results, [hidden[0], *hidden], strict=True):
            mark(result, quantiser)
        return tuple(results)

    # Operands, weights, biases, results

    def _operand(self, site: Site, number: int, x: Any) -> Any:
        """An operand, on steps of its own unless it lies on some already."""
        if not isinstance(x, torch.Tensor) or not x.is_floating_point() or on_steps_of(x) is not None:
            return x
        quantiser = self.quantisation.quantiser(site, f"input_{number}")
        if site.kind == "softmax" and self._observes(quantiser):
            return self._through(quantiser, x, x.detach().clamp(min=float(x.detach().max()) - _DEEP))
        return self._through(quantiser, x)

    def _result(self, site: Site, result: torch.Tensor) -> torch.Tensor:
        if site.deferred:
            return result
        return self._through(self.quantisation.quantiser(site, "output"), result)

    def _observes(self, quantiser: Quantiser) -> bool:
        quantisation = self.quantisation
        if not self._may_observe():
            return False
        follows = quantisation.training and not quantisation.frozen and quantiser.scales in ("max", "moving")
        return quantisation.calibrating or follows or bool((quantiser.scale == 0).all())

    def _through(self, quantiser: Quantiser, x: torch.Tensor, seen: torch.Tensor | None = None) -> torch.Tensor:
        if self._observes(quantiser):
            quantiser.observe(x if seen is None else seen)
        # In calibration the numbers stay as they are; a view of them, since the mark is not for the user's tensor.
        result: torch.Tensor = mark(x.view_as(x) if self.quantisation.calibrating else quantiser(x), quantiser)
        return result

    def _weight(self, site: Site, role: str, weight: torch.Tensor, axis: int | None) -> tuple[torch.Tensor, Quantiser]:
        if "#" in site.name and site.folds is None:  # a layer that runs again has the same weight
            site = self.quantisation.site(site.name.partition("#")[0]) or site
        quantiser = self.quantisation.quantiser(site, role, axis)
        weight = constrained(weight, self.quantisation)
        if self._may_observe():
            quantiser.span_weight(weight)
            if self.quantisation.calibrating:
                return weight, quantiser
        return quantiser(weight), quantiser

    def _bias(self, site: Site, bias: Any, x: torch.Tensor, weight: Quantiser) -> Any:
        beside = on_steps_of(x)
        if bias is None or beside is None or self.quantisation.settings(site).bias_bits is None:
            return bias
        if self.quantisation.calibrating or beside.axis is not None:
            return bias
        return fake_quantise_bias(bias, beside.current_scale().detach(), weight.current_scale().detach())


def _earlier(name: str) -> str:
    base, _, number = name.partition("#")
    return base if number == "1" else f"{base}#{int(number) - 1}"


def constrained(weight: torch.Tensor, quantisation: Quantisation) -> torch.Tensor:
    """A weight, cut at a multiple of the mean of its magnitudes if that was asked for."""
    constraint = quantisation.constraint
    if constraint is None:
        return weight
    if constraint.weight_limit is not None:
        weight = weight.clamp(-constraint.weight_limit, constraint.weight_limit)
    if constraint.weights is not None:
        end = constraint.weights * weight.detach().abs().mean()
        weight = torch.minimum(torch.maximum(weight, -end), end)
    return weight


def _channels(kind: str, rest: Sequence[Any], kwargs: dict[str, Any]) -> int | None:
    """The axis of a weight along which each channel of the result has its numbers."""
    if not kind.startswith("conv_transpose"):
        return 0
    groups = kwargs.get("groups", rest[3] if len(rest) > 3 else 1)
    return 1 if groups == 1 else None


def is_float(args: Any) -> bool:
    """Whether a function computes with real numbers, of the precision that is quantised."""
    flat = [x for arg in args for x in (arg if isinstance(arg, (tuple, list)) else (arg,))]
    tensors = [x for x in flat if isinstance(x, torch.Tensor)]
    return any(x.dtype == torch.float32 for x in tensors) and not any(x.is_complex() for x in tensors)


def _is_mask(x: Any) -> bool:
    """Whether a tensor holds numbers that are none, or so large that they only switch others off."""
    if not isinstance(x, torch.Tensor) or not x.is_floating_point() or not x.numel() or on_steps_of(x) is not None:
        return False
    return not bool((x.detach().abs() < _MASK).all())


def _recurrent_call(name: str, args: Any, kwargs: Any) -> tuple[Any, ...] | None:
    """The arguments of ``_VF.lstm``, or of what stands in for it during a capture; None: of packed sequences."""
    if len(args) == 7:
        x, hx, params, has_biases, num_layers, bidirectional, batch_first = args
    elif len(args) == 9 and isinstance(args[2], (tuple, list)):  # packed ones have their states there
        x, hx, params, has_biases, num_layers, _, _, bidirectional, batch_first = args
    else:
        return None
    states = list(hx) if isinstance(hx, (tuple, list)) else [hx]
    each = len(params) // (num_layers * (2 if bidirectional else 1))
    if each not in (2, 4):
        raise InvalidArgument(
            f"{name!r} projects its state, which is not quantised", hint=f"leave it alone: skip=({name!r},)"
        )
    return x, states, list(params), has_biases, num_layers, bidirectional, batch_first
