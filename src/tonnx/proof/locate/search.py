"""Find the first node of a file whose output departs from the model's.

1. Every value that the file and the model both have is compared, each computed as the file computes it (`chained`).
2. From the outputs that are wrong, back over values that are wrong, to those whose own ancestors are all right.
3. The nodes between are run on the model's own values (`local`). If the result is still wrong, they are the fault; if
   not, what was seen is rounding that had added up, and the place where most of it arises is named instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import numpy as np
import onnx_ir as ir

from tonnx.errors import TonnxError
from tonnx.ir.facts import VALUE, Fact
from tonnx.ir.provenance import Origin, origin_of
from tonnx.ir.reach import reached
from tonnx.proof.compare import Comparison
from tonnx.proof.locate.align import ContentMatch, by_contents, stamped, unmatched
from tonnx.proof.locate.cut import Cutter, run_model
from tonnx.proof.locate.inside import opened_case, placed
from tonnx.proof.locate.located import Difference, Located, NodeInfo
from tonnx.proof.locate.narrow import narrow
from tonnx.proof.locate.reproduce import write_reproducer
from tonnx.proof.locate.sweep import Local, Pairs, Tolerances, ancestors, chained, local
from tonnx.proof.locate.trace import Step, Trace
from tonnx.proof.locate.unfold import Place
from tonnx.proof.subject import Arrays, Subject

_CANDIDATES = 16
_DEEPEST = 4
"""Branches in loops in branches that are gone into."""


@dataclass
class Case:
    """One file, one model, one set of inputs: what everything here works on."""

    model: ir.Model
    trace: Trace
    feeds: dict[str, np.ndarray]
    outputs: dict[str, np.ndarray]
    """What the model gives, by the file's output names."""
    tolerances: Tolerances = field(default_factory=Tolerances)
    stamp: Fact[str] = VALUE
    """What the file's values know of the model's."""
    whole: dict[str, np.ndarray] | None = None
    """The inputs of the whole model, where ``model`` is a part of the file that was written out; see `unfold`."""
    places: list[Place] | None = None
    """Where the nodes of such a part stand in the file."""
    model_values: dict[str, str] = field(default_factory=dict)
    """Inputs of such a part, and what is known of its other values → the model's values that they hold."""
    marks: dict[str, str] = field(default_factory=dict)
    """What values inside of branches and loops hold, by their names in the file."""
    outer: str = ""
    """The model's branch or loop that such a part was inside of."""

    def __post_init__(self) -> None:
        self.steps = {step.name: step for step in self.trace.steps()}


def case_of(subject: Subject, model: ir.Model, feeds: Arrays) -> Case:
    """A file beside what it is compared with, on these inputs."""
    assert subject.trace is not None
    expected = subject.expected(feeds)
    return Case(model, subject.trace(), dict(feeds), expected, Tolerances(subject.rtol, subject.atol), subject.stamp)


def _swept(case: Case) -> tuple[Pairs, dict[str, Comparison], ContentMatch | None]:
    cutter, contents = Cutter(case.model), None
    names = stamped(cutter, case.steps, case.stamp)
    if not names:
        # Nothing in the file says which of its values are which of the model's: their names or contents do.
        contents = by_contents(cutter, case.trace, case.feeds, case.outputs, case.steps)
        names = {**contents.names, **case.model_values}
    pairs = Pairs(cutter, case.trace, case.feeds, names, case.outputs, case.tolerances)
    return pairs, chained(pairs), contents


def _listed(pairs: Pairs, comparisons: Mapping[str, Comparison]) -> list[Difference]:
    cutter = pairs.cutter
    order = sorted(comparisons, key=lambda value: cutter.maker.get(value, -1))
    return [Difference(v, pairs.names.get(v, ""), _info(cutter, cutter.maker.get(v)), comparisons[v]) for v in order]


def locate(case: Case, *, reproducer: Path | None = None) -> Located:
    """The first node that departs. ``reproducer`` is the path of the ``.onnx`` to write, its ``.npz`` beside it."""
    located, _ = locate_or_compare(case, differs=True, reproducer=reproducer)
    assert located is not None
    return located


def locate_or_compare(
    case: Case, *, differs: bool, reproducer: Path | None = None
) -> tuple[Located | None, list[Difference]]:
    """The first node that departs, if the file is known to differ; and the differences along the graph."""
    pairs, comparisons, contents = _swept(case)
    listed = _listed(pairs, comparisons)
    if not differs:
        return None, listed
    located = _searched(case, pairs, comparisons, contents)
    located, cutter = _deeper(case, pairs.cutter, located)
    located.compared = len(comparisons)
    if reproducer is not None and located.local is not None and located.local.expected is not None:
        try:
            located.reproducer = write_reproducer(cutter, located.local, reproducer)
        except TonnxError as error:  # a folder that cannot be written to is no reason to say nothing
            located.note = "; ".join(filter(None, (located.note, f"{error.what} ({error.why})")))
    return located, listed


def _searched(case: Case, pairs: Pairs, comparisons: dict[str, Comparison], contents: ContentMatch | None) -> Located:
    outputs = pairs.cutter.outputs
    wrong = [name for name in outputs if name in comparisons and not comparisons[name].ok]
    broken = [value for value in comparisons if not comparisons[value].measured and value not in wrong]
    if not wrong and not any(name in comparisons for name in outputs):
        wrong = broken[-1:]  # the run stopped before the outputs
    if not wrong:
        return _whole(case, pairs.cutter)
    roots = _roots(pairs, comparisons, wrong)
    doubts: dict[str, str] = {}
    if contents is not None:
        roots, doubts = _narrowed(case, pairs, contents, roots)
    judged = local(pairs, roots[:_CANDIDATES])
    confirmed = next((one for one in judged if not one.comparison.ok), None)
    if confirmed is not None:
        located = _described(case, pairs, comparisons, confirmed)
        located.note = doubts.get(located.value, "")
        return located
    return _accumulated(case, pairs, comparisons, wrong)


