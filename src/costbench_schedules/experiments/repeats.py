"""Repeated searches and tests: files that keep them, progress against trials, curves and rows of results.

A trial is one or more measurements: autotvm2018 (Figure 4) also gives random and genetic search two
measurements per trial ("Random x2", "GA x2"), to show what a model is worth against twice as much hardware.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from costbench.arrays import F64
from costbench.metrics.rows import RowOrigin
from costbench.store import KeyedResult
from costbench_schedules.experiments.recorded_tables import TableFile
from costbench_schedules.experiments.table_scores import curve_points, fastest_so_far

SCHEDULE, BEST = "schedule", "best"
"""Task of all rows, and the model under which rows say what was recorded, whatever searches for it."""


@dataclass(frozen=True)
class SearchFile(KeyedResult):
    """The result of a search as stored in its file.

    Attributes:
        decisions: numbers of the configurations, in the order of their measurement.
    """

    decisions: tuple[int, ...]


@dataclass(frozen=True)
class MetricsFile(KeyedResult):
    """The result of a test of a model as stored in its file.

    Attributes:
        metrics: metrics by name, of each workload or operator that the model was tested on.
    """

    metrics: Mapping[str, Mapping[str, float]]


@dataclass(frozen=True)
class Provenance:
    """What rows follow from.

    Attributes:
        params_digest: digest of the parameters.
        data_digest: digest of the recorded data.
        git_revision: revision of the code.
    """

    params_digest: str
    data_digest: str
    git_revision: str

    def origin(self, split: str, target: str, application: str, program: str) -> RowOrigin:
        """Returns what all rows of one program's results have in common."""
        data = (self.params_digest, self.data_digest, self.git_revision)
        return RowOrigin(SCHEDULE, split, target, application, program, *data)


@dataclass(frozen=True, eq=False)
class RepeatedSearch:
    """All repeats of an arm on a table.

    Attributes:
        table: table that was searched.
        arm: name of the way of searching.
        speeds: speed of the fastest schedule so far after each trial, by its second measurement, float64
            [repeats, trials]; in GFLOPS, or in percent of the fastest schedule that was searched.
    """

    table: TableFile
    arm: str
    speeds: F64

    @property
    def trials(self) -> int:
        """Returns the number of trials of each repeat."""
        return int(self.speeds.shape[1])

    def trials_until(self, speed: float) -> F64:
        """Returns the trials until a speed is reached, one more than all where it never is, [repeats]."""
        reached = self.speeds >= speed
        first = np.where(reached.any(axis=1), np.argmax(reached, axis=1), self.trials)
        return np.asarray(first + 1, dtype=np.float64)

    def curve(self) -> dict[str, object]:
        """Returns median and quartiles over repeats after some of the trials, as reports read them."""
        return curve_points(self.speeds, self.table.target, self.table.workload, self.arm)


def best_by_trial(runtime_ns: F64, trials: int, measurements: int = 1, second_ns: F64 | None = None) -> F64:
    """Returns the runtime of the fastest configuration so far after every trial, float64 [trials].

    A search that ran out of configurations keeps its best; trials that are not complete do not count.

    Args:
        runtime_ns: measured runtimes in order, float64 [n]; infinite for failures.
        trials: number of trials.
        measurements: number of measurements of a trial.
        second_ns: second measurements, which are returned of the configuration that is fastest by
            `runtime_ns`, float64 [n]; None for the same measurements.

    Raises:
        ValueError: for fewer than one measurement per trial.
    """
    if measurements < 1:
        raise ValueError(f"measurements is {measurements}, expected at least 1")
    runtime_ns = np.asarray(runtime_ns, dtype=np.float64)
    # The last number stands for nothing that ran so far.
    best = np.append(runtime_ns if second_ns is None else second_ns, np.inf)[fastest_so_far(runtime_ns)]
    best = best[measurements - 1 :: measurements][:trials]
    return np.pad(best, (0, trials - len(best)), mode="edge")
