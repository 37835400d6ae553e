"""The first stage of training, in which numbers are kept in a narrow range and nothing is quantised yet."""

from __future__ import annotations

from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from tonnx.quant.config import matches
from tonnx.quant.training.functions import NORMS, WEIGHTED, kind_of
from tonnx.quant.training.interception import Naming, constrained, is_float
from tonnx.quant.training.sites import Quantisation


class Limits(TorchFunctionMode):
    """Cuts the weights of layers, and what they give."""

    def __init__(self, quantisation: Quantisation, naming: Naming) -> None:
        super().__init__()
        self.quantisation, self.naming = quantisation, naming

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        kind = kind_of(func) if self.naming.stack else None
        if kind not in (*WEIGHTED, *NORMS, "embedding") or not is_float(args):
            return func(*args, **kwargs)
        constraint, name = self.quantisation.constraint, self.naming.name(kind)
        if constraint is None or any(matches(pattern, name) for pattern in constraint.skip):
            return func(*args, **kwargs)
        if kind not in NORMS:
            args = list(args)
            if len(args) > 1:
                args[1] = constrained(args[1], self.quantisation)
            else:
                kwargs["weight"] = constrained(kwargs["weight"], self.quantisation)
        result = func(*args, **kwargs)
        if constraint.activations is None or not isinstance(result, torch.Tensor):
            return result
        return result.clamp(-constraint.activations, constraint.activations)
