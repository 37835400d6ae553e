"""What rewritten functions call; see `rewrite_ast`.

Which function a name stands for is asked at every call: in the thread that captures it records, in others it does what
Python does.
"""

from __future__ import annotations

from typing import Any

from tonnx.frontends.patching import patched_here
from tonnx.frontends.torch.capture.python_flow.branch import branch, chosen
from tonnx.frontends.torch.capture.python_flow.conditions import assumed, compared, negated, same
from tonnx.frontends.torch.capture.python_flow.dynamic_index import picked
from tonnx.frontends.torch.capture.python_flow.iterate import call, items, put, repeated, spread
from tonnx.frontends.torch.capture.python_flow.loop import for_, listed, mapped, while_, yielded
from tonnx.frontends.torch.capture.python_flow.plain import MEANINGS
from tonnx.frontends.torch.capture.python_flow.short_circuit import contained, joined
from tonnx.frontends.torch.capture.python_flow.variables import set_attribute

_RECORDING = {
    function.__name__: function
    for function in (
        assumed, branch, call, chosen, compared, contained, for_, items, joined, listed, mapped, negated, picked, put,
        repeated, same, set_attribute, spread, while_, yielded,
    )
}  # fmt: skip


class _Control:
    def __getattr__(self, name: str) -> Any:
        if name not in _RECORDING:
            raise AttributeError(name)
        return _RECORDING[name] if patched_here() else MEANINGS[name]


control = _Control()
"""Has the functions as its attributes."""
