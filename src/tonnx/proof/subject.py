"""What a file is compared with. One `Subject` goes from the front end to the proof, for export, retarget and verify."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from tonnx.errors import CaptureError
from tonnx.ir.facts import VALUE, Fact
from tonnx.ir.restrictions import OneTextAfterPast

if TYPE_CHECKING:
    from tonnx.proof.locate.trace import Trace

Arrays = Mapping[str, np.ndarray]
Reference = Callable[[dict[str, np.ndarray]], Sequence[np.ndarray]]
"""The original model as a function on arrays: inputs by name to outputs in order. It may write into its inputs."""


@dataclass(frozen=True)
class Subject:
    """A model on arrays, with everything that the proof has to know of it. Names are the file's."""

    reference: Reference | None
    """None: there is nothing to compare with; the file is only checked, loaded and run."""
    example: Arrays
    outputs: Sequence[str]
    """The names of what ``reference`` gives, in order."""
    dynamic: Mapping[str, Mapping[int, str]] = field(default_factory=dict)
    """The dynamic axes of each input: equal names are equal sizes."""
    limits: Mapping[str, tuple[int, int | None]] = field(default_factory=dict)
    """The lowest and the highest size that a name may stand for; None: any."""
    assumed: Mapping[str, tuple[int, int | None]] = field(default_factory=dict)
    """Closer limits that the capture believes in: the next size beyond each is tried, too."""
    suspected: Sequence[tuple[Mapping[str, int], str]] = ()
    """Sizes at which the model may go another way than on its example, and where it does: they are always tried."""
    rtol: float | None = None
    atol: float | None = None
    """Tolerances; None: those of each output's dtype."""
    by_default: bool = True
    """The tolerances are not the user's: beyond them, what rounding alone explains is let pass."""
    weights: Collection[str] = ()
    """Inputs that are weights of the model: the reference has its own, and no others are tried."""
    redrawn: Reference | None = None
    """The model with other random numbers: what they change cannot be compared."""
    rounded: Sequence[Reference] = ()
    """The model with the sums inside it rounded otherwise, some times."""
    coarse: Reference | None = None
    """The model with every number rounded as the file rounds it on purpose: what that changes is no fault of it."""
    wide: Reference | None = None
    """The model with float32 computed in float64; may fail where the model itself does not."""
    no_dropout: Reference | None = None
    """The model in training, with its dropouts switched off."""
    saturates: Callable[[], str | None] | None = None
    """Names the framework whose integer kernels the reference uses, if they saturate on this processor."""
    framework: str = ""
    restriction: OneTextAfterPast | None = None
    """Sizes that the file's operators do not take: what is tried is not of those."""
    state: Callable[[], Mapping[str, np.ndarray]] | None = None
    """The weights that the model has now, by its own names."""
    trace: Callable[[], Trace] | None = None
    """The values inside the model, to say where a file departs from it; may raise a TonnxError, and takes time."""
    untraced: str = ""
    """Why there is no trace."""
    integers: Callable[[str | os.PathLike[str]], list[str]] | None = None
    """Compares the integers inside a quantised model with a file's: lines for the user, or a VerificationFailed."""
    release: Callable[[], None] | None = None
    """Lets go of what the reference has open, such as a file that is about to be replaced; it does not run after it."""
    stamp: Fact[str] = VALUE
    """What the file's values know of the model's."""

    def ranges(self, example: Mapping[str, int]) -> dict[str, tuple[int, int | None]]:
        """The sizes that a name may stand for as far as the capture knows; where the example refutes that, any."""
        assumed = self.assumed.items()
        believed = {name: limits for name, limits in assumed if _is_within(example.get(name, limits[0]), limits)}
        return {**self.limits, **believed}

    def beyond(self, example: Mapping[str, int]) -> list[dict[str, int]]:
        """The example's sizes with one just outside of what the capture assumes; also inside, if the example is not."""
        others = []
        for name, (low, high) in self.assumed.items():
            if name not in example:
                continue
            inside = [] if _is_within(example[name], (low, high)) else [low, high]
            outside = [low - 1, None if high is None else high + 1]
            asked = self.limits.get(name, (0, None))
            others += [{**example, name: n} for n in (*outside, *inside)
                       if n is not None and n > 0 and n != example[name] and _is_within(n, asked)]  # fmt: skip
        return others

    def within(self, rtol: float | None, atol: float | None) -> Subject:
        """Judged by the user's tolerances, where there are any."""
        if rtol is None and atol is None:
            return self
        rtol, atol = self.rtol if rtol is None else rtol, self.atol if atol is None else atol
        return replace(self, rtol=rtol, atol=atol, by_default=False)

    def narrowed(self) -> Subject:
        """For a file that takes and gives int32 where the model has int64."""
        if self.reference is None:
            return self
        own = {name: array.dtype for name, array in self.example.items()}

        def narrow(array: np.ndarray) -> np.ndarray:
            return array.astype(np.int32) if array.dtype == np.int64 else array

        def converted(reference: Reference) -> Reference:
            def run(feeds: dict[str, np.ndarray]) -> Sequence[np.ndarray]:
                wide = {name: array.astype(own.get(name, array.dtype)) for name, array in feeds.items()}
                return [narrow(np.asarray(result)) for result in reference(wide)]

            return run

        return replace(
            self,
            reference=converted(self.reference),
            redrawn=None if self.redrawn is None else converted(self.redrawn),
            rounded=[converted(each) for each in self.rounded],
            example={name: narrow(array) for name, array in self.example.items()},
            wide=None,
            trace=None,
            untraced="the file has int32 where the model has int64",
        )

    def expected(self, feeds: Arrays) -> dict[str, np.ndarray]:
        assert self.reference is not None
        results = self.reference(copies(feeds))
        if len(results) != len(self.outputs):
            raise CaptureError(f"the model gives {len(results)} outputs, the file has {len(self.outputs)}")
        return dict(zip(self.outputs, results, strict=True))


def copies(inputs: Arrays) -> dict[str, np.ndarray]:
    """A reference may write into its inputs, and the file must still see them as they were."""
    return {name: array.copy() for name, array in inputs.items()}


def _is_within(size: int, limits: tuple[int, int | None]) -> bool:
    return size >= limits[0] and (limits[1] is None or size <= limits[1])
