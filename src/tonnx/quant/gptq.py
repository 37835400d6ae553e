"""Weights rounded by what they are multiplied with: the error of each is made up for by those that are not rounded yet.

This is GPTQ (Frantar and others, 2022): what counts is not the error of a weight but that of the products, which the
second moments of the layer's input tell. Ranges are chosen before, so that columns may go in any order: those that are
multiplied with the largest numbers go first, while there are others left to make up for them.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tonnx.quant.integers import Form, Stored, in_blocks

_DAMPING = 0.01
"""Of the mean second moment, added to each: few samples say nothing of some directions."""
_AT_ONCE = 128
"""Columns whose errors are taken over to all the others together."""


def by_moments(array: np.ndarray, axis: int, form: Form, moments: np.ndarray) -> Stored:
    """Weights in blocks along an axis, as `in_blocks` has them; ``moments`` are those of what is summed over there."""
    stored = in_blocks(array, axis, form, np.diagonal(moments))
    columns = np.moveaxis(array, axis, 0).astype(np.float32)
    scale, zero_point = (np.moveaxis(part, axis, 0) for part in stored.by_number())
    shape = columns.shape
    columns, scale, zero_point = (part.reshape(shape[0], -1) for part in (columns, scale, zero_point))
    rounded = _rounded(columns, scale, zero_point, form.limits, moments)
    integers = np.moveaxis(rounded.reshape(shape), 0, axis)
    refined = replace(stored, integers=integers.astype(stored.integers.dtype))
    return min(refined, stored, key=lambda one: _lost(one, array, axis, moments))


def _lost(stored: Stored, array: np.ndarray, axis: int, moments: np.ndarray) -> float:
    error = np.moveaxis(stored.floats().astype(np.float32) - array.astype(np.float32), axis, 0)
    error = error.reshape(len(error), -1)
    return float(np.einsum("ij,ij->", moments.astype(np.float32) @ error, error))


def _rounded(
    columns: np.ndarray, scale: np.ndarray, zero_point: np.ndarray, limits: tuple[int, int], moments: np.ndarray
) -> np.ndarray:
    """The integers of each column, one row of the arguments."""
    order = np.argsort(-np.diagonal(moments), kind="stable")
    left, scale, zero_point = columns[order], scale[order], zero_point[order]
    passed_on = _inverse_factor(moments[np.ix_(order, order)]).astype(np.float32)
    integers = np.empty_like(left)
    for start in range(0, len(left), _AT_ONCE):
        stop = min(start + _AT_ONCE, len(left))
        errors = np.empty((stop - start, left.shape[1]), np.float32)
        for i in range(start, stop):
            integers[i] = np.clip(np.rint(left[i] / scale[i]) + zero_point[i], *limits)
            errors[i - start] = (left[i] - (integers[i] - zero_point[i]) * scale[i]) / passed_on[i, i]
            left[i + 1 : stop] -= np.outer(passed_on[i, i + 1 : stop], errors[i - start])
        left[stop:] -= passed_on[start:stop, stop:].T @ errors
    result = np.empty_like(integers)
    result[order] = integers
    return result


def _inverse_factor(moments: np.ndarray) -> np.ndarray:
    """The upper triangular U with UᵀU = M⁻¹: of the moments in reverse order, the inverse of Cholesky's factor."""
    damped = moments.astype(np.float64)
    diagonal = np.diagonal(damped)
    damped = damped + np.eye(len(damped)) * (_DAMPING * diagonal.mean() or 1.0)
    return np.asarray(np.linalg.inv(np.linalg.cholesky(damped[::-1, ::-1]))[::-1, ::-1])
