"""Whether a runtime or converter takes an ONNX file: ``tonnx.check``. Needs neither torch nor paddle."""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass, field
from typing import Any

import onnx
import onnx_ir as ir

from tonnx.api.retarget import legalised
from tonnx.errors import Blocker, RetargetError
from tonnx.io import read as reading
from tonnx.ir.target import Target
from tonnx.legalise.conformity import misfits
from tonnx.targets import Profile, read_profile


@dataclass(frozen=True)
class CheckResult:
    """What of a file a target does not take, and whether `tonnx.retarget` would mend it. ``print`` it to read it."""

    path: str
    profile: Profile
    opset: int
    nodes: int
    misfits: list[Blocker]
    """What stands in the way, as the file is."""
    remaining: list[Blocker] = field(default_factory=list)
    """What would still stand in the way after `tonnx.retarget`."""

    @property
    def ok(self) -> bool:
        """The target takes the file as it is, as far as its documentation says."""
        return not self.misfits

    def __str__(self) -> str:
        name = self.profile.name
        if self.ok:
            lines = [f"{self.path}: fits {name}: opset {self.opset}, {self.nodes} nodes"]
        else:
            count = len(self.misfits)
            lines = [f"{self.path}: does not fit {name}, in {count} point{'s' if count != 1 else ''}:"]
            lines += [f"  {misfit}" for misfit in self.misfits]
            lines += [self._remedy()]
        return "\n".join([*lines, *(f"  not known of {name}: {fact}" for fact in self.profile.unknown)])

    def _remedy(self) -> str:
        if not self.remaining:
            return f"  do: tonnx retarget {self.path} --target {self.profile.name} -o …  makes it fit"
        rest = "\n".join(f"    {blocker}" for blocker in self.remaining)
        return f"  tonnx retarget --target {self.profile.name} would leave:\n{rest}"

    def data(self) -> dict[str, Any]:
        """The same as JSON data."""
        return {
            "path": self.path,
            "target": self.profile.name,
            "fits": self.ok,
            "opset": self.opset,
            "nodes": self.nodes,
            "misfits": [dataclasses.asdict(misfit) for misfit in self.misfits],
            "mended_by_retarget": not self.remaining,
            "remaining": [dataclasses.asdict(blocker) for blocker in self.remaining],
            "unknown": list(self.profile.unknown),
            "sources": list(self.profile.sources),
        }


def check(model: str | os.PathLike[str] | bytes | onnx.ModelProto | ir.Model, target: str) -> CheckResult:
    """Say what of a model a target does not take: opset, operators, element types, shapes, form of quantisation.

    Example::

        result = tonnx.check("model.onnx", "tensorrt-8.6")
        print(result)
        assert result.ok

    Args:
        model: a path, the file's bytes, an ``onnx.ModelProto`` or an onnx-ir model. It is not changed.
        target: a name such as ``tensorrt-8.6``; ``tonnx check --list`` lists them.
    """
    profile = read_profile(target)
    with reading.blaming(model):
        read = reading.reader(model)
        original = read()
        reading.infer(original)
        blockers = misfits(original, profile)
        return CheckResult(
            path=os.fspath(model) if isinstance(model, (str, os.PathLike)) else "model",
            profile=profile,
            opset=original.opset_imports[""],
            nodes=sum(1 for _ in original.graph.all_nodes()),
            misfits=blockers,
            remaining=_remaining(read(), read, profile) if blockers else [],
        )


def _remaining(model: ir.Model, read: Any, profile: Profile) -> list[Blocker]:
    """What legalising for the target cannot mend."""
    opset = min(max(model.opset_imports[""], profile.lowest_opset), profile.highest_opset)
    try:
        legalised(model, read, Target(opset, profile.runtime, profile), [])
    except RetargetError as error:
        return list(error.blockers)
    return []
