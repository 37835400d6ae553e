"""The fixture ``onnx_export`` of pytest: a model exports, is proven, and its file is what it was when it was looked at.

Example::

    def test_export(onnx_export):
        onnx_export(Net(), torch.rand(2, 3, 32, 32), opset=[11, 17], snapshot=True)

``pytest --tonnx-update`` writes the snapshots anew: small JSON files in ``__onnx__`` beside the test, to be committed.
This module is imported at every start of pytest, and so imports nothing but pytest.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tonnx.api.result import ExportResult

FOLDER = "__onnx__"


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--tonnx-update``."""
    help = f"write the snapshots of onnx_export anew, into {FOLDER} beside the tests"
    parser.getgroup("tonnx").addoption("--tonnx-update", action="store_true", help=help)


@pytest.fixture
def onnx_export(request: pytest.FixtureRequest, tmp_path: Path) -> OnnxExport:
    """Export models, prove them, and compare graph and numbers with a committed snapshot."""
    name = re.sub(r"[^\w.=-]+", "_", request.node.name).strip("_")
    folder = Path(request.path).parent / FOLDER / Path(request.path).stem
    return OnnxExport(folder, name, tmp_path, bool(request.config.getoption("--tonnx-update")))


class OnnxExport:
    """What the fixture is: call it with a model and its inputs."""

    def __init__(self, folder: Path, name: str, work: Path, update: bool) -> None:
        self._folder, self._name, self._work, self._update = folder, name, work, update
        self._calls = 0

    def __call__(
        self,
        model: Any,
        *args: Any,
        opset: int | Sequence[int] | None = None,
        snapshot: bool = False,
        kwargs: Mapping[str, Any] | None = None,
        rtol: float = 1e-3,
        atol: float = 1e-5,
        larger: float = 0.05,
        **options: Any,
    ) -> dict[int, ExportResult]:
        """The results by opset.

        Args:
            model, args, kwargs: the model and its inputs, as it is called.
            opset: one, or several.
            snapshot: compare each file with the snapshot of it: operators, shapes, size, weights, outputs.
            rtol, atol: how far weights and outputs may be from the snapshot's.
            larger: by which share the size may differ.
            options: others of `tonnx.export`, such as ``dynamic_axes``.
        """
        import tonnx
        from tonnx.ir.target import DEFAULT

        __tracebackhide__ = True
        self._calls += 1
        results = {}
        for number in [opset if opset is not None else DEFAULT] if not isinstance(opset, Sequence) else opset:
            stem = f"{self._name}{f'-{self._calls}' if self._calls > 1 else ''}-opset{number}"
            path = self._work / f"{stem}.onnx"
            result = tonnx.export(model, args, path, kwargs=kwargs, opset_version=number, **options)
            results[number] = result
            if snapshot:
                self._compare(self._folder / f"{stem}.json", result, rtol, atol, larger)
        return results

    def _compare(self, file: Path, result: ExportResult, rtol: float, atol: float, larger: float) -> None:
        from tonnx.snapshots import differences, read_snapshot, take, write_snapshot

        __tracebackhide__ = True
        current = take(result)
        if self._update:
            write_snapshot(file, current)
            return
        earlier = read_snapshot(file)
        if earlier is None:
            pytest.fail(f"there is no snapshot {file}\n  do:    pytest --tonnx-update, and commit it", pytrace=False)
        found = differences(earlier, current, rtol=rtol, atol=atol, larger=larger)
        if found:
            lines = "\n".join(f"  {line}" for line in found)
            hint = "  do:    if that is meant: pytest --tonnx-update"
            pytest.fail(f"the file is not what it was in {file.name}:\n{lines}\n{hint}", pytrace=False)
