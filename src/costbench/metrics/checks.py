"""Checks the arrays that metrics get: one dimension, equal lengths, no NaN.

A metric of invalid input would look like a result, so these functions raise an error.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from costbench.arrays import F64
from costbench.errors import DataError


def vector(values: npt.ArrayLike, name: str) -> F64:
    """Returns `values` as float64 [n].

    Raises:
        DataError: naming `name`, if it is not one-dimensional or holds NaN or an infinity.
    """
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1:
        raise DataError(f"{array.ndim} dimensions", field=name, expected="one dimension")
    if not np.isfinite(array).all():
        index = int(np.flatnonzero(~np.isfinite(array))[0])
        raise DataError(f"{array[index]} at position {index}", field=name, expected="finite numbers")
    return array


def aligned(**arrays: npt.ArrayLike) -> tuple[F64, ...]:
    """Returns arrays of equal length as float64 [n], in the order in which they are named.

    Raises:
        DataError: as `vector`, or naming the first array whose length is not that of the first of all.
    """
    vectors = {name: vector(values, name) for name, values in arrays.items()}
    (first, reference), *others = vectors.items()
    for name, array in others:
        if len(array) != len(reference):
            raise DataError(f"{len(array)} values for {len(reference)} {first}", field=name)
    return tuple(vectors.values())


def positive(values: npt.ArrayLike, name: str) -> F64:
    """Returns `values` as float64 [n], all above zero. Raises: DataError, as `vector`, or if one is not."""
    array = vector(values, name)
    if (array <= 0.0).any():
        index = int(np.flatnonzero(array <= 0.0)[0])
        raise DataError(f"{array[index]} at position {index}", field=name, expected="numbers above zero")
    return array


def not_empty(array: F64, name: str) -> F64:
    """Returns `array` itself. Raises: DataError naming `name`, if there is nothing in it."""
    if not len(array):
        raise DataError("no values", field=name, expected="at least one")
    return array
