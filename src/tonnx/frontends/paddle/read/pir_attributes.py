"""Types and attributes of PIR's JSON."""

from __future__ import annotations

from typing import Any, TypeVar

from tonnx.frontends.paddle.read import dtypes
from tonnx.frontends.paddle.read.damaged_file import damaged, quoted
from tonnx.frontends.paddle.read.graph import Kind, Opaque, Type

_T = TypeVar("_T")
_MAX_DEPTH = 16  # of lists in lists, and of vectors in vectors

_SPECIAL = {"inf": float("inf"), "-inf": float("-inf"), "nan": float("nan")}


def item(holder: Any, key: str, kind: type[_T]) -> _T:
    """An entry of a JSON object that has to be there and to have a type."""
    if not isinstance(holder, dict):
        raise damaged(f"{quoted(holder)} stands where an object with the key {key!r} belongs")
    value = holder.get(key)
    if not isinstance(value, kind):
        raise damaged(f"{key!r} is {quoted(value)}, not a {kind.__name__}" if key in holder else f"{key!r} is missing")
    return value


def text(value: Any) -> str:
    """A name, which later has to be written as UTF-8: JSON can spell half a character."""
    if not isinstance(value, str) or not value or any("\ud800" <= c <= "\udfff" for c in value):
        raise damaged(f"a name is {quoted(value)}")
    return value


def type_of(entry: dict[str, Any], depth: int = 0) -> Type:
    """A type. One that is not known is no fault of the file: only an operator that uses it cannot be lowered."""
    name = item(entry, "#", str).partition(".")[2]
    if name in dtypes.PIR:
        return Type(Kind.SCALAR, dtypes.PIR[name], ())
    if name == "t_vec":
        if depth >= _MAX_DEPTH:
            raise damaged("vectors are nested too deep")
        members = item(entry, "D", list)
        return Type(Kind.LIST, elements=tuple(type_of(_object(member), depth + 1) for member in members))
    if name in ("t_dtensor", "t_dense_tensor_array"):
        data = item(entry, "D", list)
        if len(data) < 2 or not isinstance(data[1], list):
            raise damaged(f"a tensor's type is {quoted(data)}")
        kind = Kind.TENSOR if name == "t_dtensor" else Kind.ARRAY
        return Type(kind, type_of(_object(data[0]), _MAX_DEPTH).dtype, dtypes.shape(data[1]))
    if name == "t_dist_dtensor" and depth < _MAX_DEPTH:  # a tensor and how it was spread over machines
        return type_of(_object(next(iter(item(entry, "D", list)), None)), depth + 1)
    return Type(Kind.OTHER)


def attribute_of(entry: dict[str, Any], depth: int = 0) -> Any:
    """An attribute as the Python value it means."""
    full = item(entry, "#", str)
    name = full.partition(".")[2]
    if full == "NULL":
        return None
    if name in ("a_i32", "a_i64", "a_index"):
        return _integer(entry.get("D"))
    if name in ("a_f32", "a_f64"):
        return _number(entry)
    if name == "a_bool":
        return item(entry, "D", bool)
    if name in ("a_str", "a_tensorname", "a_layout"):
        return item(entry, "D", str)
    if name == "a_array":
        if depth >= _MAX_DEPTH:
            raise damaged("lists are nested too deep")
        return [attribute_of(_object(member), depth + 1) for member in item(entry, "D", list)]
    if name == "a_intarray":
        return [_integer(member) for member in item(entry, "D", list)]
    if name == "a_dtype":
        # "Undefined(ALL_DTYPE)" means: the type of the input.
        return dtypes.NAMES.get(item(entry, "D", str).lower())
    if name == "a_type":
        type_ = type_of(item(entry, "D", dict))
        return type_.dtype if type_.kind is Kind.SCALAR else type_
    if name in ("a_c64", "a_c128"):
        parts = item(entry, "D", list)
        if len(parts) != 2:
            raise damaged(f"a complex number has {len(parts)} parts")
        return complex(_float(parts[0]), _float(parts[1]))
    if name == "a_scalar":
        return _scalar(item(entry, "D", list))
    if name == "a_place":
        return tuple(item(entry, "D", list))
    return Opaque(full)


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise damaged(f"{quoted(value)} stands where an object belongs")
    return value


def _integer(value: Any) -> int:
    if type(value) is not int or not -(1 << 63) <= value < 1 << 63:
        raise damaged(f"an integer is {quoted(value)}")
    return value


def _float(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        # Paddle's JSON writer turns non-finite numbers into null where it has no special encoding for them.
        hint = "save the model again with Paddle 3.1 or later" if value is None else None
        raise damaged(f"a number is {quoted(value)}", hint=hint)
    try:
        return float(value)
    except OverflowError:
        raise damaged("a number is too large for a float") from None


def _number(entry: dict[str, Any]) -> float:
    if "VD" in entry:
        special = entry["VD"]
        value = _SPECIAL.get(special.lower()) if isinstance(special, str) else None
        if value is None:
            raise damaged(f"a number is {quoted(special)}")
        return value
    return _float(entry.get("D"))


def _scalar(data: list[Any]) -> Any:
    """A number with its type's name. 16-bit floats are written as whole numbers, which is Paddle's fault."""
    if len(data) < 2:
        raise damaged(f"a scalar is {quoted(data)}")
    kind, value = data[0], data[1]
    if not isinstance(kind, str):
        raise damaged(f"a scalar has the type {quoted(kind)}")
    if kind == "bool":
        return bool(value)
    if kind.startswith("complex"):
        return complex(_float(value), _float(data[2] if len(data) > 2 else 0))
    return _float(value) if "float" in kind else _integer(value)
