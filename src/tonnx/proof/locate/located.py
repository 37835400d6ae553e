"""What `locate` answers: the node at which a file departs from the model, and the differences along the graph."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tonnx.ir.provenance import Origin
from tonnx.proof.compare import Comparison
from tonnx.proof.locate.sweep import Local
from tonnx.proof.locate.trace import Step

_SHOWN = 12
"""Nodes that are listed in full."""


@dataclass(frozen=True)
class NodeInfo:
    """A node of the file."""

    name: str
    op_type: str
    index: int
    """Its place in the file."""
    outputs: tuple[str, ...]
    origin: Origin = field(default_factory=Origin)
    inside: str = ""
    """Where inside the node of that place, if it is in the body of an If or Loop, or in a function."""

    def __str__(self) -> str:
        if self.inside:
            return f"{self.op_type} {self.name!r} in {self.inside}" if self.name else f"{self.op_type} in {self.inside}"
        return f"{self.op_type} {self.name!r}" if self.name else f"{self.op_type} (node {self.index}, no name)"


@dataclass(frozen=True)
class Difference:
    """How far a value of the file is from the model's."""

    value: str
    framework_value: str
    node: NodeInfo | None
    comparison: Comparison


@dataclass
class Located:
    """The place where a file departs from the model."""

    framework: str
    value: str
    """The first value of the file that is wrong."""
    framework_value: str
    steps: tuple[Step, ...]
    """The framework's operators that the nodes stand for."""
    nodes: tuple[NodeInfo, ...]
    """The nodes that compute it from values that are right."""
    comparison: Comparison | None
    """The value, computed from the model's own values."""
    inputs: tuple[Comparison, ...] = ()
    """What the nodes read, as the file computes it."""
    confirmed: bool = True
    """False: no node is wrong by itself, and here most of the difference arises."""
    note: str = ""
    reproducer: tuple[Path, Path] | None = None
    compared: int = 0
    """Values that were compared."""
    local: Local | None = field(default=None, repr=False)
    model_values: dict[str, str] = field(default_factory=dict, repr=False)
    """What the nodes read → the model's value that it holds."""

    @property
    def operator(self) -> str:
        names = list(dict.fromkeys(step.operator for step in self.steps if step.operator))
        telling = [name for name in names if name != "operator.getitem"] or names  # of a list that another one gives
        return " + ".join(telling) or _first(node.origin.operator for node in self.nodes)

    @property
    def module(self) -> str:
        return self._last("module")

    @property
    def source(self) -> str:
        return self._last("source")

    def _last(self, what: str) -> str:
        places = (*reversed(self.steps), *(node.origin for node in reversed(self.nodes)))
        return _first(getattr(place, what) for place in places)

    def headline(self) -> str:
        became = ", ".join(str(node) for node in self.nodes[:3]) + (", …" if len(self.nodes) > 3 else "")
        parts = [self.operator or "the value", self.module and f"in {self.module}", self.source and f"({self.source})"]
        return " ".join(part for part in (*parts, "→", became or f"value {self.value!r}") if part)

    def __str__(self) -> str:
        if not self.nodes and self.comparison is None:
            return f"not located: {self.note}"
        title = "first node that differs" if self.confirmed else "no node is wrong by itself; most of it arises at"
        lines = [f"{title}: {self.operator or '?'}"]
        lines += [f"  module   {self.module}"] if self.module else []
        lines += [f"  source   {self.source}"] if self.source else []
        for place, node in enumerate(self.nodes[:_SHOWN]):
            lines.append(f"  {'nodes' if not place else '     '}    {node} → {', '.join(node.outputs)}")
        if len(self.nodes) > _SHOWN:
            lines.append(f"           … and {len(self.nodes) - _SHOWN} more")
        lines += [f"  in       {_figures(comparison)}" for comparison in self.inputs[:_SHOWN]]
        if self.comparison is not None:
            lines.append(f"  out      {_figures(self.comparison)}")
            if self.comparison.reason:
                lines.append(f"           {self.comparison.reason}")
        if self.note:
            lines.append(f"  note     {self.note}")
        if self.reproducer:
            lines.append(f"  try it   {self.reproducer[0]} with {self.reproducer[1]}")
        return "\n".join(lines)

    def data(self) -> dict[str, Any]:
        """The same as JSON data."""
        from tonnx.proof.data import comparison_data

        return {
            "confirmed": self.confirmed,
            "framework": self.framework,
            "operator": self.operator or None,
            "module": self.module or None,
            "source": self.source or None,
            "value": self.value or None,
            "framework_value": self.framework_value or None,
            "nodes": [
                {
                    "name": n.name or None,
                    "op_type": n.op_type,
                    "index": n.index,
                    "inside": n.inside or None,
                    "outputs": list(n.outputs),
                }
                for n in self.nodes
            ],
            "steps": [
                {"name": s.name, "operator": s.operator, "module": s.module, "source": s.source} for s in self.steps
            ],
            "in": [comparison_data(comparison) for comparison in self.inputs],
            "out": None if self.comparison is None else comparison_data(self.comparison),
            "note": self.note or None,
            "reproducer": None if self.reproducer is None else [str(path) for path in self.reproducer],
            "compared": self.compared,
        }


def _figures(comparison: Comparison) -> str:
    head = f"{comparison.name} {comparison.shape} {comparison.dtype}"
    if not comparison.measured:
        return head
    return f"{head}  max abs {comparison.max_abs:.2g}  max rel {comparison.max_rel:.2g}"


def _first(texts: Iterable[str]) -> str:
    return next((text for text in texts if text), "")
