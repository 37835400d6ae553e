"""The passes, in ONE ordered list each, with the reason for its place."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import onnx_ir as ir

from tonnx.passes.dead import remove_dead


@dataclass
class Optimised:
    """What the optimiser did, for the user to read: pass → number of nodes changed, and notes such as folded layers."""

    changes: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)


def optimise(model: ir.Model, *, fold_constants: bool = True, fuse_conv_bn: bool = True) -> Optimised:
    """At CANON, before legalising: one form of every operator to match."""
    report = Optimised()
    report.changes["dead code"] += remove_dead(model)
    return report


def clean_up(model: ir.Model) -> None:
    """After legalising: what the rules left behind."""
    remove_dead(model)
