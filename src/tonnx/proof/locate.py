"""Find the first node of a file whose output departs from the model's.

1. Every value that the file and the model both have is compared, each computed as the file computes it (`chained`).
2. From the outputs that are wrong, back over values that are wrong, to those whose own ancestors are all right.
3. The nodes between are run on the model's own values (`local`). If the result is still wrong, they are the fault; if
   not, what was seen is rounding that had added up, and the place where most of it arises is named instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from tonnx import reading
from tonnx.errors import TonnxError
from tonnx.proof.align import Found, by_contents, stamped, unmatched
from tonnx.proof.compare import Comparison
from tonnx.proof.cut import Cutter, run_model
from tonnx.proof.narrow import narrow
from tonnx.proof.reproduce import write_reproducer
from tonnx.proof.sweep import Local, Pairs, Tolerances, ancestors, chained, local, region_of
from tonnx.proof.trace import Step, Trace
from tonnx.provenance import VALUE, Origin, origin_of

_SHOWN = 12
"""Nodes that are listed in full."""
_CANDIDATES = 16


@dataclass(frozen=True)
class NodeInfo:
    """A node of the file."""

    name: str
    op_type: str
    index: int
    """Its place in the file."""
    outputs: tuple[str, ...]
    origin: Origin = field(default_factory=Origin)

    def __str__(self) -> str:
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

    @property
    def operator(self) -> str:
        names = list(dict.fromkeys(step.operator for step in self.steps if step.operator))
        telling = [name for name in names if name != "operator.getitem"] or names  # of a list that another one gives
        return " + ".join(telling) or _first(node.origin.operator for node in self.nodes)

    @property
    def module(self) -> str:
        last = [step.module for step in reversed(self.steps) if step.module]
        return last[0] if last else _first(node.origin.module for node in reversed(self.nodes))

    @property
    def source(self) -> str:
        last = [step.source for step in reversed(self.steps) if step.source]
        return last[0] if last else _first(node.origin.source for node in reversed(self.nodes))

    def headline(self) -> str:
        """The place in one line."""
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
                {"name": n.name or None, "op_type": n.op_type, "index": n.index, "outputs": list(n.outputs)}
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


@dataclass
class Case:
    """One file, one model, one set of inputs: what everything here works on."""

    model: ir.Model
    trace: Trace
    feeds: dict[str, np.ndarray]
    outputs: dict[str, np.ndarray]
    """What the model gives, by the file's output names."""
    tolerances: Tolerances = field(default_factory=Tolerances)
    stamp: str = VALUE
    """The key under which the file's values name the model's."""

    def __post_init__(self) -> None:
        self.steps = {step.name: step for step in self.trace.steps()}


def opened(model: str | Path | ir.Model) -> ir.Model:
    """A file, with what it says of where its nodes come from, and the types that can be inferred."""
    found = model if isinstance(model, ir.Model) else reading.reader(model)()
    if not isinstance(model, ir.Model):
        reading.infer(found)
    return found


def differences(
    model: str | Path | ir.Model,
    trace: Trace,
    feeds: Mapping[str, np.ndarray],
    outputs: Mapping[str, np.ndarray] | None = None,
    *,
    rtol: float | None = None,
    atol: float | None = None,
) -> list[Difference]:
    """For every value that the file and the model both have, how far apart they are, in the file's order.

    In bounded memory: a few values at a time. ``outputs`` are what the model gives, by the file's output names.
    """
    case = Case(opened(model), trace, dict(feeds), dict(outputs or {}), Tolerances(rtol, atol))
    return _listed(*_swept(case)[:3])


def _swept(case: Case) -> tuple[Cutter, Pairs, dict[str, Comparison], Found | None]:
    cutter, contents = Cutter(case.model), None
    names = stamped(cutter, case.steps, case.stamp)
    if not names:
        # Nothing in the file says which of its values are which of the model's: their names or contents do.
        contents = by_contents(cutter, case.trace, case.feeds, case.steps)
        names = contents.names
    pairs = Pairs(names, case.outputs)
    return cutter, pairs, chained(cutter, case.trace, case.feeds, pairs, case.tolerances), contents


