"""What changed between two models, as a person would say it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

import numpy as np
import onnx_ir as ir

from tonnx.comparing.match import Matching, attributes_of, constant_of, match
from tonnx.ir.history import operator_of
from tonnx.ir.provenance import origin_of
from tonnx.proof.signature import signature_of

KINDS = ("file", "signature", "gone", "added", "attribute", "weight", "rewired", "shape", "renamed")
"""In the order in which they are told."""


@dataclass(frozen=True)
class Change:
    """One thing that is different."""

    kind: str
    what: str
    """One line that says it."""
    module: str = ""
    source: str = ""
    """The module and the user's line that it belongs to, where a file says them."""
    count: int = 1

    def __str__(self) -> str:
        place = " ".join(part for part in (self.module, self.source) if part)
        return f"{self.kind}: {self.what}" + (f"  [{place}]" if place else "")


def changes(left: ir.Model, right: ir.Model) -> list[Change]:
    """Everything that is different; nothing for two files that compute the same in the same way by the same names."""
    matching = match(left.graph, right.graph)
    listed = [*_of_files(left, right), *_of_signatures(left, right, matching), *_of_graphs(left, right, matching)]
    for key, function in left.functions.items():
        if (other := right.functions.get(key)) is not None:
            listed += _of_graphs(function.graph, other.graph, match(function.graph, other.graph))
    listed += _renamed(matching)
    return sorted(listed, key=lambda change: KINDS.index(change.kind))


def _of_files(left: ir.Model, right: ir.Model) -> Iterator[Change]:
    for domain in sorted({*left.opset_imports, *right.opset_imports}):
        before, after = (model.opset_imports.get(domain) for model in (left, right))
        if before != after:
            yield Change("file", f"opset {domain or 'of ONNX'}: {before or 'none'} → {after or 'none'}")
    if left.ir_version != right.ir_version:
        yield Change("file", f"IR version {left.ir_version} → {right.ir_version}")
    bodies = [{str(key): function for key, function in model.functions.items()} for model in (left, right)]
    for name in sorted({*bodies[0], *bodies[1]}):
        if name not in bodies[1] or name not in bodies[0]:
            yield Change("file", f"the function {name} is {'gone' if name in bodies[0] else 'new'}")


def _of_signatures(left: ir.Model, right: ir.Model, matching: Matching) -> Iterator[Change]:
    given = {value: matching.values.get(value) for value in left.graph.inputs if not value.is_initializer()}
    theirs = [value for value in right.graph.inputs if not value.is_initializer()]
    results = dict(zip(left.graph.outputs, right.graph.outputs, strict=False))
    rest = left.graph.outputs[len(right.graph.outputs) :]
    for kind, pairs, others in (
        ("input", given, theirs),
        ("output", results | dict.fromkeys(rest), right.graph.outputs),
    ):
        for one, other in pairs.items():
            if other is None:
                yield Change("signature", f"{kind} {signature_of(one)} is gone")
            elif signature_of(one) != signature_of(other):
                yield Change("signature", f"{kind} {signature_of(one)} → {signature_of(other)}")
        paired = set(pairs.values())
        yield from (Change("signature", f"{kind} {signature_of(v)} is new") for v in others if v not in paired)


def _of_graphs(left: ir.Model | ir.Graph, right: ir.Model | ir.Graph, matching: Matching) -> Iterator[Change]:
    ours, theirs = (m.graph if isinstance(m, ir.Model) else m for m in (left, right))
    partners = set(matching.nodes.values())
    yield from _operators("gone", [node for node in ours if node not in matching.nodes])
    yield from _operators("added", [node for node in theirs if node not in partners])
    weights: dict[tuple[ir.Value, ir.Value], Change] = {}
    for one, other in matching.nodes.items():
        if one not in matching.equal:
            yield from _of_nodes(one, other, matching, weights)
    yield from weights.values()
    yield from _ends(ours, theirs, matching)
    yield from _shapes(matching)


def _operators(kind: str, nodes: list[ir.Node]) -> Iterator[Change]:
    """By module: what was there and is not, or the other way round."""
    groups: dict[tuple[str, str], list[ir.Node]] = defaultdict(list)
    for node in nodes:
        if not (node.domain == "" and node.op_type == "Constant"):
            groups[origin_of(node).module, operator_of(node)].append(node)
    for (module, operator), members in groups.items():
        times = f" ×{len(members)}" if len(members) > 1 else ""
        names = ", ".join(str(node.name or node.outputs[0].name) for node in members[:3])
        yield Change(kind, f"{operator}{times} ({names})", module, origin_of(members[0]).source, len(members))


def _of_nodes(
    one: ir.Node, other: ir.Node, matching: Matching, weights: dict[tuple[ir.Value, ir.Value], Change]
) -> Iterator[Change]:
    origin, name = origin_of(other), f"{operator_of(other)} {other.name or other.outputs[0].name}"
    before, after = attributes_of(one), attributes_of(other)
    for key in sorted({*before, *after}):
        if before.get(key) == after.get(key):
            continue
        bodies = [node.attributes[key].as_graph() for node in (one, other) if _is_graph(node, key)]
        if len(bodies) == 2:
            yield from _of_graphs(bodies[0], bodies[1], match(bodies[0], bodies[1], outer=matching.values))
            continue
        told = f"{name}: {key} {before.get(key, 'not there')} → {after.get(key, 'not there')}"
        yield Change("attribute", told, origin.module, origin.source)
    pad = max(len(one.inputs), len(other.inputs))
    inputs = [[*node.inputs, *[None] * (pad - len(node.inputs))] for node in (one, other)]
    for i, (x, y) in enumerate(zip(*inputs, strict=True)):
        arrays = constant_of(x), constant_of(y)
        if x is not None and y is not None and arrays[0] is not None and arrays[1] is not None:
            if (x, y) not in weights and (told := _weight(x, y, arrays[0], arrays[1])):
                weights[x, y] = Change("weight", told, origin.module, origin.source)
        elif not _same_source(x, y, matching):
            told = f"{name} reads {_named(y)} as its input {i}, and read {_named(x)}"
            yield Change("rewired", told, origin.module, origin.source)


