"""A target by name: what a runtime or converter takes of ONNX, as its public documentation says it.

A profile is data. What is done with it is told elsewhere: `tonnx.ir.target` chooses the opset, `tonnx.legalise` writes
operators in terms of others, `tonnx.passes.runtime` changes element types, and `tonnx.legalise.conformity` says what is
left that does not fit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from tonnx.errors import InvalidArgument, did_you_mean
from tonnx.toml import read_toml

_FOLDER = Path(__file__).parent

INT64 = ("native", "narrowed", "none")
"""Of integers of 64 bits: computed as such; taken, but computed in 32; not taken but as constants such as shapes."""
QUANTISATION = ("qdq", "symmetric", "operators", "any", "none")
"""QuantizeLinear and DequantizeLinear; the same with zero point 0 only; QLinearConv and its like; all of them; none."""


@dataclass(frozen=True)
class Profile:
    """What one target takes."""

    name: str
    title: str
    lowest_opset: int
    highest_opset: int
    preferred_opset: int
    """What a file gets if no opset is asked for."""
    highest_ir: int
    operators: frozenset[str] | None
    """Those that it has; None: they are not published, or it has all of its opsets."""
    missing: frozenset[str] = frozenset()
    """Those of its opsets that it has not, where only they are published."""
    dtypes: frozenset[str] = frozenset()
    """The element types of tensors, by ONNX's names in lower case; none named: not published."""
    narrower: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Operator → its element types, where it takes fewer."""
    int64: str = "native"
    static: bool = False
    """It takes fixed shapes only."""
    external_data: bool = True
    quantisation: str = "any"
    runtime: str | None = None
    """The runtime profile of `tonnx.passes.runtime` that files for it need as well."""
    sources: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    """What could not be found in public documentation."""

    def has(self, operator: str) -> bool:
        """Whether it has an operator of the default domain, as far as that is published."""
        if operator == "Constant":  # an initializer in the form of a node: whoever reads ONNX reads it, listed or not
            return True
        return operator not in self.missing and (self.operators is None or operator in self.operators)

    def takes(self, operator: str, dtype: str) -> bool:
        """Whether an operator takes an element type there, as far as that is published."""
        if dtype == "int64":
            return self.int64 == "native"
        if self.dtypes and dtype not in self.dtypes:
            return False
        return operator not in self.narrower or dtype in self.narrower[operator]


def names() -> list[str]:
    return sorted(file.stem for file in _FOLDER.glob("*.toml"))


@cache
def read_profile(name: str) -> Profile:
    """The profile of a target; an unknown name is answered with those that look like it."""
    if not isinstance(name, str) or name not in names():
        raise InvalidArgument(
            f"there is no target {name!r}",
            why=f"there are {', '.join(names())}",
            hint=did_you_mean(str(name).lower(), names()),
        )
    return _profile(name, read_toml(_FOLDER / f"{name}.toml").data)


def _profile(name: str, data: Mapping[str, Any]) -> Profile:
    opset, tensors, operators = data["opset"], data["tensors"], data["operators"]
    present, narrower = operators.get("has"), operators.get("dtypes", {})
    return Profile(
        name=name,
        title=data["title"],
        lowest_opset=opset["lowest"],
        highest_opset=opset["highest"],
        preferred_opset=opset["preferred"],
        highest_ir=opset["ir"],
        operators=None if present is None else frozenset(present.split()),
        missing=frozenset(operators.get("missing", "").split()),
        dtypes=frozenset(tensors["dtypes"]),
        narrower={
            operator: frozenset(types.split()) for types, listed in narrower.items() for operator in listed.split()
        },
        int64=tensors["int64"],
        static=tensors["shapes"] == "static",
        external_data=data["external_data"],
        quantisation=data["quantisation"],
        runtime=data.get("runtime"),
        sources=tuple(data["sources"]),
        unknown=tuple(data.get("unknown", ())),
    )
