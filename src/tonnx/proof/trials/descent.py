"""Which outputs of a file some of its nodes have a part in."""

from __future__ import annotations

from collections.abc import Callable

import onnx_ir as ir

from tonnx.ir.rewrite import inner_graphs


def outputs_after(model: ir.Model, starts: Callable[[ir.Node], bool]) -> frozenset[str]:
    """The names of the outputs that are computed from what the nodes give for which ``starts`` is true."""
    reached: set[ir.Value] = set()

    def visit(graph: ir.Graph) -> bool:
        some = False
        for node in graph:
            inside = max(map(visit, inner_graphs(node)), default=False)  # all of them: each adds to what is reached
            if inside or starts(node) or any(value in reached for value in node.inputs):
                reached.update(node.outputs)
                some = True
        return some

    visit(model.graph)
    return frozenset(str(value.name) for value in model.graph.outputs if value in reached)
