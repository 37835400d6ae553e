"""What an export did to a graph, kept in the file's metadata: operators after each stage, what was folded and fused."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import onnx_ir as ir

_KEY = "tonnx.ir.history"


@dataclass
class History:
    """Grows as the stages go by."""

    stages: list[dict[str, Any]] = field(default_factory=list)

    def record(self, name: str, model: ir.Model) -> None:
        self.stages.append({"name": name, "operators": operator_counts(model)})

    def store(self, model: ir.Model, notes: list[str]) -> None:
        """Into the model's metadata. Nothing that changes from run to run: equal exports give equal files."""
        model.metadata_props[_KEY] = json.dumps({"stages": self.stages, "notes": notes}, ensure_ascii=False)


def operator_counts(model: ir.Model) -> dict[str, int]:
    """How many nodes there are of each operator, in all graphs, the most frequent first."""
    return dict(Counter(map(operator_of, model.graph.all_nodes())).most_common())


def operator_of(node: ir.Node) -> str:
    """The operator's name, with its domain unless that is ONNX's own."""
    return f"{node.domain}::{node.op_type}" if node.domain else node.op_type


def read(model: ir.Model) -> tuple[list[dict[str, Any]], list[str]]:
    """The stages and notes of a file that tonnx made; nothing for others."""
    try:
        record = json.loads(model.metadata_props.get(_KEY, "{}"))
        return list(record.get("stages", [])), list(record.get("notes", []))
    except (json.JSONDecodeError, AttributeError, TypeError):  # somebody else's entry of that name
        return [], []


def others(model: ir.Model) -> dict[str, str]:
    return {key: text for key, text in model.metadata_props.items() if key != _KEY}
