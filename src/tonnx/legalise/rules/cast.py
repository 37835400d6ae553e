"""Cast and CastLike: attributes that only matter for 8-bit floats."""

from __future__ import annotations

from tonnx.ir.build import Builder
from tonnx.legalise.call import Call
from tonnx.legalise.table import UP, down, same


@down(("Cast", "CastLike"), 24)
def without_round_mode(op: Builder, node: Call) -> None:
    """``round_mode`` says how to round to float8e8m0, which older versions do not have."""
    node.node.attributes.pop("round_mode", None)


@down(("Cast", "CastLike"), 19)
def without_saturate(op: Builder, node: Call) -> None:
    """``saturate`` is about the 8-bit floats, which older versions do not have."""
    node.node.attributes.pop("saturate", None)


for _since in (19, 24):
    same(("Cast", "CastLike"), _since, "a new attribute with the old behaviour as its default", direction=UP)
