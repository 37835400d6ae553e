"""Time per node, from ONNX Runtime's own profiler.

Measured with the runtime's graph optimisations off: with them, several nodes run as one, and none of the file's own
names would be left. The sum is therefore more than the time of a normal run.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
import onnx

from tonnx.errors import InvalidModel
from tonnx.proof.session import one_line
from tonnx.reporting.collect import MOST_IN_FUNCTIONS

_RUNS, _EVENTS = 5, 8000
"""Runs, and how many nodes are timed at most in all of them together: reading the profile takes longer than running."""
_KERNEL = re.compile(r"(?:^|_)n(\d+)_kernel_time$")
"""In a function, ONNX Runtime puts the function's name before the node's."""


def node_times(path: str | os.PathLike[str], feeds: Mapping[str, np.ndarray]) -> list[float]:
    """Seconds for each node, of all graphs in the order of `collect.walk`; the mean over the runs."""
    import onnxruntime

    model = onnx.load(os.fspath(path), load_external_data=False)
    owners = _Numbering(model).owners
    count = len(owners)
    runs = max(1, min(_RUNS, _EVENTS // max(1, count)))
    folder = str(Path(path).resolve().parent)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.add_session_config_entry("session.model_external_initializers_file_folder_path", folder)
    options.enable_profiling = True
    with tempfile.TemporaryDirectory() as scratch:
        options.profile_file_prefix = str(Path(scratch) / "profile")
        try:
            content = _runnable(model, folder, feeds)
            session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
            for _ in range(runs + 1):  # the first one warms up
                session.run(None, dict(feeds))
            events = json.loads(Path(session.end_profiling()).read_text(encoding="utf-8"))
        except Exception as error:  # ONNX Runtime's errors have no base class of their own
            raise InvalidModel("ONNX Runtime does not run the model", where=str(path), why=one_line(error)) from error
    return _by_node(events, owners, runs)


def _runnable(model: onnx.ModelProto, folder: str, feeds: Mapping[str, np.ndarray]) -> bytes:
    """As it is; a file of an opset below 7 is brought up to 7 first, where its nodes keep their names."""
    from tonnx.proof import upward

    content = model.SerializeToString()
    if upward.old_model(content) is None:
        return content
    onnx.load_external_data_for_model(model, folder)
    shapes = {name: array.shape for name, array in feeds.items()}
    return next(upward.ways_up(model, shapes))[0]


class _Numbering:
    """Names every node after its place, in the order of `collect.walk`; ``owners`` has the nodes that run them."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self.owners: list[int] = []
        self._model = model
        self._functions = {_key(function, function.name): function for function in model.functions}
        self._nodes(model.graph.node, -1, ())

    def _nodes(self, body: Iterable[onnx.NodeProto], owner: int, calls: tuple[tuple[str, str, str], ...]) -> None:
        for node in body:
            number = len(self.owners)
            node.name = f"n{number}"
            self.owners.append(owner)
            for attribute in node.attribute:
                for graph in ([attribute.g] if attribute.HasField("g") else []) + list(attribute.graphs):
                    self._nodes(graph.node, number, calls)
            key = _key(node, node.op_type)
            function = None if key in calls else self._functions.get(key)
            if function is not None and number + 1 < MOST_IN_FUNCTIONS:
                self._nodes(self._own(node, function).node, number, (*calls, key))

    def _own(self, node: onnx.NodeProto, function: onnx.FunctionProto) -> onnx.FunctionProto:
        """Every call gets a function of its own, so that its nodes are told from those of other calls."""
        own = self._model.functions.add()
        own.CopyFrom(function)
        own.name = node.op_type = f"{function.name}_{node.name}"
        return own


def _key(where: onnx.NodeProto | onnx.FunctionProto, name: str) -> tuple[str, str, str]:
    domain = "" if where.domain == "ai.onnx" else where.domain
    return domain, name, getattr(where, "overload", "")


def _by_node(events: list[dict[str, object]], owners: list[int], runs: int) -> list[float]:
    totals: list[list[float]] = [[] for _ in owners]
    for event in events:
        name = _KERNEL.search(str(event.get("name", "")))
        if event.get("cat") == "Node" and name is not None and int(name[1]) < len(owners):
            totals[int(name[1])].append(float(event["dur"]) * 1e-6)  # type: ignore[arg-type]
    # A body runs many times in one run of the model: what counts is the sum of a run.
    sums = [float(np.sum(times) - times[0]) / runs if len(times) > 1 else float(np.sum(times)) for times in totals]
    own = list(sums)
    for owner, seconds in zip(owners, sums, strict=True):
        if owner >= 0:  # the time of an If or Loop has that of its body in it
            own[owner] = max(0.0, own[owner] - seconds)
    return own