def _listed(cutter: Cutter, pairs: Pairs, found: Mapping[str, Comparison]) -> list[Difference]:
    order = sorted(found, key=lambda value: cutter.maker.get(value, -1))
    return [Difference(v, pairs.names.get(v, ""), _info(cutter, cutter.maker.get(v)), found[v]) for v in order]


def locate(case: Case, *, reproducer: Path | None = None) -> Located:
    """The first node that departs. ``reproducer`` is the path of the ``.onnx`` to write, its ``.npz`` beside it."""
    located, _ = locate_or_compare(case, differs=True, reproducer=reproducer)
    assert located is not None
    return located


def locate_or_compare(
    case: Case, *, differs: bool, reproducer: Path | None = None
) -> tuple[Located | None, list[Difference]]:
    """The first node that departs, if the file is known to differ; and the differences along the graph."""
    cutter, pairs, found, contents = _swept(case)
    listed = _listed(cutter, pairs, found)
    if not differs:
        return None, listed
    located = _searched(case, cutter, pairs, found, contents)
    located.compared = len(found)
    if reproducer is not None and located.local is not None and located.local.expected is not None:
        try:
            located.reproducer = write_reproducer(cutter, located.local, reproducer)
        except TonnxError as error:  # a folder that cannot be written to is no reason to say nothing
            located.note = "; ".join(filter(None, (located.note, f"{error.what} ({error.why})")))
    return located, listed


def _searched(
    case: Case, cutter: Cutter, pairs: Pairs, found: dict[str, Comparison], contents: Found | None
) -> Located:
    wrong = [name for name in cutter.outputs if name in found and not found[name].ok]
    broken = [value for value in found if not found[value].measured and value not in wrong]
    if not wrong and not any(name in found for name in cutter.outputs):
        wrong = broken[-1:]  # the run stopped before the outputs
    if not wrong:
        return _whole(case, cutter)
    roots = _roots(cutter, pairs, found, wrong)
    doubts: dict[str, str] = {}
    if contents is not None:
        roots, doubts = _narrowed(case, cutter, pairs, contents, roots)
    regions = [region_of(cutter, value, pairs) for value in roots[:_CANDIDATES]]
    judged = local(cutter, case.trace, case.feeds, pairs, regions, case.tolerances, keep=True)
    confirmed = next((one for one in judged if not one.comparison.ok), None)
    if confirmed is not None:
        located = _described(case, cutter, pairs, found, confirmed)
        located.note = doubts.get(located.value, "")
        return located
    return _accumulated(case, cutter, pairs, found, wrong)


def _roots(cutter: Cutter, pairs: Pairs, found: Mapping[str, Comparison], wrong: Iterable[str]) -> list[str]:
    """From wrong outputs back over wrong values, to those that are made from right ones only; in the file's order."""
    roots, seen, stack = set(), set(wrong), list(wrong)
    while stack:
        value = stack.pop()
        region = region_of(cutter, value, pairs)
        before = [name for name in region.given if name in found and not found[name].ok]
        if not before:
            roots.add(value)
        for name in before:
            if name not in seen:
                seen.add(name)
                stack.append(name)
    return sorted(roots, key=lambda value: cutter.maker.get(value, -1))


def _narrowed(
    case: Case, cutter: Cutter, pairs: Pairs, contents: Found, roots: list[str]
) -> tuple[list[str], dict[str, str]]:
    """Matching by contents ends at the fault: look for the value of the file at which all is right again."""
    steps = unmatched(case.steps, set(pairs.names.values()))
    narrowed: list[str] = []
    doubts: dict[str, str] = {}
    for root in roots:
        region = region_of(cutter, root, pairs)
        hit = None
        if len(region.nodes) > 1 and root in pairs.outputs:
            hit = narrow(cutter, case.trace, case.feeds, pairs, contents, region, steps, case.tolerances)
        if hit is None:
            narrowed.append(root)
            if len(region.nodes) > 1 and steps and root in pairs.outputs:
                first = f"{steps[0].operator} {steps[0].module} {steps[0].source}".strip()
                doubts[root] = f"one of these; the model's first value that is not found in the file is of {first}"
        else:
            pairs.names[hit[0]] = hit[1]
            narrowed.append(hit[0])
    return narrowed, doubts