def _is_graph(node: ir.Node, key: str) -> bool:
    return key in node.attributes and node.attributes[key].type == ir.AttributeType.GRAPH


def _same_source(one: ir.Value | None, other: ir.Value | None, matching: Matching) -> bool:
    """Whether two inputs are the same value; or differ because a node before them came or went, which is told."""
    if one is None or other is None:
        return one is other
    if matching.values.get(one) is other:
        return True
    partners = set(matching.nodes.values())
    makers = one.producer(), other.producer()
    return (makers[0] is not None and makers[0] not in matching.nodes and not _constant(one)) or (
        makers[1] is not None and makers[1] not in partners and not _constant(other)
    )


def _constant(value: ir.Value) -> bool:
    return constant_of(value) is not None


def _named(value: ir.Value | None) -> str:
    return "nothing" if value is None else str(value.name)


def _weight(one: ir.Value, other: ir.Value, before: np.ndarray, after: np.ndarray) -> str:
    """How much a weight changed; empty if it did not."""
    name = str(one.name) if one.name == other.name else f"{one.name} → {other.name}"
    if before.dtype.kind == after.dtype.kind == "U" and before.shape == after.shape:
        different = int((before != after).sum())
        return f"{name}: {different} of {before.size} texts" if different else ""
    if before.dtype != after.dtype or before.shape != after.shape:
        return f"{name}: {before.dtype}{list(before.shape)} → {after.dtype}{list(after.shape)}"
    wide, other_wide = before.astype(np.float64), after.astype(np.float64)
    unequal = ~((wide == other_wide) | (np.isnan(wide) & np.isnan(other_wide)))
    if not unequal.any():
        return ""
    if before.size <= 4:
        return f"{name}: {before.tolist()} → {after.tolist()}"
    error = np.abs(other_wide - wide)[unequal]
    norm = float(np.sqrt(np.square(wide).sum()))
    part = f", {100 * float(np.sqrt(np.square(error).sum())) / norm:.3g} % of its length" if norm else ""
    return f"{name}: {int(unequal.sum())} of {before.size} numbers, by up to {float(error.max()):.3g}{part}"


def _ends(left: ir.Graph, right: ir.Graph, matching: Matching) -> Iterator[Change]:
    """An output that another value now stands for."""
    for i, (one, other) in enumerate(zip(left.outputs, right.outputs, strict=False)):
        if one.producer() is not None and not _same_source(one, other, matching):
            yield Change("rewired", f"output {i} is {_named(other)}, which is not what {_named(one)} was")


def _shapes(matching: Matching) -> Iterator[Change]:
    """Types and shapes of values inside: they follow from one another, so the first is named and the rest counted."""
    changed = []
    for one, other in matching.nodes.items():
        for x, y in zip(one.outputs, other.outputs, strict=False):
            kinds = [signature_of(value).partition(": ")[2] for value in (x, y)]
            known = all(value.shape is not None for value in (x, y))
            if known and kinds[0] != kinds[1] and not x.is_graph_output() and not y.is_graph_output():
                changed.append((other, f"{y.name}: {kinds[0]} → {kinds[1]}"))
    if changed:
        origin, told = origin_of(changed[0][0]), changed[0][1]
        after = f"{len(changed) - 1} value{'s' if len(changed) > 2 else ''} after it"
        more = f" (and {after})" if len(changed) > 1 else ""
        yield Change("shape", told + more, origin.module, origin.source, len(changed))


def _renamed(matching: Matching) -> Iterator[Change]:
    """Values that are the same and have another name. Those of weights go with their nodes."""
    pairs = [(x, y) for x, y in matching.values.items() if x.name != y.name and x.name and y.name]
    inside = [(x, y) for x, y in pairs if x.producer() is not None and not x.is_graph_output()]
    counts = Counter(x for x, _ in inside)
    if counts:
        told = ", ".join(f"{x.name} → {y.name}" for x, y in inside[:3])
        more = f" and {len(inside) - 3} more" if len(inside) > 3 else ""
        yield Change("renamed", f"{told}{more}", count=len(inside))


def page(title: str, changes: Sequence[Change], numeric: Sequence[str]) -> str:
    """The changes between two files as one HTML page that needs no network."""
    rows = "\n".join(
        f'<tr class="{change.kind}"><td>{change.kind}<td><code>{escape(change.what)}</code>'
        f"<td>{escape(change.module)}<td>{escape(change.source)}"
        for change in changes
    )
    count = len(changes)
    figures = "".join(f"<li><code>{escape(line)}</code>" for line in numeric)
    parts = {
        "title": escape(title),
        "summary": f"{count} change{'s' if count != 1 else ''}" if count else "nothing changed",
        "rows": rows,
        "numeric": f"<h2>Run on the same inputs</h2><ul>{figures}</ul>" if figures else "",
    }
    text = Path(__file__).with_name("page.html").read_text(encoding="utf-8")
    for name, value in parts.items():
        text = text.replace("{{" + name + "}}", value)
    return text
