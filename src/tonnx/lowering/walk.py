"""What the walks over the graphs of all frameworks share: where a node comes from, and what becomes of its faults.

A front end's walk says how one node is computed (`compute`), where it comes from (`origin_of`), which values it reads
(`operands_of`) and what stands for its results where nobody can compute them (`stand_in_for`); `results_of` does the
rest. One walk finds all faults of a model: after the first operator without a rule it goes on with stand-ins.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import onnx_ir as ir

from tonnx.errors import LoweringError, Occurrence, TonnxError
from tonnx.ir.build import Builder, UnknownRank

FAULTS = (AssertionError, AttributeError, IndexError, KeyError, NotImplementedError, TypeError, ValueError)
"""What a rule raises when it is given something that it was not written for."""


@dataclass(frozen=True)
class Origin:
    """Where a node of a framework's graph comes from."""

    operator: str
    module: str = ""
    source: str = ""
    """The user's line, or the place in a program that does not know it."""
    where: str = ""
    """The same for messages."""


def place(source: str, module: str) -> str:
    """``net.py:12 (in layer1.0)``."""
    return " ".join(part for part in (source, module and f"(in {module})") if part)


class GraphWalk:
    """The lowering of one graph of a framework into one ONNX graph, node by node."""

    never_passed_over: ClassVar[tuple[type[TonnxError], ...]] = ()
    """Errors that somebody waits for: they leave the walk also when others are collected."""
    to_report: ClassVar[str] = "with the model's source line"
    """What makes a report of a fault of ours useful."""

    def __init__(self, op: Builder) -> None:
        self.op = op
        self.unsupported: list[Occurrence] = []

    # What a front end says

    def compute(self, node: Any) -> Any:
        """The results of a node, from the values that it reads."""
        raise NotImplementedError

    def origin_of(self, node: Any) -> Origin:
        raise NotImplementedError

    def operands_of(self, node: Any) -> Iterable[Any]:
        raise NotImplementedError

    def stand_in_for(self, node: Any) -> Any:
        """Something in the place of results that nobody could compute."""
        raise NotImplementedError

    # What is the same for all

    def results_of(self, node: Any) -> Any:
        """What `compute` gives, or stand-ins if an operator before or inside of it has no rule."""
        reported = len(self.unsupported)
        try:
            return self.compute(node)
        except (TonnxError, *FAULTS) as error:
            origin = self.origin_of(node)
            if self.unsupported and not isinstance(error, self.never_passed_over):
                if len(self.unsupported) == reported and not self._is_consequence(node):
                    self.unsupported.append(fault_at(error, origin.operator, origin.module, origin.source))
                return self.stand_in_for(node)
            if isinstance(error, TonnxError):
                error.where = error.where or origin.where
                raise
            raise self._fault_of_ours(error, origin) from error

    def refuse(self, node: Any, operator: str = "", reason: str = "") -> Any:
        """Note a node without a rule, to report all of them at once; gives what stands for its results."""
        origin = self.origin_of(node)
        self.unsupported.append(Occurrence(operator or origin.operator, origin.module, origin.source, reason))
        return self.stand_in_for(node)

    def _is_consequence(self, node: Any) -> bool:
        """Whether a fault is most likely one of what is reported already: the node reads what stands for a result."""
        try:
            return hangs_on_stand_in(self.operands_of(node))
        except (TonnxError, *FAULTS):  # an operand cannot be read: that is the fault that is told
            return False

    def _fault_of_ours(self, error: Exception, origin: Origin) -> LoweringError:
        if isinstance(error, UnknownRank):
            return LoweringError(
                f"{origin.operator} could not be lowered: how many dimensions its operand has is not known",
                where=origin.where,
                why="the branches or passes before it give tensors of different ranks",
                hint="bring them to one rank in the model, with reshape or unsqueeze",
            )
        return LoweringError(
            f"{origin.operator} could not be lowered",
            where=origin.where,
            why=f"{type(error).__name__}: {error}",
            hint=f"this is a fault of tonnx; please report it {self.to_report}",
        )


class StandIn(ir.Value):
    """A value that no node makes, and that is no input either."""

    def __init__(self, dtype: ir.DataType, shape: ir.Shape | None) -> None:
        super().__init__(None, index=None, name="unsupported", type=ir.TensorType(dtype), shape=shape)


def hangs_on_stand_in(values: Iterable[Any]) -> bool:
    pending, seen = list(values), set[int]()
    while pending:
        value = pending.pop()
        if isinstance(value, (list, tuple)):
            pending += value
            continue
        if isinstance(value, StandIn):
            return True
        if not isinstance(value, ir.Value) or id(value) in seen:
            continue
        seen.add(id(value))
        maker = value.producer()
        if maker is None:
            continue
        pending += maker.inputs
        for attribute in maker.attributes.values():
            if attribute.type == ir.AttributeType.GRAPH and not attribute.is_ref():
                body = attribute.as_graph()
                pending += body.outputs
                pending += [operand for node in body.all_nodes() for operand in node.inputs]
    return False


def fault_at(error: Exception, operator: str, module: str, source: str) -> Occurrence:
    """A fault of a rule as one more operator that cannot be exported, with the reason."""
    if isinstance(error, TonnxError):
        reason = ", ".join(part for part in (error.what, error.why) if part)
    else:
        reason = f"{type(error).__name__}: {error}"
    return Occurrence(operator, module, source, " ".join(reason.split()))
