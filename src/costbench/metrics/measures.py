"""Describes metrics for tables: name, digits, whether lower or higher is better, average over programs.

Errors have geometric means over programs, as lpm2021 prints them, and correlations arithmetic ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from costbench.metrics.averages import APE_FLOOR_PERCENT, geometric_mean

APE = "tile_size_ape"
TAU = "kendall_tau"


@dataclass(frozen=True)
class Measure:
    """A metric of result rows, and how tables show it.

    Attributes:
        metric: its name in rows.
        short: its name in keys of tables and of the summary.
        title: its name for people.
        printed: which of the papers' two kinds of number it is.
        decimals: as printed.
        better: which end is good.
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
        """An average over programs, or None where there is none.

        Args:
            kind: key of `AVERAGES`.
            values: one a program.
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
        """Geometric mean of an error, arithmetic mean of a correlation."""
        return self.average("geometric_mean" if self.printed == "error" else "mean", values)


AVERAGES: Mapping[str, str] = {
    "median": "Median",
    "geometric_mean": "Geometric mean",
    "mean": "Arithmetic mean",
    "standard_deviation": "Standard deviation",
}
"""Rows below a table of programs. Deviations divide by n - 1, as those of lpm2021."""


def error_measure(metric: str, short: str, title: str) -> Measure:
    """An error in percent: lower is better, one decimal, floored in geometric means."""
    return Measure(metric, short, title, "error", 1, "lower", APE_FLOOR_PERCENT)


def tau_measure(metric: str, short: str, title: str) -> Measure:
    """A rank correlation: higher is better, two decimals."""
    return Measure(metric, short, title, "tau", 2, "higher")
