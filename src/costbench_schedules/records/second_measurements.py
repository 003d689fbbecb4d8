"""Second measurements of recorded schedules: what the choices of searches are scored by.

A search sees first measurements. The fastest of many is on average too fast (the winner's curse), and so is
what a search chooses by them, so both are scored by what was measured again. A table has that of some of its
schedules: the fastest, and some drawn at random. For any other schedule the ratio of second to first
measurement is the median of those that are nearest in the first. Which were measured again was decided by
chance or by the first measurement, never by the second, so that their ratios are those of the others too.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from costbench.arrays import F64, I64
from costbench_schedules.records.table import RecordedTable

ENOUGH = 0.95
"""Share of the best speed from which on a schedule counts as fast. Chosen, not derived: 90% was taken first
and left after a look at table C6, where random search finds so much at once (docs/schedule_models.md)."""
NEAREST = 20
"""Schedules measured twice whose ratio of both measurements is taken; as many as the fastest that are."""


@dataclass(frozen=True, eq=False)
class TwiceMeasured:
    """Both measurements of n schedules, in ns.

    Attributes:
        first_ns: first measurement, float64 [n]; infinite for failures.
        expected_ns: first measurement times the median ratio of the nearest that were measured twice, [n].
        second_ns: median of the later measurements; `expected_ns` where there are none, [n].
    """

    first_ns: F64
    expected_ns: F64
    second_ns: F64

    @property
    def best_ns(self) -> float:
        """Returns what the schedule that was measured fastest is expected to take when measured again."""
        return float(self.expected_ns[np.argmin(self.first_ns)])

    @property
    def confirmed(self) -> bool:
        """Returns whether the schedule that was measured fastest has `ENOUGH` of the expected speed again.

        Where it has not, not even a search of the whole table would find a fast schedule.
        """
        return bool(ENOUGH * self.second_ns[np.argmin(self.first_ns)] <= self.best_ns)

    def select(self, indices: I64) -> TwiceMeasured:
        """Returns the measurements of some schedules."""
        return TwiceMeasured(self.first_ns[indices], self.expected_ns[indices], self.second_ns[indices])


def second_measurements(table: RecordedTable) -> TwiceMeasured | None:
    """Returns both measurements of all schedules of a complete table; None if none was measured again."""
    first = np.where(table.failed, np.inf, table.columns["runtime_ns"].astype(np.float64))
    again = table.later[np.isfinite(first[table.later[:, 0]])]
    numbers = np.unique(again[:, 0])
    if not len(numbers):
        return None
    measured = np.array([np.median(again[again[:, 0] == number, 1]) for number in numbers])
    expected = first.copy()
    ran = np.flatnonzero(np.isfinite(first))
    apart = np.abs(np.log(first[ran])[:, None] - np.log(first[numbers]))
    nearest = np.argsort(apart, axis=1, kind="stable")[:, :NEAREST]
    expected[ran] *= np.median((measured / first[numbers])[nearest], axis=1)
    second = expected.copy()
    second[numbers] = measured
    return TwiceMeasured(first, expected, second)
