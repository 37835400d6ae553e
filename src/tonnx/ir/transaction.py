"""Taking back what a builder has added to a graph."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tonnx.ir.build import Builder


class Transaction:
    """What a `Builder` had when a trial began."""

    def __init__(self, builder: Builder) -> None:
        assert builder.before is None, "only what is built at the end of a graph can be taken back"
        self._builder = builder
        self._nodes, self._bodies = len(builder.graph), len(builder._bodies)
        self._constants, self._sizes = dict(builder._constants), dict(builder._named_sizes)
        self._functions = dict(builder.functions)

    def take_back(self) -> None:
        """Remove all nodes made since then, and what was begun in inner graphs: it must not look like a use."""
        builder = self._builder
        for body in builder._bodies[self._bodies :]:
            body.discard()
        del builder._bodies[self._bodies :]
        for node in list(builder.graph)[self._nodes :][::-1]:
            builder.graph.remove(node, safe=True)
        builder._constants, builder._named_sizes = dict(self._constants), dict(self._sizes)
        builder.functions.clear()
        builder.functions.update(self._functions)
