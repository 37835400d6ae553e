"""How much is tried: a proof takes time in proportion to the model's own, and says what it left out."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from typing import Any

from tonnx.errors import InvalidArgument

RUNS, LEAST = 3, 0.5
"""What a proof may take beyond the example: as long as so many runs, or so many seconds, whichever is more."""
QUICK, THOROUGH = "quick", "thorough"


@dataclass
class Budget:
    """The processor time that trials may take which are not needed in any case."""

    seconds: float | None = None
    """None: in proportion to a run of the model."""
    draws: int = 4
    """Other draws that are made at most, beside the usual ones."""
    left_out: int = 0
    """Trials for which there was no time."""
    _end: float = field(default=math.inf, init=False)

    def begin(self, run: float) -> None:
        """The example is done; it took ``run`` seconds."""
        self._end = time.process_time() + (max(RUNS * run, LEAST) if self.seconds is None else self.seconds)

    def allows(self) -> bool:
        """Whether there is time for one more trial; if not, it is counted as left out."""
        if time.process_time() < self._end:
            return True
        self.left_out += 1
        return False

    def told(self) -> list[str]:
        if not self.left_out:
            return []
        trials = "1 trial was" if self.left_out == 1 else f"{self.left_out} trials were"
        return [f"for lack of time {trials} left out, of other sizes or values (verify={THOROUGH!r} leaves out none)"]


def budget_of(verify: Any) -> Budget | None:
    """What ``verify=`` asks for: True, ``quick``, ``thorough`` or seconds; None for no proof at all."""
    if isinstance(verify, bool):
        return Budget() if verify else None
    if verify == QUICK:
        return Budget(0.0, draws=0)
    if verify == THOROUGH:
        return Budget(math.inf, draws=64)
    if isinstance(verify, (int, float)) and verify >= 0:
        return Budget(float(verify), draws=1024)
    raise InvalidArgument(f"verify must be True, False, {QUICK!r}, {THOROUGH!r} or a number of seconds, not {verify!r}")
