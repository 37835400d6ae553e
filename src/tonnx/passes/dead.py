"""Dead code: nodes and initializers that no output depends on."""

from __future__ import annotations

import onnx_ir as ir

from tonnx.ir.rewrite import all_graphs, drop_unread


def remove_dead(model: ir.Model) -> int:
    """Remove unused nodes, inner graphs first (they may hold the last use of an outer value), then initializers."""
    removed = 0
    for graph in reversed(all_graphs(model)):
        for node in reversed(graph):
            if not any(output.uses() or output.is_graph_output() for output in node.outputs):
                graph.remove(node, safe=True)
                removed += 1
    drop_unread(model)
    return removed
