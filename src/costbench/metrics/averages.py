"""Averages over programs, in which every program has the same weight however many kernels it has."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from costbench.errors import DataError
from costbench.metrics.checks import not_empty, vector

APE_FLOOR_PERCENT = 0.05
"""lpm2021 prints errors to one decimal, so 0.05% is the smallest error that does not round to zero."""


def geometric_mean(values: npt.ArrayLike, floor: float = 0.0) -> float:
    """exp(mean(log(max(v, floor)))): the mean of lpm2021's tables.

    One program without any error would make the mean zero and hide all the others, so values below
    `floor` count as `floor`. Errors are averaged with `APE_FLOOR_PERCENT`.

    Returns:
        NaN if a value is still zero or negative (a rank correlation may be), for then there is none.

    Raises:
        DataError: if there are no values, or one is not finite; if `floor` is negative.
    """
    if floor < 0.0:
        raise DataError(f"{floor}", field="floor", expected="zero or more")
    array = not_empty(vector(values, "values"), "values")
    raised = np.maximum(array, floor) if floor else array
    if (raised <= 0.0).any():
        return math.nan
    return float(np.exp(np.mean(np.log(raised))))


def mean_without_nan(values: npt.ArrayLike) -> float:
    """Returns the mean of the values that are not NaN, or NaN; a kernel that ranks nothing is NaN."""
    array = np.asarray(values, dtype=np.float64)
    defined = array[~np.isnan(array)]
    return float(defined.mean()) if len(defined) else math.nan
