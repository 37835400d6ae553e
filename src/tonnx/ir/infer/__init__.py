"""Dtype and shape of what the builder makes, from the operator's schema and a few dozen shape functions.

Front ends stamp the framework's own shapes on the results of a rule; this fills in the values between. A dimension is
an int, a `ir.SymbolicDim` with a name, or one without (unknown). A shape of None means that not even the rank is known.
"""

from tonnx.ir.infer import layers  # noqa: F401  (enters its functions into the table, as `arrays` does)
from tonnx.ir.infer.arrays import BROADCASTING
from tonnx.ir.infer.dims import (
    UNKNOWN,
    Dim,
    Dims,
    as_constant,
    broadcast,
    constant,
    dims_of,
    joined_dims,
    known_number,
    same_dim,
    same_dims,
    sizes_in,
)
from tonnx.ir.infer.dtypes import dtypes
from tonnx.ir.infer.table import shapes

__all__ = [
    "BROADCASTING",
    "UNKNOWN",
    "Dim",
    "Dims",
    "as_constant",
    "broadcast",
    "constant",
    "dims_of",
    "dtypes",
    "joined_dims",
    "known_number",
    "same_dim",
    "same_dims",
    "shapes",
    "sizes_in",
]
