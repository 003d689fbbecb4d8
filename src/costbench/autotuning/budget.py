"""Budgets of a search: limits on charged seconds, on evaluations, on both or on neither.

A budget is immutable; charging it returns a new one with less left, so one budget can be passed from kernel
to kernel of a program. Seconds are added in the order of spending, so a trace that adds up its own seconds
gets the same floating-point digits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from costbench.arrays import F64


@dataclass(frozen=True)
class MeasurementBudget:
    """Limits, and the amounts spent so far.

    Attributes:
        seconds: limit on the time charged; None for no limit.
        evaluations: limit on the number of decisions scored; None for no limit.
        spent_seconds: time charged so far.
        spent_evaluations: decisions scored so far.

    Raises:
        ValueError: for a number that is negative or not finite, or if more is spent than the limits allow.
    """

    seconds: float | None = None
    evaluations: int | None = None
    spent_seconds: float = 0.0
    spent_evaluations: int = 0

    def __post_init__(self) -> None:
        for name in ("seconds", "evaluations", "spent_seconds", "spent_evaluations"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < math.inf:
                raise ValueError(f"{name} is {value}, expected a finite number of at least 0")
        if self.spent_seconds > self._seconds_limit or self.spent_evaluations > self._evaluations_limit:
            raise ValueError(
                f"{self.spent_seconds} s and {self.spent_evaluations} evaluations spent, expected at most "
                f"{self._seconds_limit} s and {self._evaluations_limit} evaluations"
            )

    def evaluations_left(self, wanted: int) -> int:
        """Return how many of `wanted` evaluations the limits allow to start, whatever time they take."""
        if self.spent_seconds >= self._seconds_limit:
            return 0
        return int(min(wanted, self._evaluations_limit - self.spent_evaluations))

    def affordable(self, seconds: F64) -> int:
        """Return how many of the first evaluations, which take `seconds` [n], fit into what is left."""
        within = self._running_seconds(seconds) <= self._seconds_limit
        fitting = len(within) if within.all() else int(np.argmin(within))
        return int(min(fitting, self._evaluations_limit - self.spent_evaluations))

    def charge(self, seconds: F64) -> MeasurementBudget:
        """Return the budget after evaluations that took `seconds` [n].

        Raises:
            ValueError: if they do not fit.
        """
        if not len(seconds):
            return self
        total = float(self._running_seconds(seconds)[-1])
        return MeasurementBudget(self.seconds, self.evaluations, total, self.spent_evaluations + len(seconds))

    @property
    def _seconds_limit(self) -> float:
        return math.inf if self.seconds is None else self.seconds

    @property
    def _evaluations_limit(self) -> float:
        return math.inf if self.evaluations is None else self.evaluations

    def _running_seconds(self, seconds: F64) -> F64:
        # cumsum adds sequentially; sum adds pairwise and may differ in the last digit.
        result: F64 = np.cumsum(np.concatenate([[self.spent_seconds], seconds]))[1:]
        return result
