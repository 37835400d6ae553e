"""What an export was asked to do with operators: which rules count, and what becomes of those that have none.

Both walks of the PyTorch front ends (``torch.export`` and TorchScript graphs) ask `Settings.rule` with an operator's
schema, so that a user's rule or symbolic function serves both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tonnx.frontends.torch.operators.aten_fallback import REFUSE
from tonnx.ir.target import CANON
from tonnx.lowering.rules import USERS, Rule, complex_rule, rule_for

EVAL, PRESERVE, TRAINING = "EVAL", "PRESERVE", "TRAINING"
"""The three values of ``training``."""

_LIBRARIES = ("torch.", "torchvision.")


@dataclass(frozen=True)
class Settings:
    """How operators are lowered in one export."""

    opset: int = CANON
    """The opset that was asked for. Rules know none; symbolic functions are told it."""
    training: str = EVAL
    foreign: str = REFUSE
    """What becomes of an operator without a rule."""
    table: Mapping[str, Any] = field(default_factory=dict)
    """``custom_translation_table`` by operator: ``ns.op`` or ``ns.op.overload``."""
    weight_names: Mapping[str, str] = field(default_factory=dict)
    """Parameters and buffers that are called otherwise in the file."""

    def rule(self, schema: Any, is_complex: bool = False) -> Rule | None:
        """The rule of an operator, from its schema; for complex numbers there are others.

        In this order: the table of this export, `tonnx.lower`, functions registered with
        ``torch.onnx.register_custom_op_symbolic``, rules of training, tonnx's own. Functions that torchvision registers
        for its own operators come last.
        """
        namespace, name = schema.name.split("::")
        if is_complex and not self._users(namespace, name, schema):
            return complex_rule(namespace, name, schema.overload_name or "default")
        rule = self._rule(namespace, name, schema)
        if rule is None and name.endswith("_") and not name.startswith("__"):
            rule = self._rule(namespace, name.rstrip("_"), schema)  # in place: the same formula
        return rule

    def _users(self, namespace: str, name: str, schema: Any) -> bool:
        names = (f"{namespace}.{name}.{schema.overload_name or 'default'}", f"{namespace}.{name}")
        return any(key in self.table or key in USERS for key in names)

    def _rule(self, namespace: str, name: str, schema: Any) -> Rule | None:
        overload = schema.overload_name or "default"
        names = (f"{namespace}.{name}.{overload}", f"{namespace}.{name}")
        for key in names:
            if key in self.table:
                from tonnx.frontends.torch.operators.translation_table import rule_of

                return rule_of(self.table[key], schema)
        for key in names:
            if key in USERS:
                return USERS[key]
        from tonnx.frontends.torch.operators.symbolic_functions import registered, symbolic_rule

        symbolic = registered(f"{namespace}::{name}", self.opset)
        if symbolic is not None and not (symbolic.__module__ or "").startswith(_LIBRARIES):
            return symbolic_rule(symbolic, schema, self.opset)
        if self.training != EVAL:
            from tonnx.lowering.training import RULES

            for key in names:
                if key in RULES:
                    return RULES[key]
        rule = rule_for(namespace, name, overload)
        if rule is None and symbolic is not None:
            return symbolic_rule(symbolic, schema, self.opset)
        return rule
