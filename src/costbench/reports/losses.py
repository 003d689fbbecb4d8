"""How the losses of a task are spread over programs, where a geometric mean alone would hide that.

Most programs lose next to nothing under the layouts that a model chooses, and a few lose half of their speed.
The geometric mean, in which an error below 0.05% counts as 0.05%, says how many programs lose nothing, and
hardly what is lost. So tables of such a task state the arithmetic mean, the median and the share of programs
that lose more than 5% as well, and what a blind choice loses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from costbench.metrics import measures
from costbench.metrics.measures import Measure

SHARES_ABOVE: Mapping[str, float] = {"above_1": 1.0, "above_5": 5.0, "above_10": 10.0}
"""Percentage of programs whose error is above so many percent."""
AVERAGES: Mapping[str, str] = {
    **measures.AVERAGES,
    **{kind: f"Programs above {percent:g}% (%)" for kind, percent in SHARES_ABOVE.items()},
}
"""Rows below a table of programs: those of measures, and shares of programs above a threshold."""
SPREAD = ("mean", "median", *SHARES_ABOVE)
"""What is said of errors beside their geometric mean."""


@dataclass(frozen=True)
class SkewedTask:
    """A task whose losses are far from alike.

    Attributes:
        default: model that leaves the compiler's own decision alone, so that its loss is the headroom.
        chance: model that chooses blindly.
        best_of_ten: metric of the loss after the ten decisions that a model likes best were measured.
    """

    default: str
    chance: str
    best_of_ten: str


SKEWED: Mapping[str, SkewedTask] = {"layout": SkewedTask("default_first", "random", "top_10")}
"""Tasks of whose errors more than the geometric mean is stated."""


def average(measure: Measure, kind: str, values: Sequence[float]) -> float | None:
    """Returns an average over programs, or None where there is none.

    Args:
        measure: measure that the values are of; of a correlation no share is above a threshold.
        kind: key of `AVERAGES`.
        values: one value a program.
    """
    if kind not in SHARES_ABOVE:
        return measure.average(kind, values)
    if not values or measure.printed != "error":
        return None
    return 100.0 * sum(value > SHARES_ABOVE[kind] for value in values) / len(values)


def spread(measure: Measure, values: Sequence[float]) -> dict[str, float]:
    """Returns arithmetic mean, median and shares of programs above 1, 5 and 10%, by kind; empty without any.

    Args:
        measure: measure of an error in percent.
        values: one value a program.
    """
    averages = {kind: average(measure, kind, values) for kind in SPREAD}
    return {kind: value for kind, value in averages.items() if value is not None}