def _accumulated(
    case: Case, cutter: Cutter, pairs: Pairs, found: Mapping[str, Comparison], wrong: list[str]
) -> Located:
    """No candidate is wrong by itself: look at all values before the wrong outputs for the one that adds most."""
    before = ancestors(cutter, wrong)
    values = sorted((v for v in found if v in before and v in cutter.maker), key=lambda v: cutter.maker[v])
    regions = [region_of(cutter, value, pairs) for value in values]
    judged = local(cutter, case.trace, case.feeds, pairs, regions, case.tolerances, keep=True)
    worst = next((one for one in judged if not one.comparison.ok), None)
    if worst is not None:
        return _described(case, cutter, pairs, found, worst)
    worst = max(judged, key=lambda one: one.comparison.excess)
    located = _described(case, cutter, pairs, found, worst)
    located.confirmed = False
    located.note = (
        f"differences add up over {len(values)} values; this one adds {worst.comparison.excess:.1%} of what is allowed"
    )
    return located


def _whole(case: Case, cutter: Cutter) -> Located:
    """Piece by piece every value is right. Then it is the runtime that makes something else of the whole."""
    note = "every value agrees when the file is run in parts"
    plain = run_model(cutter.model, case.feeds, optimised=False)
    ok = all(case.tolerances.compare(name, want, plain[name]).ok for name, want in case.outputs.items())
    if ok:
        whole = run_model(cutter.model, case.feeds)
        if not all(case.tolerances.compare(name, want, whole[name]).ok for name, want in case.outputs.items()):
            note += ", and without ONNX Runtime's graph optimisations the whole is right too: the fault is in those"
    return Located(case.trace.framework, "", "", (), (), None, confirmed=False, note=note)


def _described(
    case: Case, cutter: Cutter, pairs: Pairs, found: Mapping[str, Comparison], judged: Local
) -> Located:
    region = judged.region
    name = pairs.names.get(region.value, "")
    steps = _steps(case.steps, name, {pairs.names[v] for v in region.given if v in pairs.names})
    nodes = [info for index in region.nodes if (info := _info(cutter, index)) is not None]
    return Located(
        case.trace.framework,
        region.value,
        name,
        steps,
        tuple(_own(nodes)),
        judged.comparison,
        tuple(found[value] for value in region.given if value in found),
        local=judged,
    )


def _own(nodes: list[NodeInfo]) -> list[NodeInfo]:
    """Without the arithmetic of sizes and other things that many operators share, where the file says what is whose."""
    last = nodes[-1].origin if nodes else Origin()
    if last == Origin():
        return nodes
    own = [node for node in nodes if node.origin == last]
    return own if all(n.origin == last or _helps(n) for n in nodes) else nodes


def _helps(node: NodeInfo) -> bool:
    return node.op_type in ("Shape", "Size", "Gather", "Slice", "Concat", "Constant", "Squeeze", "Unsqueeze", "Cast")


def _steps(steps: Mapping[str, Step], name: str, given: set[str]) -> tuple[Step, ...]:
    """The framework's operators between ``given`` and ``name``, in order."""
    found: dict[str, Step] = {}
    known: dict[str, bool] = {}

    def constant(key: str) -> bool:
        if key in given or key not in steps:
            return False
        if key not in known:
            known[key] = False  # nothing depends on itself
            known[key] = all(constant(one) for one in steps[key].inputs)
        return known[key]

    stack = [name]
    while stack:
        current = stack.pop()
        step = steps.get(current)
        if step is None or current in found:
            continue
        found[current] = step
        stack += [one for one in step.inputs if one not in given]
    return tuple(step for key, step in steps.items() if key in found and (key == name or not constant(key)))


def _info(cutter: Cutter, index: int | None) -> NodeInfo | None:
    if index is None:
        return None
    node = cutter.nodes[index]
    outputs = tuple(value.name or "" for value in node.outputs)
    return NodeInfo(node.name or "", node.op_type, index, outputs, origin_of(node))


def _figures(comparison: Comparison) -> str:
    head = f"{comparison.name} {comparison.shape} {comparison.dtype}"
    if not comparison.measured:
        return head
    return f"{head}  max abs {comparison.max_abs:.2g}  max rel {comparison.max_rel:.2g}"


def _first(texts: Iterable[str]) -> str:
    return next((text for text in texts if text), "")
