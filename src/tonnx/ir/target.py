"""What a file is made for: an opset with the lowest IR version that carries it, a runtime, perhaps a named target."""

from __future__ import annotations

from dataclasses import dataclass

from tonnx.errors import InvalidArgument
from tonnx.targets import Profile, read_profile

CANON = 26
"""Every front end lowers to this opset; the legaliser takes it from there. The newest that ONNX Runtime loads."""

OLDEST = 1
OLDEST_RUN = 7
"""The oldest opset that ONNX Runtime promises to run; a file of an older one is brought up to it to be run."""
DEFAULT = 18

ORT_CPU = "ort-cpu"
"""The profile of ONNX Runtime's CPU kernels; see `tonnx.passes.runtime`."""
ORT = "ort"
"""The same, and ONNX Runtime's own operators (com.microsoft): such a file runs nowhere else."""
RUNTIMES = (ORT_CPU, ORT)

# The first IR version that was released together with an opset (from onnx's own table of versions).
_IR_VERSIONS = {
    1: 3, 2: 3, 3: 3, 4: 3, 5: 3, 6: 3, 7: 3, 8: 3, 9: 4, 10: 5, 11: 6, 12: 7, 13: 7, 14: 7, 15: 8, 16: 8, 17: 8, 18: 8,
    19: 9, 20: 9, 21: 10, 22: 10, 23: 11, 24: 12, 25: 13, 26: 13,
}  # fmt: skip


def newest_opset(ir_version: int) -> int:
    """The newest opset that files of an IR version may import."""
    return max((opset for opset, least in _IR_VERSIONS.items() if least <= ir_version), default=1)


@dataclass(frozen=True)
class Target:
    """The opset that was asked for. A model never claims an opset that it does not satisfy."""

    opset: int = DEFAULT
    runtime: str | None = None
    """The runtime whose gaps and habits are worked around; None: a file that favours none."""
    profile: Profile | None = None
    """What the named target takes; None: all of the opset."""

    @classmethod
    def of(cls, opset: int | None, runtime: str | None, name: str | None) -> Target:
        """An opset, or a target by name, or both: then the opset has to be one that the target takes.

        A named target says itself which runtime's habits matter to it.
        """
        if name is None:
            return cls(DEFAULT if opset is None else opset, runtime)
        profile = read_profile(name)
        target = cls(profile.preferred_opset if opset is None else opset, profile.runtime, profile)
        if not profile.lowest_opset <= target.opset <= profile.highest_opset:
            raise InvalidArgument(
                f"{name} does not take opset {opset}",
                why=f"it takes {profile.lowest_opset} to {profile.highest_opset}",
                hint=f"leave the opset out: {profile.preferred_opset} is chosen for this target",
            )
        return target

    def __str__(self) -> str:
        return f"{self.profile.name} (opset {self.opset})" if self.profile else f"opset {self.opset}"

    def __post_init__(self) -> None:
        if isinstance(self.opset, bool) or not isinstance(self.opset, int):
            raise InvalidArgument(f"opset_version must be an integer, not {self.opset!r}")
        if not OLDEST <= self.opset <= CANON:
            raise InvalidArgument(
                f"opset_version={self.opset} is out of range",
                why=f"tonnx writes opsets {OLDEST} to {CANON}",
                hint=f"choose one in that range; {DEFAULT} is the default",
            )
        if self.runtime is not None and self.runtime not in RUNTIMES:
            raise InvalidArgument(
                f"there is no runtime profile {self.runtime!r}",
                hint=f"runtime is {' or '.join(map(repr, RUNTIMES))}, or None for a file that favours no runtime",
            )

    @property
    def ir_version(self) -> int:
        """The lowest IR version that fits the opset: older runtimes refuse files that claim a newer one."""
        return _IR_VERSIONS[self.opset]
