"""Time per node, from ONNX Runtime's own profiler.

Measured with the runtime's graph optimisations off: with them, several nodes run as one, and none of the file's own
names would be left. The sum is therefore more than the time of a normal run.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx

from tonnx.errors import InvalidModel
from tonnx.proof.session import one_line

_RUNS = 5


def node_times(path: str | os.PathLike[str], feeds: Mapping[str, np.ndarray], runs: int = _RUNS) -> list[float]:
    """Seconds for each node, of all graphs in the order of `collect.walk`; the median over the runs."""
    import onnxruntime

    model = onnx.load(os.fspath(path), load_external_data=False)
    count = _number(model.graph, 0)
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
    return _by_node(events, count, runs)


def _runnable(model: onnx.ModelProto, folder: str, feeds: Mapping[str, np.ndarray]) -> bytes:
    """As it is; a file of an opset below 7 is brought up to 7 first, where its nodes keep their names."""
    from tonnx.proof import upward

    content = model.SerializeToString()
    if upward.old_model(content) is None:
        return content
    onnx.load_external_data_for_model(model, folder)
    shapes = {name: array.shape for name, array in feeds.items()}
    return next(upward.ways_up(model, shapes))[0]


def _number(graph: onnx.GraphProto, start: int) -> int:
    """Name every node after its place, bodies right after the node that has them."""
    for node in graph.node:
        node.name = f"n{start}"
        start += 1
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                start = _number(attribute.g, start)
            for body in attribute.graphs:
                start = _number(body, start)
    return start


def _by_node(events: list[dict[str, object]], count: int, runs: int) -> list[float]:
    totals: list[list[float]] = [[] for _ in range(count)]
    for event in events:
        name = str(event.get("name", ""))
        if event.get("cat") != "Node" or not name.endswith("_kernel_time"):
            continue
        number = name[1 : -len("_kernel_time")]
        if name.startswith("n") and number.isdigit() and int(number) < count:
            totals[int(number)].append(float(event["dur"]) * 1e-6)  # type: ignore[arg-type]
    # A body runs many times in one run of the model: what counts is the sum of a run.
    return [float(np.sum(times) - times[0]) / runs if len(times) > 1 else float(np.sum(times)) for times in totals]
