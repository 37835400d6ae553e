"""A first run of a model, in float: which layers meet which, so that a layer and what follows it are quantised once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from tonnx.quant.training.functions import CLIPPED, RECURRENT, WEIGHTED, WITH_WEIGHTS, kind_of
from tonnx.quant.training.interception import Naming, is_float
from tonnx.quant.training.sites import Quantisation, Site

_BATCH_NORMS = (torch.nn.BatchNorm1d, torch.nn.BatchNorm2d, torch.nn.BatchNorm3d, torch.nn.SyncBatchNorm)


@dataclass
class _Call:
    """One call of a function that may be quantised."""

    name: str
    kind: str
    module: str
    weight: Any = None
    groups: int = 1
    readers: list[_Call | None] = field(default_factory=list)
    """Who read its result; None: a function that is none of ours, or the caller of the model."""


class Discovery(TorchFunctionMode):
    """Writes down who reads whose result. All tensors are kept meanwhile, so that each is known by itself."""

    def __init__(self, naming: Naming) -> None:
        super().__init__()
        self.naming = naming
        self.calls: list[_Call] = []
        self._makers: dict[int, _Call | None] = {}
        self._kept: list[Any] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        kind = kind_of(func) if self.naming.stack else None
        call = None
        if kind is not None and kind != "moved" and is_float(args):
            call = _Call(self.naming.name(kind), kind, self.naming.stack[-1][0])
            if kind in WEIGHTED:
                call.weight = kwargs.get("weight", args[1] if len(args) > 1 else None)
                call.groups = kwargs.get("groups", args[6] if len(args) > 6 else 1)
            self.calls.append(call)
        makers = [self._makers.get(id(x)) for x in tensors((args, kwargs))]
        result = func(*args, **kwargs)
        made = tensors(result)
        if made:  # what gives no tensor, such as a size, reads no numbers
            for maker in makers:
                if maker is not None:
                    maker.readers.append(call)
        for tensor in made:
            self._makers[id(tensor)] = call
            self._kept.append(tensor)
        return result

    def returned(self, result: Any) -> None:
        """What the model gives back is read by its caller."""
        for tensor in tensors(result):
            maker = self._makers.get(id(tensor))
            if maker is not None:
                maker.readers.append(None)


def tensors(tree: Any) -> list[torch.Tensor]:
    """All tensors in nested tuples, lists and dicts."""
    leaves, _ = torch.utils._pytree.tree_flatten(tree)
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]


def plan(quantisation: Quantisation, root: torch.nn.Module, discovery: Discovery) -> None:
    """Make the sites, and say which of them are quantised together."""
    config = quantisation.config
    assert config is not None
    seen = [call for call in discovery.calls if config.of(call.name) is not None]
    modules = [name for name, _ in root.named_modules() if name]
    config.check_patterns([*(call.name for call in discovery.calls), *modules], complete=True)
    config.check_weights({call.name: call.kind in WITH_WEIGHTS for call in discovery.calls})
    parameters = {id(parameter): name for name, parameter in root.named_parameters()}
    sites = {call.name: quantisation.site(call.name) or quantisation.add(call.name, call.kind) for call in seen}
    for call in seen:
        site, follower = sites[call.name], _only_reader(call, sites)
        site.weight_name = parameters.get(id(call.weight))
        if config.fold_batch_norm and follower is not None and _foldable(call, follower, root):
            site.folds, site.deferred, sites[follower.name].folded = follower.module, True, True
        elif follower is not None and follower.kind in CLIPPED and _defers(quantisation, site, sites[follower.name]):
            site.deferred = True
    quantisation.planned = True


def _only_reader(call: _Call, sites: dict[str, Site]) -> _Call | None:
    """Who alone reads the result of a call, if that is quantised."""
    reader = call.readers[0] if len(call.readers) == 1 else None
    return reader if reader is not None and reader.name in sites else None


def _foldable(call: _Call, norm: _Call, root: torch.nn.Module) -> bool:
    module = root.get_submodule(norm.module)
    if call.kind not in WEIGHTED or norm.kind != "batch_norm" or (call.kind.startswith("conv_t") and call.groups != 1):
        return False
    return isinstance(module, _BATCH_NORMS) and module.running_mean is not None


def _defers(quantisation: Quantisation, site: Site, follower: Site) -> bool:
    """With a zero point, a ReLU is where the range ends: it costs nothing to quantise behind it."""
    own, after = quantisation.settings(site), quantisation.settings(follower)
    if site.kind in (*CLIPPED, *RECURRENT, "embedding") or own.activation_bits != after.activation_bits:
        return False
    return not after.symmetric_activations
