"""What rewritten functions call; see `source`."""

from tonnx.frontends.torch.capture.python_flow.branch import branch, chosen
from tonnx.frontends.torch.capture.python_flow.conditions import assumed, compared, contained, joined, negated, same
from tonnx.frontends.torch.capture.python_flow.dynamic_index import picked
from tonnx.frontends.torch.capture.python_flow.iterate import call, items, put, spread
from tonnx.frontends.torch.capture.python_flow.loop import for_, listed, while_
from tonnx.frontends.torch.capture.python_flow.variables import set_attribute

__all__ = [
    "assumed",
    "branch",
    "call",
    "chosen",
    "compared",
    "contained",
    "for_",
    "items",
    "joined",
    "listed",
    "negated",
    "picked",
    "put",
    "same",
    "set_attribute",
    "spread",
    "while_",
]