def _deeper(case: Case, cutter: Cutter, located: Located) -> tuple[Located, Cutter]:
    """If the fault is in a branch, a loop or a function: the node inside, where that can be found out."""
    for _ in range(_DEEPEST):
        inner = opened_case(case, cutter, located)
        if inner is None:
            break
        try:
            pairs, comparisons, contents = _swept(inner)
            deeper = _searched(inner, pairs, comparisons, contents)
        except TonnxError:  # what is known is where it is not deeper
            break
        if not deeper.confirmed or not deeper.nodes or deeper.local is None or deeper.local.expected is None:
            break
        deeper.nodes = tuple(placed(inner, node) for node in deeper.nodes)
        case, cutter, located = inner, pairs.cutter, deeper
    return located, cutter


def _roots(pairs: Pairs, comparisons: Mapping[str, Comparison], wrong: Iterable[str]) -> list[str]:
    """From wrong outputs back over wrong values, to those that are made from right ones only; in the file's order."""

    @cache
    def before(value: str) -> list[str]:
        return [name for name in pairs.region(value).inputs if name in comparisons and not comparisons[name].ok]

    roots = [value for value in reached(wrong, before) if not before(value)]
    return sorted(roots, key=lambda value: pairs.cutter.maker.get(value, -1))


def _narrowed(case: Case, pairs: Pairs, contents: ContentMatch, roots: list[str]) -> tuple[list[str], dict[str, str]]:
    """Matching by contents ends at the fault: look for the value of the file at which all is right again."""
    narrowed: dict[str, None] = {}
    doubts: dict[str, str] = {}
    for root in roots:
        region = pairs.region(root)
        if len(region.nodes) == 1:
            narrowed[root] = None
            continue
        end = pairs.names.get(root) or contents.ends.get(root)
        steps = unmatched(case.steps, set(pairs.names.values()), end)
        hit = narrow(pairs, contents, region, end, steps)
        if hit is not None:
            pairs.names[hit[0]] = hit[1]
        elif steps and root in pairs.outputs:
            first = f"{steps[0].operator} {steps[0].module} {steps[0].source}".strip()
            doubts[root] = f"one of these; the model's first value that is not found in the file is of {first}"
        narrowed[root if hit is None else hit[0]] = None
    return list(narrowed), doubts


def _accumulated(case: Case, pairs: Pairs, comparisons: Mapping[str, Comparison], wrong: list[str]) -> Located:
    """No candidate is wrong by itself: look at all values before the wrong outputs for the one that adds most."""
    maker, before = pairs.cutter.maker, ancestors(pairs.cutter, wrong)
    values = sorted((v for v in comparisons if v in before and v in maker), key=lambda v: maker[v])
    judged = local(pairs, values)
    worst = next((one for one in judged if not one.comparison.ok), None)
    if worst is not None:
        return _described(case, pairs, comparisons, worst)
    worst = max(judged, key=lambda one: one.comparison.excess)
    located = _described(case, pairs, comparisons, worst)
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


def _described(case: Case, pairs: Pairs, comparisons: Mapping[str, Comparison], judged: Local) -> Located:
    region = judged.region
    name = pairs.names.get(region.value, "")
    model_values = {value: pairs.names[value] for value in region.inputs if value in pairs.names}
    steps = _steps(case.steps, name, set(model_values.values()))
    nodes = [info for index in region.nodes if (info := _info(pairs.cutter, index)) is not None]
    return Located(
        case.trace.framework,
        region.value,
        name,
        steps,
        tuple(_own(nodes)),
        judged.comparison,
        tuple(comparisons[value] for value in region.inputs if value in comparisons),
        local=judged,
        model_values=model_values,
    )


def _own(nodes: list[NodeInfo]) -> list[NodeInfo]:
    """Without constants, which are data; and where the file says what is whose, without what many operators share."""
    nodes = [node for node in nodes if node.op_type != "Constant"] or nodes
    last = nodes[-1].origin if nodes else Origin()
    if last == Origin():
        return nodes
    own = [node for node in nodes if node.origin == last]
    return own if all(n.origin == last or _helps(n) for n in nodes) else nodes


def _helps(node: NodeInfo) -> bool:
    return node.op_type in ("Shape", "Size", "Gather", "Slice", "Concat", "Constant", "Squeeze", "Unsqueeze", "Cast")


def _steps(steps: Mapping[str, Step], name: str, ends: set[str]) -> tuple[Step, ...]:
    """The framework's operators between ``ends`` and ``name``, in order."""
    is_constant: dict[str, bool] = {}

    def constant(key: str) -> bool:
        if key in ends or key not in steps:
            return False
        if key not in is_constant:
            is_constant[key] = False  # nothing depends on itself
            is_constant[key] = all(constant(one) for one in steps[key].inputs)
        return is_constant[key]

    def before(key: str) -> list[str]:
        return [one for one in steps[key].inputs if one in steps and one not in ends]

    between = set(reached([name] if name in steps else [], before))
    return tuple(step for key, step in steps.items() if key in between and (key == name or not constant(key)))


def _info(cutter: Cutter, index: int | None) -> NodeInfo | None:
    if index is None:
        return None
    node = cutter.nodes[index]
    outputs = tuple(value.name or "" for value in node.outputs)
    return NodeInfo(node.name or "", node.op_type, index, outputs, origin_of(node))
