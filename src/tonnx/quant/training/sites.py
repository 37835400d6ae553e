"""Places of a network at which something is quantised, and the module that holds them all: what a checkpoint stores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from tonnx.errors import InvalidArgument
from tonnx.quant.config import Config
from tonnx.quant.training.functions import OPERANDS
from tonnx.quant.training.quantiser import Quantiser

HOLDER = "tonnx_quant"
"""The name of the submodule that holds the quantisers of a prepared model."""


@dataclass(frozen=True)
class Constraint:
    """linger's first stage: what activations and weights are cut at."""

    activations: float | None = 8.0
    """Outputs of layers stay within ± this."""
    weights: float | None = 7.0
    """Weights stay within ± this many times the mean of their magnitudes."""
    weight_limit: float | None = None
    """And within ± this."""
    skip: tuple[str, ...] = ()

    def data(self) -> dict[str, Any]:
        return {**vars(self), "skip": list(self.skip)}


class Site(torch.nn.ModuleDict):
    """One call of a layer or function: its quantisers, by what they are for, and how it meets its neighbours."""

    def __init__(self, name: str, kind: str) -> None:
        super().__init__()
        self.name, self.kind = name, kind
        self.weight_name: str | None = None
        """The parameter that is the weight, where it is one."""
        self.folds: str | None = None
        """The module of the batch normalisation that is part of this layer."""
        self.folded = False
        """Whether this is such a batch normalisation."""
        self.deferred = False
        """Whether the result is quantised by the ReLU that follows."""
        self.left: str | None = None
        """Why it stays a float."""

    def facts(self) -> dict[str, Any]:
        """What a checkpoint has to know beside the quantisers."""
        own = {name: getattr(self, name) for name in ("kind", "weight_name", "folds", "folded", "deferred", "left")}
        return {**own, "quantisers": {name: quantiser.axis for name, quantiser in self.items()}}


class Quantisation(torch.nn.Module):
    """All sites of a model, with the settings that they were made with."""

    def __init__(self, config: Config | None, constraint: Constraint | None) -> None:
        super().__init__()
        self.config, self.constraint = config, constraint
        self.sites = torch.nn.ModuleDict()
        self.planned = False
        """Whether the model has been seen running."""
        self.calibrating = False
        self.frozen = False

    # Sites

    def site(self, name: str) -> Site | None:
        return self.sites._modules.get(_key(name))  # type: ignore[return-value]

    def add(self, name: str, kind: str) -> Site:
        site = Site(name, kind)
        self.sites[_key(name)] = site
        return site

    def settings(self, site: Site) -> Config:
        assert self.config is not None
        own = self.config.of(site.name)
        assert own is not None
        return own

    def quantiser(self, site: Site, role: str, axis: int | None = None) -> Quantiser:
        """The quantiser of a site that has a role: ``input_0``, ``weight``, ``output`` …; made when first asked for."""
        if role not in site:
            own = self.settings(site)
            if role.startswith("weight"):
                new = Quantiser(own.weight_bits, own.symmetric_weights, own, axis if own.per_channel else None)
            else:
                bits = 16 if role == "cell" else own.activation_bits
                limit = None if self.constraint is None else self.constraint.activations
                new = Quantiser(bits, own.symmetric_activations, own, None, limit)
            new.train(self.training)
            site[role] = new
        return site[role]  # type: ignore[return-value]

    def all_sites(self) -> list[Site]:
        """In the order in which they were first seen."""
        return list(self.sites.values())  # type: ignore[arg-type]

    # Checkpoints

    def get_extra_state(self) -> dict[str, Any]:
        """Settings and plan, as plain data."""
        return {
            "config": None if self.config is None else self.config.data(),
            "constraint": None if self.constraint is None else self.constraint.data(),
            "planned": self.planned,
            "frozen": self.frozen,
            "sites": {site.name: site.facts() for site in self.all_sites()},
        }

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *rest: Any) -> None:
        """A float checkpoint says nothing of what has not seen any data yet."""
        if self.planned or any(name.startswith(prefix) for name in state_dict):
            super()._load_from_state_dict(state_dict, prefix, *rest)  # type: ignore[arg-type]

    def set_extra_state(self, state: Mapping[str, Any]) -> None:
        """Done by `accept`, before any weight is loaded."""

    def accept(self, state: Any) -> None:
        """Take the plan of a checkpoint, whose settings must be the same."""
        if not isinstance(state, Mapping) or "sites" not in state:
            raise InvalidArgument("the checkpoint's quantisation cannot be read", why=f"it is a {type(state).__name__}")
        theirs = None if state["config"] is None else Config.read(state["config"])
        if (theirs is None) != (self.config is None):
            raise InvalidArgument(
                "the checkpoint is of another stage of training",
                why="one is of tonnx.quant.constrain only, the other of tonnx.quant.prepare",
            )
        difference = self.config.difference(theirs) if self.config is not None and theirs is not None else None
        if difference:
            raise InvalidArgument(
                "the checkpoint was made with another configuration",
                why=difference,
                hint="prepare the model with the same Config",
            )
        self.sites.clear()
        for name, facts in state["sites"].items():
            site = Site(name, facts["kind"])
            for key in ("weight_name", "folds", "folded", "deferred", "left"):
                setattr(site, key, facts[key])
            self.sites[_key(name)] = site
            for role, axis in facts["quantisers"].items():
                self.quantiser(site, role).axis = axis
        self.planned, self.frozen = state["planned"], state["frozen"]


def _key(name: str) -> str:
    return name.replace(".", "/") or "/"


def operands(kind: str) -> int:
    """How many of a function's operands are quantised."""
    return OPERANDS.get(kind, 1)
