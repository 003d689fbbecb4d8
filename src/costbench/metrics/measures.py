"""Describes metrics for tables: name, digits, whether lower or higher is better, average over programs.

In averages every program has the same weight, however many kernels it has. Errors have geometric means over
programs, as lpm2021 prints them, and correlations arithmetic ones.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from costbench.errors import DataError
from costbench.metrics.checks import not_empty, vector

APE = "tile_size_ape"
TAU = "kendall_tau"
APE_FLOOR_PERCENT = 0.05
"""lpm2021 prints errors to one decimal, so 0.05% is the smallest error that does not round to zero."""
AVERAGES: Mapping[str, str] = {
    "median": "Median",
    "geometric_mean": "Geometric mean",
    "mean": "Arithmetic mean",
    "standard_deviation": "Standard deviation",
}
"""Rows below a table of programs. Deviations divide by n - 1, as those of lpm2021."""


@dataclass(frozen=True)
class Measure:
    """A metric of result rows, and how tables show it.

    Attributes:
        metric: name in result rows.
        short: name in keys of tables and of the summary.
        title: name for people.
        printed: kind of number of the papers that it is.
        decimals: number of decimals that are printed.
        better: end that is good.
        floor: smallest value that counts in geometric means.
    """

    metric: str
    short: str
    title: str
    printed: Literal["error", "tau"]
    decimals: int
    better: Literal["lower", "higher"]
    floor: float = 0.0

    def average(self, kind: str, values: Sequence[float]) -> float | None:
        """Returns an average over programs, or None where there is none.

        Args:
            kind: key of `AVERAGES`.
            values: one value a program.
        """
        if not values or (kind == "standard_deviation" and len(values) < 2):
            return None
        if kind == "geometric_mean":
            mean = geometric_mean(values, self.floor)
            return None if np.isnan(mean) else mean
        if kind == "standard_deviation":
            return float(np.std(values, ddof=1))
        return float(np.median(values) if kind == "median" else np.mean(values))

    def mean(self, values: Sequence[float]) -> float | None:
        """Returns the geometric mean of an error, the arithmetic mean of a correlation."""
        return self.average("geometric_mean" if self.printed == "error" else "mean", values)


def error_measure(metric: str, short: str, title: str) -> Measure:
    """Returns an error in percent: lower is better, one decimal, floored in geometric means."""
    return Measure(metric, short, title, "error", 1, "lower", APE_FLOOR_PERCENT)


def tau_measure(metric: str, short: str, title: str) -> Measure:
    """Returns a rank correlation: higher is better, two decimals."""
    return Measure(metric, short, title, "tau", 2, "higher")


def geometric_mean(values: npt.ArrayLike, floor: float = 0.0) -> float:
    """Returns exp(mean(log(max(v, floor)))), the mean of lpm2021's tables.

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
