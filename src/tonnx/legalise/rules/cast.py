"""Cast and CastLike: attributes that only matter for 8-bit floats, which older versions do not have."""

from __future__ import annotations

from tonnx.legalise.table import attributes_go, down

for _since in (19, 24):  # saturate, round_mode
    _step = down(("Cast", "CastLike"), _since, up="a new attribute with the old behaviour as its default")
    _step(attributes_go)
